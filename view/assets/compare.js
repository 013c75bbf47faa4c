// Numbers of clusters shift when one is added: they are no change of a node.
const bare = (line) => line.replace(/\b(cluster|launch)=\d+ ?/g, "");

const keyOf = (g, b) => (b.out.length ? g.values[b.out[0]].name : b.line);

// compareGraphs marks the boxes of b that a lacks or has with another line, and those of a
// that b lacks. A scope is marked with what is inside.
function compareGraphs(a, b) {
  const lines = new Map(a.boxes.map((x) => [keyOf(a, x), bare(x.line)]));
  const out = { a: new Map(), b: new Map(), added: [], changed: [], removed: [] };
  const mark = (g, marks, i, what) => {
    marks.set(i, what);
    for (const s of ancestors(g, g.home[i])) marks.set(-1 - s, "changed");
  };
  const there = new Set();
  b.boxes.forEach((x, i) => {
    const key = keyOf(b, x), line = lines.get(key);
    there.add(key);
    if (line === undefined) out.added.push(i);
    else if (line !== bare(x.line)) out.changed.push(i);
    else return;
    mark(b, out.b, i, line === undefined ? "added" : "changed");
  });
  a.boxes.forEach((x, i) => {
    const key = keyOf(a, x);
    if (!there.has(key)) {
      out.removed.push(i);
      mark(a, out.a, i, "removed");
    }
  });
  const changed = new Set(out.changed.map((i) => keyOf(b, b.boxes[i])));
  a.boxes.forEach((x, i) => changed.has(keyOf(a, x)) && mark(a, out.a, i, "changed"));
  return out;
}

// Comparison shows one graph, or two side by side.
class Comparison {
  constructor(view, other) {
    [this.view, this.other] = [view, other];
    const graphs = index.blocks.filter(([n]) => n === "graph" || n === "policy" || n.startsWith("pass:"));
    const options = () => graphs.map(([n, label]) => el("option", { value: n }, label));
    this.main = el("select", { id: "main", onchange: () => this.update() }, options());
    this.beside = el("select", { id: "beside", onchange: () => this.update() }, el("option", { value: "" }, "nothing"), options());
    this.controls = graphs.length > 1 ? [el("label", {}, "Graph ", this.main), el("label", {}, "beside ", this.beside)] : [];
    if (has("policy")) this.beside.value = "policy";
  }

  compares() {
    return this.beside.value !== "";
  }

  async update() {
    const name = this.main.value || "graph", beside = this.beside.value;
    try {
      const g = await block(name), h = beside ? await block(beside) : null;
      this.show(g, h, this.main.selectedOptions[0]?.textContent || "", beside ? this.beside.selectedOptions[0].textContent : "");
    } catch (err) {
      clear($("panel"), el("p", { class: "error" }, String(err.message || err)));
    }
    document.body.dataset.shown = name + (beside ? "|" + beside : "");
  }

  show(g, h, name, beside) {
    $("pane2").hidden = !h;
    $("caption1").textContent = h ? name : "";
    $("caption2").textContent = h ? beside : "";
    this.view.peer = this.other.peer = null;
    if (this.view.g !== g) this.view.show(g);
    this.view.picture.changed = this.other.picture.changed = null;
    if (h) {
      this.other.show(h);
      this.view.peer = this.other;
      this.other.peer = this.view;
      this.report(compareGraphs(this.other.g, this.view.g));
    }
    this.view.picture.draw();
  }

  report(c) {
    this.view.picture.changed = c.b;
    this.other.picture.changed = c.a;
    this.other.picture.draw();
    const list = (title, view, boxes) => (boxes.length ? [el("h3", {}, title + ": " + boxes.length), el("p", {}, many(boxes, (i) => boxLink(view, i), 60))] : []);
    clear($("panel"), el("h2", {}, "What differs"), el("p", { id: "differs" }, c.added.length + " added, " + c.changed.length + " changed, " + c.removed.length + " removed"),
      list("Only right", this.view, c.added), list("Other on the right", this.view, c.changed), list("Only left", this.other, c.removed));
  }
}
