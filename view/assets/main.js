const KEYS = [["/", "find"], ["Enter", "in Find: next hit (Shift: previous); in the graph: fold or unfold"], ["arrows", "operand, reader, neighbours; with Shift or without a selection: pan"],
  ["+  −  0", "zoom in, out, fit"], ["f  u", "fold all, unfold all"], ["Backspace", "back to the value before"], ["drag, wheel, double click", "pan, zoom, fold or unfold"],
  ["drag over a name", "select its text; double click: all of it; middle button: pan"]];

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

// outlineButton shows and hides the outline, which small windows have no room for.
function outlineButton() {
  const show = (open) => {
    document.body.dataset.outline = open ? "open" : "closed";
    $("outlined").setAttribute("aria-expanded", String(open));
  };
  show(matchMedia("(min-width: 901px)").matches);
  $("outlined").addEventListener("click", () => show(document.body.dataset.outline !== "open"));
}

function helpButton() {
  clear($("keys"), KEYS.map(([k, text]) => el("p", {}, el("kbd", {}, k), " " + text)));
  $("help").addEventListener("click", () => {
    $("keys").hidden = !$("keys").hidden;
    $("help").setAttribute("aria-expanded", String(!$("keys").hidden));
  });
}

// pictures are the graph, and the one beside it in a comparison.
const pictures = [new Picture($("canvas")), new Picture($("canvas2"))];

function themeButton() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  $("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    for (const p of pictures) p.draw();
  });
}

// searchField finds in a graph; the slash key leads there.
function searchField(view) {
  $("find").addEventListener("input", () => {
    const n = view.find($("find").value);
    $("found").textContent = $("find").value.trim() ? n + " found" : "";
  });
  $("find").addEventListener("keydown", (e) => {
    if (e.key === "Enter") view.nextHit(e.shiftKey ? -1 : 1);
    if (e.key === "Escape") view.picture.canvas.focus();
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) {
      e.preventDefault();
      $("find").focus();
    }
  });
}

function tools(view, controls) {
  const button = (text, title, f) => el("button", { type: "button", title, "aria-label": title, onclick: f }, text);
  clear($("tools"), button("Fold all", "Fold all scopes", () => view.foldAll(false)), button("Unfold all", "Unfold all scopes", () => view.foldAll(true)),
    button("Fit", "Show everything", () => view.picture.fit()), button("Back", "Back to the value before", () => view.back()), controls);
}

async function start() {
  document.title = index.title;
  $("title").textContent = index.title;
  const view = new GraphView(pictures[0]), other = new GraphView(pictures[1], false), comparison = new Comparison(view, other);
  legend();
  outlineButton();
  helpButton();
  themeButton();
  searchField(view);
  tools(view, comparison.controls);
  document.body.dataset.tab = "graph";
  if (has("graph")) {
    await comparison.update();
    if (!comparison.compares()) showGraph(view);
  }
  await tabs(view);
  const linked = view.g ? view.g.values.findIndex((v) => linkTo(v.name) === location.hash) : -1;
  if (linked >= 0) view.select(linked);
  requestAnimationFrame(() => setTimeout(() => (document.body.dataset.after = Math.round(performance.now())))); // the first picture is there
  document.body.dataset.ready = "yes";
}

start().catch((err) => {
  clear($("panel"), el("p", { class: "error" }, String(err.message || err)));
  document.body.dataset.ready = "error";
});
