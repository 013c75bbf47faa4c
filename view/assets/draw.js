// SMALL is the scale below which a box has a few pixels: no curves, dashes or borders.
const SMALL = 0.12;

// NAMES is the scale from which a box has room for its name below its op.
const NAMES = 0.7;

// keyOfItem names the place of an item's first text.
const keyOfItem = (it) => (it.box >= 0 ? "box " + it.box : "scope " + it.scope);

// Picture draws an arrangement on the canvas and knows what lies under a point.
class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: false });
    this.names = new Names(this);
    this.written = null; // collects the names that a paint writes
    this.x = this.y = 0; // of the arrangement, at the left upper corner
    this.scale = 1;
    this.selected = null;
    this.found = new Set();
    this.changed = null; // marks of boxes in a comparison
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
  }

  show(g, arranged) {
    this.g = g;
    this.a = arranged;
    this.canvas.dataset.visible = arranged.items.length;
    this.canvas.dataset.frames = arranged.frames.length;
    this.draw();
  }

  resize() {
    const r = this.canvas.parentElement.getBoundingClientRect(), d = devicePixelRatio || 1;
    if (!r.width || !r.height || (r.width === this.w && r.height === this.h && d === this.dpr)) return;
    const first = !this.w;
    [this.w, this.h, this.dpr] = [r.width, r.height, d];
    this.canvas.width = Math.round(r.width * d);
    this.canvas.height = Math.round(r.height * d);
    this.canvas.style.width = r.width + "px";
    this.canvas.style.height = r.height + "px";
    if (first && this.a) this.first();
    this.paint();
  }

  // draw paints at the next frame.
  draw() {
    this.names.follow();
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  fit() {
    this.resize();
    if (!this.a || !this.w) return;
    this.scale = Math.min((this.w - 40) / this.a.w, (this.h - 40) / this.a.h, 1.2);
    this.scale = Math.max(this.scale, 0.02);
    this.x = Math.min(-20 / this.scale, (this.a.w - this.w / this.scale) / 2);
    this.y = Math.min(-this.top() / this.scale, (this.a.h - this.h / this.scale) / 2);
    this.draw();
  }

  // top is the space above a picture, in pixels: a comparison has names there.
  top() {
    return this.canvas.parentElement.querySelector(".caption").textContent ? 40 : 20;
  }

  // first shows as much as can be read, the forward section at the left.
  first() {
    if (!this.a || !this.w) return;
    this.fit();
    const least = 0.65;
    if (this.scale >= least) return;
    const f = this.a.frames.find((x) => this.g.scopes[x.scope].name === "forward") || this.a.frames[0] || { x: 0, y: 0 };
    this.scale = least;
    this.x = f.x - 20 / this.scale;
    this.y = f.y - this.top() / this.scale;
    this.draw();
  }

  // reveal moves the picture so that an item is in sight and can be read.
  reveal(it) {
    this.resize(); // another view may have stood here until now
    if (this.scale < NAMES) this.scale = 0.9;
    this.x = it.x + it.w / 2 - this.w / this.scale / 2;
    this.y = it.y + it.h / 2 - this.h / this.scale / 2;
    this.draw();
  }

  zoom(factor, px, py) {
    const scale = Math.min(Math.max(this.scale * factor, 0.01), 4);
    this.x += px / this.scale - px / scale;
    this.y += py / this.scale - py / scale;
    this.scale = scale;
    this.draw();
  }

  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.draw();
  }

  // point is where on the canvas an event took place.
  point(e) {
    const r = this.canvas.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  }

  // under is the item or the frame's head at a point of the canvas.
  under(px, py) {
    const x = px / this.scale + this.x, y = py / this.scale + this.y;
    const inside = (r, h) => x >= r.x && x <= r.x + r.w && y >= r.y && y <= r.y + h;
    for (const it of this.a.items) if (inside(it, it.h)) return it;
    for (let i = this.a.frames.length; i-- > 0; ) if (inside(this.a.frames[i], HEAD)) return this.a.frames[i];
    return null;
  }

  // visible reports whether a rectangle is in sight, with the marks around it.
  visible(left, top, right, bottom) {
    const margin = 8;
    return right >= this.x - margin && bottom >= this.y - margin && left <= this.x + this.w / this.scale + margin && top <= this.y + this.h / this.scale + margin;
  }

  paint() {
    const c = this.ctx;
    if (!this.a || !this.w) return;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = colour("paper");
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const s = this.scale * this.dpr;
    c.setTransform(s, 0, 0, s, -this.x * s, -this.y * s);
    for (const f of this.a.frames) if (this.visible(f.x, f.y, f.x + f.w, f.y + f.h)) this.frame(f);
    this.edges();
    for (const it of this.a.items) if (this.visible(it.x, it.y, it.x + it.w, it.y + it.h)) this.item(it);
    this.names.follow();
  }

  // write draws a name, cut to the characters that have room, behind a mark that is no part of it.
  // key says where in the graph it stands.
  write(key, name, room, x, y, mark = "") {
    const c = this.ctx, drawn = shorten(name, room);
    c.fillText(mark + drawn, x, y);
    if (!this.written) return;
    const m = c.measureText(name), up = m.fontBoundingBoxAscent;
    this.written.push({ key, name, x: x + (mark && c.measureText(mark).width), y: y - up, font: c.font, height: up + m.fontBoundingBoxDescent, squeeze: c.measureText(drawn).width / (m.width || 1) });
  }

  frame(f) {
    const c = this.ctx, s = this.g.scopes[f.scope], fused = s.kind === "cluster" || s.kind === "launch";
    c.fillStyle = colour(f.depth % 2 ? "frame-odd" : "frame-even");
    c.strokeStyle = colour(fused ? "fused" : "line");
    c.lineWidth = fused ? 2 : 1;
    c.setLineDash(s.kind === "launch" ? [8, 4] : []);
    c.beginPath();
    c.roundRect(f.x, f.y, f.w, f.h, 8);
    c.fill();
    c.stroke();
    c.setLineDash([]);
    if (this.scale * 13 < 4) return;
    c.fillStyle = colour("ink");
    const size = Math.min(Math.max(13, 11 / this.scale), 40);
    c.font = (s.kind === "section" ? "bold " : "") + size + "px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.write("frame " + f.scope, s.name, Math.max(6, Math.floor(f.w / size / 0.62)), f.x + 8, f.y + HEAD / 2 + 2, "▾ ");
  }

  edges() {
    const c = this.ctx, chosen = this.selected, near = [], far = new Map();
    this.labels = []; // of edges: text and place
    for (const e of this.a.edges) {
      const mine = chosen && (e.from === chosen.id || e.to === chosen.id);
      if ((e.across && !mine) || !this.visible(...e.bounds)) continue;
      if (mine) near.push(e);
      else if (this.scale < SMALL) this.line(e, far);
      else this.edge(e, 0.75, Math.min(1 + Math.log2(e.values.length) / 2, 4));
    }
    c.globalAlpha = 0.75;
    c.lineWidth = 0.7 / this.scale;
    for (const [stroke, path] of far) {
      c.strokeStyle = stroke;
      c.stroke(path);
    }
    for (const e of near) this.edge(e, 1, Math.max(3, 1.5 / this.scale));
    this.units();
  }

  // line adds an edge, without its curves, to the path of its colour.
  line(e, paths) {
    const stroke = this.stroke(e);
    let path = paths.get(stroke);
    if (!path) paths.set(stroke, (path = new Path2D()));
    path.moveTo(...e.points[0]);
    for (let i = 1; i < e.points.length; i++) path.lineTo(...e.points[i]);
  }

  stroke(e) {
    return e.dtypes.size === 1 ? dtypeColour([...e.dtypes][0]) : colour("ink");
  }

  edge(e, alpha, width) {
    const c = this.ctx, p = e.points;
    c.globalAlpha = alpha;
    c.strokeStyle = c.fillStyle = this.stroke(e);
    c.lineWidth = Math.max(width, 0.7 / this.scale);
    c.setLineDash(e.units.size ? [7, 4] : []);
    c.beginPath();
    c.moveTo(...p[0]);
    for (let i = 1; i < p.length; i++) c.bezierCurveTo(...controls(e, i), ...p[i]);
    c.stroke();
    if (this.scale < 0.3) return;
    const [x, y] = p.at(-1), up = e.back ? -1 : 1;
    c.setLineDash([]);
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x - 4, y - 7 * up);
    c.lineTo(x + 4, y - 7 * up);
    c.fill();
    if (e.units.size && this.scale > 0.75) this.labels.push([unitsOf(e), x + 6, y - 11 * up]);
  }

  // units writes the loss scales at their arrows, above all edges.
  units() {
    const c = this.ctx;
    c.globalAlpha = 1;
    c.setLineDash([]);
    c.font = "9px ui-monospace, monospace";
    c.textBaseline = "alphabetic";
    c.lineWidth = 3;
    c.strokeStyle = colour("frame-even");
    c.fillStyle = colour("quiet");
    for (const label of this.labels) {
      c.strokeText(...label);
      c.fillText(...label);
    }
  }

  item(it) {
    const c = this.ctx, id = it.box >= 0 ? it.box : -1 - it.scope;
    const selected = this.selected && this.selected.id === id;
    const b = it.box >= 0 ? this.g.boxes[it.box] : null, mark = this.changed && this.markOf(it);
    if (this.scale < SMALL && !selected && !mark) return this.dot(it, b);
    c.fillStyle = colour(b ? (b.var ? "variable" : "node") : "scope");
    c.beginPath();
    c.roundRect(it.x, it.y, it.w, it.h, b && b.var ? it.h / 2 : 6);
    c.fill();
    c.lineWidth = selected || mark ? Math.max(3, 1.5 / this.scale) : 1;
    c.strokeStyle = colour(selected ? "select" : mark ? mark : "line");
    c.stroke();
    if (b && this.found.has(it.box)) this.hit(it);
    if (b) this.stripe(it, b);
    if (this.scale < 0.25) return;
    if (this.scale < NAMES) return this.bigText(it, b);
    if (!b) return this.scopeText(it);
    this.boxText(it, b);
  }

  // dot is an item of a few pixels: a rectangle of its dtype.
  dot(it, b) {
    this.ctx.fillStyle = b && b.out.length ? dtypeColour(this.g.values[b.out[0]].dtype) : colour("line");
    this.ctx.fillRect(it.x, it.y, it.w, it.h);
    if (b && this.found.has(it.box)) this.hit(it);
  }

  // hit frames what a search has found.
  hit(it) {
    this.ctx.strokeStyle = colour("found");
    this.ctx.lineWidth = Math.max(3, 2 / this.scale);
    this.ctx.strokeRect(it.x - 4, it.y - 4, it.w + 8, it.h + 8);
  }

  // stripe shows the dtypes that a box stores.
  stripe(it, b) {
    const c = this.ctx, d = [...new Set(b.out.map((v) => this.g.values[v].dtype))];
    d.forEach((name, k) => {
      c.fillStyle = dtypeColour(name);
      c.fillRect(it.x + (b.var ? 8 : 0), it.y + 4 + (k * (it.h - 8)) / d.length, 5, (it.h - 8) / d.length);
    });
  }

  // bigText is the text of a small box: one line that can still be read.
  bigText(it, b) {
    const c = this.ctx, size = Math.min(10 / this.scale, 0.62 * it.h), left = !b ? 8 : b.var ? 18 : 14;
    const text = !b ? this.g.scopes[it.scope].name : b.var || b.op === "cast" ? this.label(b) : b.op, mark = b ? "" : "▸ ";
    c.fillStyle = colour("ink");
    c.textBaseline = "middle";
    c.font = size + "px ui-monospace, monospace";
    this.write(keyOfItem(it), text, Math.floor((it.w - left - 4) / size / 0.61) - mark.length, it.x + left, it.y + it.h / 2 + 1, mark);
  }

  // label is what a variable or a cast is called.
  label(b) {
    const v = b.out.length ? this.g.values[b.out[0]] : null;
    if (b.var) return v.name;
    return (b.in[0] >= 0 ? this.g.values[b.in[0]].dtype : "?") + "→" + (v ? v.dtype : "?");
  }

  scopeText(it) {
    const c = this.ctx, s = this.g.scopes[it.scope];
    c.fillStyle = colour("ink");
    c.textBaseline = "alphabetic";
    c.font = "bold 12px system-ui, sans-serif";
    this.write(keyOfItem(it), s.name, 24, it.x + 10, it.y + 21, "▸ ");
    c.fillStyle = colour("quiet");
    c.font = "11px system-ui, sans-serif";
    c.fillText((s.kind === "scope" ? "" : s.kind + ", ") + s.boxes + " nodes", it.x + 10, it.y + 39);
  }

  boxText(it, b) {
    const c = this.ctx, v = b.out.length ? this.g.values[b.out[0]] : null;
    c.textBaseline = "alphabetic";
    c.fillStyle = colour("ink");
    if (b.op === "cast") {
      c.font = "11px ui-monospace, monospace";
      return this.write(keyOfItem(it), this.label(b), 20, it.x + 12, it.y + 16);
    }
    if (b.var) {
      c.font = "11px ui-monospace, monospace";
      return this.write(keyOfItem(it), this.label(b), 18, it.x + 18, it.y + 19);
    }
    c.font = "bold 12px ui-monospace, monospace";
    this.write(keyOfItem(it), b.op, 20, it.x + 11, it.y + 17);
    c.font = "11px ui-monospace, monospace";
    c.fillStyle = colour("quiet");
    if (v) this.write("value " + it.box, v.name, 23, it.x + 11, it.y + 34);
  }

  markOf(it) {
    if (it.box >= 0) return this.changed.get(it.box);
    return this.changed.get(-1 - it.scope);
  }
}
