// GraphView is the picture of one graph with its outline, search and selection.
class GraphView {
  constructor(picture, primary = true) {
    this.picture = picture;
    this.primary = primary; // it has the outline
    this.peer = null; // the other graph of a comparison
    this.history = [];
    for (const c of [picture.canvas, picture.names.layer]) {
      c.addEventListener("pointerdown", (e) => this.press(e));
      c.addEventListener("pointermove", (e) => this.move(e));
      c.addEventListener("pointerup", (e) => this.release(e));
      c.addEventListener("pointercancel", () => (this.drag = null));
      c.addEventListener("dblclick", (e) => this.double(e));
      c.addEventListener("wheel", (e) => {
        e.preventDefault();
        picture.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), ...picture.point(e));
      }, { passive: false });
    }
    picture.names.layer.addEventListener("mousedown", (e) => e.preventDefault()); // press selects
    picture.canvas.addEventListener("keydown", (e) => this.key(e));
  }

  // show takes another graph; what is unfolded and chosen stays, by name.
  show(g) {
    const names = this.g ? new Set([...this.open].map((s) => this.path(s))) : null;
    const chosen = this.chosen !== undefined && this.g ? this.g.values[this.chosen].name : null;
    this.g = g.readers ? g : prepare(g);
    this.open = names ? new Set(this.g.scopes.map((_, i) => i).filter((i) => names.has(this.path(i)))) : unfold(this.g, 70);
    this.chosen = undefined;
    this.picture.selected = null;
    this.entries = new Map();
    if (this.primary) this.outline();
    this.rearrange();
    if (!names) this.picture.first();
    if (chosen && this.g.byName.has(chosen)) this.select(this.g.byName.get(chosen), false);
  }

  path(scope) {
    return ancestors(this.g, scope).map((s) => this.g.scopes[s].name).reverse().join("/");
  }

  rearrange() {
    this.arranged = arrange(this.g, this.open);
    this.picture.show(this.g, this.arranged);
  }

  toggle(scope) {
    const before = this.arranged.at.get(-1 - scope) || this.arranged.frames.find((f) => f.scope === scope);
    if (this.open.has(scope)) this.open.delete(scope);
    else this.open.add(scope);
    this.rearrange();
    const after = this.arranged.at.get(-1 - scope) || this.arranged.frames.find((f) => f.scope === scope);
    if (this.peer && !this.following) {
      this.peer.following = true;
      const path = this.path(scope), other = this.peer.g.scopes.findIndex((_, i) => this.peer.path(i) === path);
      if (other >= 0 && this.peer.open.has(other) !== this.open.has(scope)) this.peer.toggle(other);
      this.peer.following = false;
    }
    if (before && after) { // what was clicked stays under the pointer
      this.picture.x += after.x - before.x;
      this.picture.y += after.y - before.y;
    }
    this.mark();
  }

  foldAll(unfolded) {
    this.open = unfolded ? new Set(this.g.scopes.keys()) : new Set(this.g.sections);
    this.rearrange();
    this.picture.fit();
    this.mark();
  }

  // reveal unfolds what hides a box, and brings it into sight.
  reveal(box) {
    let folded = false;
    for (const s of ancestors(this.g, this.g.home[box])) {
      folded = folded || !this.open.has(s);
      this.open.add(s);
    }
    if (folded) this.rearrange();
    this.picture.reveal(this.arranged.at.get(box));
    this.mark();
  }

  select(value, move = true) {
    if (this.chosen !== undefined && this.chosen !== value) this.history.push(this.chosen);
    this.chosen = value;
    const box = this.g.values[value].box;
    this.picture.selected = { id: box };
    if (move) this.reveal(box);
    this.picture.draw();
    showValue(this, value);
    this.mark();
    if (this.peer) this.peer.follow(this.g.values[value].name);
  }

  // follow chooses the value of a name here, too, without the panel.
  follow(name) {
    const v = this.g.byName.get(name);
    this.picture.selected = v === undefined ? null : { id: this.g.values[v].box };
    if (v !== undefined) this.reveal(this.g.values[v].box);
    this.picture.draw();
  }

  back() {
    const v = this.history.pop();
    if (v !== undefined) {
      this.chosen = undefined;
      this.select(v);
    }
  }

  // press begins a pan, or on a name a selection of its text: a finger and the middle button pan there, too.
  press(e) {
    const names = this.picture.names;
    this.name = names.over(e);
    this.drag = { x: e.clientX, y: e.clientY, moved: false, from: this.name && e.button === 0 && e.pointerType !== "touch" ? names.offset(this.name, e) : -1 };
    getSelection().empty();
    this.picture.canvas.setPointerCapture(e.pointerId);
  }

  move(e) {
    if (!this.drag) return;
    const dx = e.clientX - this.drag.x, dy = e.clientY - this.drag.y, text = this.name && this.name.firstChild;
    if (!this.drag.moved && Math.hypot(dx, dy) < 4) return;
    this.drag.moved = true;
    if (this.drag.from >= 0) return getSelection().setBaseAndExtent(text, this.drag.from, text, this.picture.names.offset(this.name, e));
    [this.drag.x, this.drag.y] = [e.clientX, e.clientY];
    this.picture.pan(dx, dy);
  }

  release(e) {
    const moved = this.drag && this.drag.moved;
    this.drag = null;
    this.picture.canvas.focus({ preventScroll: true }); // after a click on a name, too
    if (moved) return;
    const it = this.picture.under(...this.picture.point(e));
    if (!it) return;
    if (it.box >= 0) return this.chooseBox(it.box);
    if (!it.depth && it.depth !== 0) {
      this.picture.selected = { id: -1 - it.scope };
      this.picture.draw();
      showScope(this, it.scope);
    } else this.toggle(it.scope); // the head of a frame
  }

  // double unfolds a scope, and selects the text of another name.
  double(e) {
    const it = this.picture.under(...this.picture.point(e));
    if (it && it.scope >= 0) this.toggle(it.scope);
    else if (this.name) getSelection().selectAllChildren(this.name);
  }

  chooseBox(box, move = false) {
    const b = this.g.boxes[box];
    if (b.out.length) this.select(b.out[0], move);
  }

  // current is what is selected, as an item: a box, or -1-scope.
  current() {
    return this.picture.selected ? this.picture.selected.id : null;
  }

  key(e) {
    const p = this.picture, step = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[e.key];
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (step && (e.shiftKey || this.current() === null)) p.pan(-80 * step[0], -80 * step[1]);
    else if (step) this.step(...step);
    else if (e.key === "Enter" && this.current() < 0) this.toggle(-1 - this.current());
    else if (e.key === "Enter" && this.current() !== null) this.toggle(this.g.home[this.current()]);
    else if (e.key === "+" || e.key === "=") p.zoom(1.25, p.w / 2, p.h / 2);
    else if (e.key === "-") p.zoom(0.8, p.w / 2, p.h / 2);
    else if (e.key === "0") p.fit();
    else if (e.key === "u") this.foldAll(true);
    else if (e.key === "f") this.foldAll(false);
    else if (e.key === "Backspace") this.back();
    else return;
    e.preventDefault();
  }

  // step goes to an operand (up), a reader (down) or a neighbour in the row.
  step(dx, dy) {
    const now = this.current(), it = this.arranged.at.get(now);
    if (!it) return;
    let next = null;
    if (dy) {
      const e = this.arranged.edges.filter((x) => (dy > 0 ? x.from : x.to) === now);
      e.sort((a, b) => a.across - b.across);
      if (e.length) next = dy > 0 ? e[0].to : e[0].from;
    } else {
      let best = Infinity;
      for (const [id, o] of this.arranged.at) {
        const far = (o.x - it.x) * dx, aside = Math.abs(o.y + o.h / 2 - it.y - it.h / 2);
        if (id !== now && far > 0 && aside < 30 && far < best) [best, next] = [far, id];
      }
    }
    if (next === null) return;
    if (next >= 0) return this.chooseBox(next, true);
    this.picture.selected = { id: next };
    this.picture.reveal(this.arranged.at.get(next));
    showScope(this, -1 - next);
  }

  // find marks the boxes whose text has all words, and returns their number.
  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const list = [];
    if (words.length) {
      this.g.boxes.forEach((b, i) => {
        const all = (b.op + " " + b.out.map((v) => this.g.values[v]).map((v) => v.name + " " + v.type + " " + (v.unit || "")).join(" ")).toLowerCase();
        if (words.every((w) => all.includes(w))) list.push(i);
      });
    }
    this.hits = list;
    this.hit = -1;
    this.picture.found = new Set(list);
    this.picture.draw();
    return list.length;
  }

  nextHit(by) {
    if (!this.hits || !this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length) % this.hits.length;
    this.chooseBox(this.hits[this.hit], true);
  }

  // outline lists scopes and boxes as a tree; inner lists are made when they are opened.
  outline() {
    clear($("tree"), this.g.sections.map((s) => this.entry(-1 - s, 1)));
    $("tree").firstChild.tabIndex = 0;
  }

  entry(item, level) {
    const scope = -1 - item, g = this.g;
    const name = item >= 0 ? g.boxes[item].op + "  " + g.boxes[item].out.map((v) => g.values[v].name).join(", ") : g.scopes[scope].name;
    const type = item >= 0 && g.boxes[item].out.length ? g.values[g.boxes[item].out[0]].dtype : "";
    const label = el("span", { class: "label" }, type ? el("i", { class: "dot " + type }) : null, name, item < 0 ? el("small", {}, " " + g.scopes[scope].boxes) : null);
    const li = el("li", { role: "treeitem", tabindex: "-1", "aria-level": level, "aria-label": name + (type ? ", " + type : ""), "aria-expanded": item < 0 ? "false" : null }, label);
    label.addEventListener("click", () => {
      li.focus();
      if (item >= 0) this.chooseBox(item, true);
      else this.toggle(scope);
    });
    li.addEventListener("keydown", (e) => this.treeKey(e, li, item));
    this.entries.set(item, li);
    if (item < 0) this.sync(li, scope, level);
    return li;
  }

  // sync shows an entry as the picture shows its scope.
  sync(li, scope, level = +li.getAttribute("aria-level")) {
    const open = this.open.has(scope);
    li.setAttribute("aria-expanded", String(open));
    let list = li.querySelector(":scope > ul");
    if (open && !list) li.append((list = el("ul", { role: "group" }, this.g.scopes[scope].items.map((i) => this.entry(i, level + 1)))));
    if (list) list.hidden = !open;
  }

  treeKey(e, li, item) {
    const rows = [...$("tree").querySelectorAll("li")].filter((x) => x.offsetParent !== null), at = rows.indexOf(li);
    const go = (x) => {
      if (!x) return;
      for (const old of $("tree").querySelectorAll('li[tabindex="0"]')) old.tabIndex = -1; // one stop of the Tab key
      x.tabIndex = 0;
      x.focus();
    };
    if (e.key === "ArrowDown") go(rows[at + 1]);
    else if (e.key === "ArrowUp") go(rows[at - 1]);
    else if (e.key === "ArrowRight" && item < 0 && !this.open.has(-1 - item)) this.toggle(-1 - item);
    else if (e.key === "ArrowLeft" && item < 0 && this.open.has(-1 - item)) this.toggle(-1 - item);
    else if (e.key === "ArrowLeft") go(li.parentElement.closest("li"));
    else if (e.key === "Enter" || e.key === " ") li.querySelector(".label").click();
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  // mark brings the outline in line with the picture.
  mark() {
    if (!this.primary) return;
    for (const [item, li] of [...this.entries]) if (item < 0) this.sync(li, -1 - item);
    const old = $("tree").querySelector("[aria-selected=true]");
    if (old) old.removeAttribute("aria-selected");
    const li = this.entries.get(this.current());
    if (!li) return;
    li.setAttribute("aria-selected", "true");
    li.querySelector(".label").scrollIntoView({ block: "nearest" });
    $("outline").scrollLeft = 0;
  }
}
