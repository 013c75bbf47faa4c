// chart is an SVG of a size, with a label for screen readers.
const chart = (w, h, label, ...children) => svg("svg", { class: "chart", width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label }, ...children);

const tip = (text) => svg("title", {}, text);

// showProgram draws the arenas, buffers by life and offset, and the steps by time.
function showProgram(p, into) {
  const steps = p.steps.length || 1, timed = p.timed > 0;
  const parts = [el("h2", {}, "Program"), el("p", {}, p.steps.length + " steps, " + p.buffers.length + " buffers; at most " + bytes(p.max_live) + " of work memory live at one step")];
  p.arenas.forEach((a, i) => {
    const list = p.buffers.filter((b) => b.arena === i);
    if (!list.length || !a.size) return;
    parts.push(el("h3", {}, "Arena " + a.name + ": " + bytes(a.size)), el("div", { class: "scroll" }, a.name === "work" ? lives(a, list, steps, p) : stack(a, list)));
  });
  parts.push(el("h3", {}, timed ? "Steps by time, the mean of " + p.timed : "Steps by bytes moved (ampc view --profile measures times)"), el("div", { class: "scroll" }, timeline(p, timed)), stepTable(p, timed));
  clear(into, parts);
}

// lives is the work arena: steps from left to right, offsets from top to bottom.
function lives(a, list, steps, p) {
  const w = Math.max(760, Math.min(steps * 8, 4000)), h = 320, x = (s) => 60 + (s / steps) * (w - 70), y = (b) => 8 + (b / a.size) * (h - 30);
  const rects = list.map((b) => svg("rect", { class: "bar " + known(b.dtype), x: x(b.from), y: y(b.offset), width: Math.max(x(b.to + 1) - x(b.from), 1), height: Math.max(y(b.offset + b.size) - y(b.offset), 1) },
    tip(`${b.name} ${b.type}: ${bytes(b.size)} at ${number(b.offset)}, steps ${b.from} to ${b.to} (${(p.steps[b.from] || {}).name || ""} to ${(p.steps[b.to] || {}).name || ""})`)));
  return chart(w, h, `Work arena: ${list.length} buffers, lifetime against offset`, svg("text", { x: 2, y: 18 }, "0"), svg("text", { x: 2, y: h - 24 }, bytes(a.size)), svg("text", { x: 60, y: h - 6 }, "step 0"), svg("text", { x: w - 70, y: h - 6 }, "step " + (steps - 1)), rects);
}

// stack is an arena whose buffers live all the time: a bar of their sizes.
function stack(a, list) {
  const w = 760, x = (b) => (b / a.size) * w;
  return chart(w, 30, `Arena ${a.name}: ${list.length} buffers`, list.map((b) => svg("rect", { class: "bar " + known(b.dtype), x: x(b.offset), y: 2, width: Math.max(x(b.size), 0.6), height: 24 }, tip(`${b.name} ${b.type}: ${bytes(b.size)} at ${number(b.offset)}`))));
}

const known = (d) => (/^(f32|f16|bf16|f64)$/.test(d) ? d : "integer");

function timeline(p, timed) {
  const size = (s) => (timed ? s.ns || 0 : s.bytes), total = p.steps.reduce((n, s) => n + size(s), 0) || 1;
  const w = 1100;
  let at = 0;
  const rects = p.steps.map((s) => {
    const r = svg("rect", { class: "bar " + s.part, x: (at / total) * w, y: 18 + 26 * (s.stream || 0), width: Math.max((size(s) / total) * w, 0.5), height: 24 }, tip(`${s.name}: ${s.kind}, ${s.part}, ${bytes(s.bytes)}${s.ns ? ", " + duration(s.ns) : ""}`));
    at += size(s);
    return r;
  });
  return chart(w, 70, "Steps in order, as wide as " + (timed ? "their times" : "the bytes that they move"), svg("text", { x: 0, y: 12 }, "prepare, micro, update: " + (timed ? duration(total) : bytes(total))), rects);
}

function stepTable(p, timed) {
  const cost = (s) => (timed ? s.ns || 0 : s.bytes), total = p.steps.reduce((n, s) => n + cost(s), 0) || 1;
  const list = p.steps.map((s, i) => [s, i]).sort((a, b) => cost(b[0]) - cost(a[0])).slice(0, 60);
  const head = ["step", "node", "work", "part", "bytes", "flop", ...(timed ? ["time"] : []), "share", "source"];
  return el("table", { class: "grid" }, el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, list.map(([s, i]) => el("tr", {}, el("td", { class: "n" }, String(i)), el("td", {}, s.name), el("td", {}, s.kind), el("td", {}, s.part), el("td", { class: "n" }, bytes(s.bytes)), el("td", { class: "n" }, number(s.flops)),
      timed ? el("td", { class: "n" }, s.ns ? duration(s.ns) : "") : null, el("td", { class: "n" }, ((100 * cost(s)) / total).toFixed(1) + "%"), el("td", {}, s.pos || "")))));
}
