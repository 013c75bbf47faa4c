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
  const key = (list) => el("p", { class: "key" }, list.map(([cls, text]) => el("span", {}, el("i", { class: "dot " + cls }), text)));
  parts.splice(2, 0, key([["f32", "f32"], ["f16", "f16"], ["bf16", "bf16"], ["f64", "f64"], ["integer", "other"]]));
  parts.push(el("h3", {}, timed ? "Steps by time, the mean of " + p.timed : "Steps by bytes moved (ampc view --profile measures times)"), key([["prepare", "prepare"], ["micro", "micro"], ["update", "update"]]), el("div", { class: "scroll" }, timeline(p, timed)), el("div", { class: "scroll" }, stepTable(p, timed)),
    el("h3", {}, "Largest buffers"), el("div", { class: "scroll" }, bufferTable(p)));
  clear(into, parts);
}

// lives is the work arena: steps from left to right, offsets from top to bottom.
function lives(a, list, steps, p) {
  const w = Math.max(760, Math.min(steps * 8, 4000)), h = 320, x = (s) => 60 + (s / steps) * (w - 70), y = (b) => 8 + (b / a.size) * (h - 30);
  const rects = list.map((b) => svg("rect", { class: "bar " + known(b.dtype), x: x(b.from), y: y(b.offset), width: Math.max(x(b.to + 1) - x(b.from), 1), height: Math.max(y(b.offset + b.size) - y(b.offset), 1) },
    tip(`${b.name} ${b.type}: ${bytes(b.size)} at ${number(b.offset)}, steps ${b.from} to ${b.to} (${(p.steps[b.from] || {}).name || ""} to ${(p.steps[b.to] || {}).name || ""})`)));
  return chart(w, h, `Work arena: ${list.length} buffers, lifetime against offset`, svg("text", { x: 2, y: 18 }, "0"), svg("text", { x: 2, y: h - 24 }, bytes(a.size)), svg("text", { x: 60, y: h - 6 }, "step 0"), svg("text", { x: w - 70, y: h - 6 }, "step " + (steps - 1)), rects, list.map((b) => labelIn(b.name, x(b.from), y(b.offset), x(b.to + 1) - x(b.from), y(b.offset + b.size) - y(b.offset))));
}

// labelIn is the name of a rectangle that has room for it.
function labelIn(name, x, y, w, h) {
  return w < 50 || h < 14 ? null : svg("text", { class: "name", x: x + 4, y: y + Math.min(h / 2, 20) + 4 }, shorten(name, Math.floor((w - 8) / 6.5)));
}

// stack is an arena whose buffers live all the time: a bar of their sizes.
function stack(a, list) {
  const w = 760, x = (b) => (b / a.size) * w;
  return chart(w, 30, `Arena ${a.name}: ${list.length} buffers`, list.map((b) => svg("rect", { class: "bar " + known(b.dtype), x: x(b.offset), y: 2, width: Math.max(x(b.size), 0.6), height: 24 }, tip(`${b.name} ${b.type}: ${bytes(b.size)} at ${number(b.offset)}`))), list.map((b) => labelIn(b.name, x(b.offset), 2, x(b.size), 24)));
}

function timeline(p, timed) {
  const size = (s) => (timed ? s.ns || 0 : s.bytes), total = p.steps.reduce((n, s) => n + size(s), 0) || 1;
  const w = 1100;
  let at = 0;
  const rects = p.steps.map((s) => {
    const r = svg("rect", { class: "bar " + s.part, x: (at / total) * w, y: 18 + 26 * (s.stream || 0), width: Math.max((size(s) / total) * w, 0.5), height: 24 }, tip(`${s.name}: ${s.kind}, ${s.part}, ${bytes(s.bytes)}${s.ns ? ", " + duration(s.ns) : ""}`));
    at += size(s);
    return r;
  });
  return chart(w, 70, "Steps in order, as wide as " + (timed ? "their times" : "the bytes that they move"), svg("text", { x: 0, y: 12 }, "all together " + (timed ? duration(total) : bytes(total))), rects);
}

const ROWS = 60; // of a table

function stepTable(p, timed) {
  const cost = (s) => (timed ? s.ns || 0 : s.bytes), total = p.steps.reduce((n, s) => n + cost(s), 0) || 1;
  const list = p.steps.map((s, i) => [s, i]).sort((a, b) => cost(b[0]) - cost(a[0])).slice(0, ROWS);
  return grid(["step", "node", "work", "part", "bytes", "flop", ...(timed ? ["time"] : []), "share", "source"],
    list.map(([s, i]) => [i, s.name, s.kind, s.part, s.bytes && bytes(s.bytes), s.flops && number(s.flops), ...(timed ? [s.ns ? duration(s.ns) : ""] : []), ((100 * cost(s)) / total).toFixed(1) + "%", s.pos || ""]),
    ["step", "bytes", "flop", "time", "share"]);
}

function bufferTable(p) {
  const list = [...p.buffers].sort((a, b) => b.size - a.size).slice(0, ROWS);
  return grid(["buffer", "type", "arena", "size", "offset", "written first", "read last"],
    list.map((b) => [b.name, b.type, p.arenas[b.arena].name, bytes(b.size), number(b.offset), ...(p.arenas[b.arena].name === "work" ? ["step " + b.from, "step " + b.to] : ["lives on", ""])]),
    ["size", "offset"]);
}

// grid is a table; the columns named right hold numbers.
function grid(head, rows, right) {
  const cls = (i) => (right.includes(head[i]) ? "n" : null);
  return el("table", { class: "grid" }, el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", class: cls(i) }, h)))),
    el("tbody", {}, rows.map((r) => el("tr", {}, r.map((cell, i) => el("td", { class: cls(i) }, String(cell)))))));
}
