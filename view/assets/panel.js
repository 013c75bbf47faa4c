// chainOf is what ampc why prints of a value: its line, then those of what decided it.
function chainOf(g, value) {
  const lines = [], seen = new Set();
  for (let v = value; v >= 0 && !seen.has(v); v = g.values[v].cause) {
    seen.add(v);
    lines.push([v, "  ".repeat(lines.length) + g.values[v].why]);
  }
  return lines;
}

function row(name, ...content) {
  return el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, ...content));
}

function valueLink(view, v) {
  const value = view.g.values[v];
  return el("button", { type: "button", class: "value", onclick: () => view.select(v) }, el("i", { class: "dot " + value.dtype }), value.name);
}

function boxLink(view, box) {
  const b = view.g.boxes[box];
  return el("button", { type: "button", class: "value", onclick: () => view.chooseBox(box, true) }, b.op + " " + (b.out.length ? view.g.values[b.out[0]].name : ""));
}

function many(list, make, limit = 40) {
  const out = list.slice(0, limit).map(make);
  if (list.length > limit) out.push(el("small", {}, " and " + (list.length - limit) + " more"));
  return out;
}

function showValue(view, value) {
  const g = view.g, v = g.values[value], b = g.boxes[v.box];
  const rows = [
    row("Type", el("i", { class: "dot " + v.dtype }), v.type),
    row(b.var ? "Kind" : "Op", b.op + (b.cluster ? ", cluster " + b.cluster : "") + (b.launch ? ", launch " + b.launch : "")),
    row("Section", g.scopes[g.sections.find((s) => ancestors(g, g.home[v.box]).includes(s))].name),
    row("Scale unit", v.unit ? "×" + v.unit : "1: carries no loss scale"),
  ];
  if (b.pos) rows.push(row("Source", b.pos));
  if (!b.var) rows.push(row("Writer", boxLink(view, v.box)));
  const operands = (b.in || []).filter((x) => x >= 0);
  if (operands.length) rows.push(row("Operands", many(operands, (x) => valueLink(view, x))));
  const others = b.out.filter((x) => x !== value);
  if (others.length) rows.push(row("Other results", many(others, (x) => valueLink(view, x))));
  rows.push(row("Readers", g.readers[value].length ? many(g.readers[value], (x) => boxLink(view, x)) : g.returns.includes(value) ? "returned" : "none"));
  if (!b.var) rows.push(row("Moves", bytes(b.read || 0) + " read, " + bytes(b.write || 0) + " written" + (b.flops ? ", " + number(b.flops) + " flop" : "")));
  const chain = chainOf(g, value);
  clear($("panel"),
    el("h2", {}, v.name),
    el("table", {}, rows),
    el("h3", {}, "Why"),
    el("pre", { id: "why" }, chain.map(([, line]) => line + "\n")),
    chain.length > 1 ? el("p", {}, "Decided by: ", chain.slice(1).map(([x]) => valueLink(view, x))) : null,
    el("h3", {}, "Line"),
    el("pre", { id: "line" }, b.line));
}

function showScope(view, scope) {
  const g = view.g, s = g.scopes[scope];
  clear($("panel"),
    el("h2", {}, s.name),
    el("table", {}, row("Kind", s.kind), row("Nodes", String(s.boxes))),
    el("p", {}, el("button", { type: "button", onclick: () => view.toggle(scope) }, view.open.has(scope) ? "Fold" : "Unfold")));
}
