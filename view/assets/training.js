// showTraining draws a run's curves; of a run that goes on, as its numbers arrive.
function showTraining(t, into) {
  const points = t.points;
  const draw = () => clear(into, el("h2", {}, t.title), summary(points, t), curvesOf(points));
  draw();
  if (!t.live || into.dataset.listening) return;
  into.dataset.listening = "yes";
  const events = new EventSource("events" + location.search);
  let waiting = false;
  events.onmessage = (e) => {
    points.push(...JSON.parse(e.data));
    document.body.dataset.points = points.length;
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; draw(); }, 200);
  };
  events.addEventListener("end", () => { events.close(); t.live = false; draw(); });
}

const format = (x) => (x === null || x === undefined ? "–" : Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(5)));

// paceOf is the column of the units a second, such as tokens/s; "": there is none.
const paceOf = (points) => Object.keys(points.at(-1) || {}).find((k) => k.endsWith("/s")) || "";

function summary(points, t) {
  const last = points.at(-1) || {}, pace = paceOf(points), memory = points.findLast((p) => p.memory);
  const high = points.findLast((p) => p.range_high_value), low = points.findLast((p) => p.range_low_value);
  const cells = [["step", last.step], ["loss", last.loss], ["loss scale", last.scale], ["skipped", points.filter((p) => p.skipped).length], ["gradient norm", last.grad_norm], [pace, last[pace]], ["learning rate", last.lr], ["memory", memory ? bytes(memory.memory) : null],
    ["nearest to overflow", high && `%${high.range_high_value}: ` + (high.range_high === null ? "not finite" : `2^${Math.log2(high.range_high).toFixed(1)} of the largest number`) + `, step ${high.step}`],
    ["nearest to underflow", low && `%${low.range_low_value}: 2^${Math.log2(low.range_low).toFixed(1)} of the smallest number, step ${low.step}`]];
  return el("table", { class: "grid", id: "now", "aria-live": "off" }, el("tbody", {}, cells.filter(([, v]) => v !== undefined && v !== null).map(([k, v]) => el("tr", {}, el("th", { scope: "row" }, k), el("td", {}, typeof v === "number" ? format(v) : v)))), el("caption", {}, t.live ? "running" : "ended"));
}

function curvesOf(points) {
  const pace = paceOf(points);
  return [["loss", "Loss", false], ["held_out", "Held-out loss", false], ["scale", "Loss scale", true], ["grad_norm", "Gradient norm", true], [pace, pace.replace(/^./, (c) => c.toUpperCase()), false], ["lr", "Learning rate", false],
    ["range_high", "Nearest to overflow: share of the largest number", true], ["range_low", "Nearest to underflow: multiple of the smallest number", true]]
    .map(([key, title, log]) => curve(points, key, title, log));
}

// curve is one line; steps that were skipped are marks at its foot.
function curve(points, key, title, log) {
  const list = points.filter((p) => typeof p[key] === "number" && (!log || p[key] > 0));
  if (!list.length) return null;
  const w = 820, h = 170, f = log ? Math.log2 : (x) => x;
  const s0 = points[0].step, s1 = Math.max(points.at(-1).step, s0 + 1);
  let lo = Infinity, hi = -Infinity;
  for (const p of list) [lo, hi] = [Math.min(lo, f(p[key])), Math.max(hi, f(p[key]))];
  if (hi === lo) [lo, hi] = [lo - 1, hi + 1];
  const x = (s) => 70 + ((s - s0) / (s1 - s0)) * (w - 80), y = (v) => 10 + (1 - (f(v) - lo) / (hi - lo)) * (h - 40);
  const every = Math.max(1, Math.ceil(list.length / 2000));
  const d = list.filter((_, i) => i % every === 0 || i === list.length - 1).map((p, i) => (i ? "L" : "M") + x(p.step).toFixed(1) + " " + y(p[key]).toFixed(1)).join("");
  const value = (v) => format(log ? 2 ** v : v);
  return el("div", { class: "fit" }, el("h3", {}, title), chart(w, h, `${title} from step ${s0} to ${s1}, last ${format(list.at(-1)[key])}`,
    svg("path", { class: "axis", d: `M70 10V${h - 30}H${w - 10}` }), svg("text", { x: 2, y: 16 }, value(hi)), svg("text", { x: 2, y: h - 30 }, value(lo)), svg("text", { x: 70, y: h - 12 }, "step " + s0), svg("text", { x: w - 70, y: h - 12 }, "step " + s1),
    svg("path", { class: "curve", d }),
    key === "scale" || key === "loss" ? points.filter((p) => p.skipped).slice(0, 2000).map((p) => svg("rect", { class: "mark", x: x(p.step) - 1, y: h - 36, width: 2, height: 6 }, tip("step " + p.step + " was skipped"))) : null));
}
