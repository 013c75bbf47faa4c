// showDoctor draws a report: its text, and the exponents of every tensor that it names
// beside the limits of the dtypes.
function showDoctor(d, into, open) {
  clear(into, el("h2", {}, "Doctor: " + d.cause), el("pre", { id: "report" }, d.text),
    d.value ? el("p", {}, el("button", { type: "button", onclick: () => open(d.value) }, "Show " + d.value + " in the graph")) : null,
    d.tensors.length ? el("h3", {}, "Binary exponents: how many elements have a magnitude from 2ⁿ up to 2ⁿ⁺¹") : null,
    d.tensors.map((t) => el("div", { class: "fit" }, el("p", {}, el("strong", {}, t.role), ": " + t.text), t.bins ? histogram(t, d.limits) : el("p", {}, "The replay did not keep its elements."))));
}

function histogram(t, limits) {
  const w = 900, h = 136, lo = -162, hi = 132, x = (e) => ((e - lo) / (hi - lo)) * (w - 90) + 5, most = Math.max(1, ...t.bins.counts);
  const bars = t.bins.counts.map((n, i) => {
    const tall = n ? Math.max((Math.log2(n + 1) / Math.log2(most + 1)) * 70, 2) : 0;
    return svg("rect", { class: "bar " + t.dtype, x: x(t.bins.least + i), y: 80 - tall, width: Math.max(x(1) - x(0) - 0.3, 1), height: tall }, tip(`2^${t.bins.least + i}: ${n} of ${t.elements}`));
  });
  const marks = limits.map((l, k) => {
    const y = 87 + 9 * k, [from, to] = [x(l.subnormal), x(l.max + 1)];
    return svg("g", {}, tip(`${l.dtype}: smallest 2^${l.subnormal}, largest below 2^${l.max + 1}`), svg("path", { class: "limit " + l.dtype, d: `M${from} ${y}V${y - 4}M${from} ${y}H${to}V${y - 4}` }),
      svg("text", { x: from - 4, y: y + 3, "text-anchor": "end", class: "quiet" }, l.dtype));
  });
  const ticks = [-149, -126, -100, -75, -50, -24, 0, 16, 50, 75, 100, 127].map((e) => svg("text", { x: x(e), y: 130, "text-anchor": "middle", class: "quiet" }, String(e)));
  const rest = [["0", t.zeros], ["Inf", t.inf], ["NaN", t.nan]].filter(([, n]) => n);
  return chart(w, h, `${t.role} ${t.name}: exponents of ${t.elements} elements`, svg("path", { class: "axis", d: `M${x(lo)} 80H${x(hi)}` }), bars, marks, ticks, rest.map(([name, n], i) => svg("text", { x: w - 78, y: 20 + 16 * i }, `${n} ${name}`)));
}
