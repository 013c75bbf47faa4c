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

// linkTo is the address of a value on this page.
const linkTo = (name) => "#" + encodeURIComponent(name);

const choosing = (choose) => (e) => {
  e.preventDefault();
  choose();
};

function valueLink(view, v) {
  const value = view.g.values[v];
  return el("a", { class: "value", href: linkTo(value.name), onclick: choosing(() => view.select(v)) }, el("i", { class: "dot " + value.dtype }), value.name);
}

function boxLink(view, box) {
  const b = view.g.boxes[box], name = b.out.length ? view.g.values[b.out[0]].name : "";
  return el("a", { class: "value", href: linkTo(name), onclick: choosing(() => view.chooseBox(box, true)) }, b.op + " " + name);
}

function many(list, make, limit = 40) {
  const out = list.slice(0, limit).map(make);
  if (list.length > limit) out.push(el("small", {}, " and " + (list.length - limit) + " more"));
  return out;
}

function showValue(view, value) {
  const g = view.g, v = g.values[value], b = g.boxes[v.box];
  readExtra().then((news) => news && view.chosen === value && showValue(view, value));
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
  const step = stepOf(v.name) || clusterStep(g, b);
  if (step) rows.push(row("Step", step.kind + " " + step.name + ", " + step.part + ": " + bytes(step.bytes) + (step.ns ? ", " + duration(step.ns) : "")));
  const range = extra.ranges && extra.ranges[v.name];
  if (range) rows.push(row("Range", range));
  const chain = chainOf(g, value);
  $("said").textContent = v.name + ", " + v.type + ", " + b.op;
  clear($("panel"),
    el("h2", {}, v.name),
    el("table", {}, rows),
    el("h3", {}, "Why"),
    el("pre", { id: "why" }, chain.map(([, line]) => line + "\n")),
    chain.length > 1 ? el("p", {}, "Decided by: ", chain.slice(1).map(([x]) => valueLink(view, x))) : null,
    whyNot(v.name),
    el("h3", {}, "Line"),
    el("pre", { id: "line" }, b.line));
}

// extra are documents about values that are read when the first value is chosen.
const extra = {};

async function readExtra() {
  if (extra.asked) return false;
  extra.asked = true;
  for (const name of ["ranges", "program", "whynot"]) {
    if (!has(name)) continue;
    try {
      extra[name] = await block(name);
    } catch (err) {
      extra[name + "Error"] = String(err.message || err);
    }
  }
  return true;
}

// stepOf is the step of the program that stores a value.
function stepOf(name) {
  if (!extra.program) return null;
  if (!extra.steps) {
    extra.steps = new Map();
    for (const s of extra.program.steps) for (const o of s.out) extra.steps.set(o, s);
  }
  return extra.steps.get(name) || extra.steps.get(name.replace(/^%/, ""));
}

// clusterStep is the step that runs a node's cluster, whose inner values are stored nowhere.
function clusterStep(g, b) {
  const mates = b.cluster ? g.boxes.filter((x) => x.cluster === b.cluster && x.section === b.section) : [];
  return mates.flatMap((x) => x.out).map((v) => stepOf(g.values[v].name)).find(Boolean);
}

function whyNot(name) {
  if (!has("whynot")) return null;
  const text = extra.whynot ? extra.whynot[name] || "There is no other dtype for it to choose." : extra.whynotError || "…";
  return el("div", {}, el("h3", {}, "Why not another dtype"), el("pre", { id: "whynot" }, text));
}

function showScope(view, scope) {
  const g = view.g, s = g.scopes[scope];
  $("said").textContent = s.name + ", " + s.boxes + " nodes, " + (view.open.has(scope) ? "unfolded" : "folded");
  clear($("panel"),
    el("h2", {}, s.name),
    el("table", {}, row("Kind", s.kind), row("Nodes", String(s.boxes))),
    el("p", {}, el("button", { type: "button", onclick: () => view.toggle(scope) }, view.open.has(scope) ? "Fold" : "Unfold")));
}

// showGraph says what is in a graph, before a node is chosen.
function showGraph(view) {
  const g = view.g, count = new Map(), clusters = new Set();
  for (const v of g.values) count.set(v.dtype, (count.get(v.dtype) || 0) + 1);
  for (const b of g.boxes) if (b.cluster) clusters.add(b.cluster);
  const of = (op) => g.boxes.filter((b) => b.op === op).length;
  clear($("panel"), el("h2", {}, g.name),
    el("table", {}, row("Nodes", String(g.boxes.filter((b) => !b.var).length)), row("Variables", String(g.boxes.filter((b) => b.var).length)), row("Casts", String(of("cast"))), row("Clusters", String(clusters.size)),
      [...count].sort((a, b) => b[1] - a[1]).map(([d, n]) => row(d, el("i", { class: "dot " + d }), n + " values"))),
    el("p", {}, "Choose a node to see its type, the reason of its dtype, its operands and readers."));
}
