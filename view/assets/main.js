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

async function start() {
  document.title = index.title;
  $("title").textContent = index.title;
  clear($("keys"), KEYS.map(([k, text]) => el("p", {}, el("kbd", {}, k), " " + text)));
  legend();
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const picture = new Picture($("canvas"));
  const view = new GraphView(picture);
  $("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    picture.draw();
  });
  $("help").addEventListener("click", () => {
    $("keys").hidden = !$("keys").hidden;
    $("help").setAttribute("aria-expanded", String(!$("keys").hidden));
  });
  const button = (text, title, f) => el("button", { type: "button", title, "aria-label": title, onclick: f }, text);
  clear($("tools"), button("Fold all", "Fold all scopes", () => view.foldAll(false)), button("Unfold all", "Unfold all scopes", () => view.foldAll(true)),
    button("Fit", "Show everything", () => picture.fit()), button("Back", "Back to the value before", () => view.back()));
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
  view.show(await block("graph"));
  clear($("panel"), el("p", {}, "Choose a node to see its type, the reason of its dtype, its operands and readers."));
  document.body.dataset.ready = "graph";
}

start().catch((err) => {
  clear($("panel"), el("p", { class: "error" }, String(err.message || err)));
  document.body.dataset.ready = "error";
});
