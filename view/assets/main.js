const KEYS = [["/", "find"], ["Enter", "in Find: next hit (Shift: previous); in the graph: fold or unfold"], ["arrows", "operand, reader, neighbours; with Shift or without a selection: pan"],
  ["+  −  0", "zoom in, out, fit"], ["f  u", "fold all, unfold all"], ["Backspace", "back to the value before"], ["drag, wheel, double click", "pan, zoom, fold or unfold"]];

function legend() {
  const swatch = (cls, text) => el("span", {}, el("i", { class: "dot " + cls }), text);
  clear($("legend"), swatch("f32", "f32"), swatch("f16", "f16"), swatch("bf16", "bf16"), swatch("integer", "other"), el("span", {}, "┄ carries a loss scale"), el("span", {}, el("i", { class: "fusedkey" }), "runs as one kernel"));
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  colours.clear();
}

// views are the tabs beside the graph: block, name, what draws it.
function views(show) {
  return [["program", "Program", showProgram], ["doctor", "Doctor", (d, into) => showDoctor(d, into, show)], ["training", "Training", showTraining]].filter(([name]) => has(name));
}

function tabs(view) {
  const list = has("graph") ? [["graph", "Graph", null]] : [];
  const buttons = new Map();
  const choose = async (name, draw) => {
    for (const [n, b] of buttons) n === name ? b.setAttribute("aria-current", "page") : b.removeAttribute("aria-current");
    $("other").hidden = name === "graph";
    if (draw) {
      clear($("other"), el("p", {}, "…"));
      try {
        draw(await block(name), $("other"));
      } catch (err) {
        clear($("other"), el("p", { class: "error" }, String(err.message || err)));
      }
    }
    document.body.dataset.tab = name;
  };
  const inGraph = (value) => {
    const v = view.g.byName.get(value) ?? view.g.byName.get(value + "'");
    choose("graph", null);
    if (v !== undefined) view.select(v);
  };
  list.push(...views(inGraph));
  for (const [name, label, draw] of list) buttons.set(name, el("button", { type: "button", id: "tab-" + name, onclick: () => choose(name, draw) }, label));
  clear($("tabs"), [...buttons.values()]);
  const [name, , draw] = list.find(([n]) => n === index.blocks[0][0]) || list[0]; // a page opens with its first document
  return choose(name, draw);
}

async function start() {
  document.title = index.title;
  $("title").textContent = index.title;
  clear($("keys"), KEYS.map(([k, text]) => el("p", {}, el("kbd", {}, k), " " + text)));
  legend();
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const picture = new Picture($("canvas")), second = new Picture($("canvas2"));
  const view = new GraphView(picture), other = new GraphView(second, false);
  $("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    picture.draw();
    second.draw();
  });
  const outlined = (open) => {
    document.body.dataset.outline = open ? "open" : "closed";
    $("outlined").setAttribute("aria-expanded", String(open));
  };
  outlined(matchMedia("(min-width: 901px)").matches);
  $("outlined").addEventListener("click", () => outlined(document.body.dataset.outline !== "open"));
  $("help").addEventListener("click", () => {
    $("keys").hidden = !$("keys").hidden;
    $("help").setAttribute("aria-expanded", String(!$("keys").hidden));
  });
  const button = (text, title, f) => el("button", { type: "button", title, "aria-label": title, onclick: f }, text);
  const comparison = new Comparison(view, other);
  clear($("tools"), button("Fold all", "Fold all scopes", () => view.foldAll(false)), button("Unfold all", "Unfold all scopes", () => view.foldAll(true)),
    button("Fit", "Show everything", () => picture.fit()), button("Back", "Back to the value before", () => view.back()), comparison.controls);
  $("find").addEventListener("input", () => {
    const n = view.find($("find").value);
    $("found").textContent = $("find").value.trim() ? (n === 1 ? "1 found" : n + " found") : "";
  });
  $("find").addEventListener("keydown", (e) => {
    if (e.key === "Enter") view.nextHit(e.shiftKey ? -1 : 1);
    if (e.key === "Escape") picture.canvas.focus();
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) {
      e.preventDefault();
      $("find").focus();
    }
  });
  document.body.dataset.tab = "graph";
  if (has("graph")) {
    await comparison.update();
    if (!comparison.compares()) showGraph(view);
  }
  await tabs(view);
  const linked = view.g && view.g.values.findIndex((v) => linkTo(v.name) === location.hash);
  if (linked >= 0) view.select(linked);
  requestAnimationFrame(() => setTimeout(() => (document.body.dataset.after = Math.round(performance.now())))); // the first picture is there
  document.body.dataset.ready = "yes";
}

start().catch((err) => {
  clear($("panel"), el("p", { class: "error" }, String(err.message || err)));
  document.body.dataset.ready = "error";
});
