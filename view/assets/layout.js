// Sizes in pixels, the same as in graph.go.
const GAP_X = 18, GAP_Y = 34, PAD = 12, HEAD = 24, SECTION_GAP = 70;
const SCOPE = [190, 52], NODE = [168, 44], VARIABLE = [150, 30], CAST = [96, 24], BEND = [8, 0];

function boxSize(b) {
  return b.var ? VARIABLE : b.op === "cast" ? CAST : NODE;
}

// prepare adds to a graph what drawing and navigation need: parents, readers, routes.
function prepare(g) {
  g.parent = new Array(g.scopes.length).fill(-1); // of scopes
  g.home = new Array(g.boxes.length).fill(-1); // scope of boxes
  g.place = new Array(g.boxes.length).fill(0); // in its scope's items
  g.scopePlace = new Array(g.scopes.length).fill(0);
  g.scopes.forEach((s, id) => {
    s.items.forEach((item, i) => {
      if (item >= 0) [g.home[item], g.place[item]] = [id, i];
      else [g.parent[-1 - item], g.scopePlace[-1 - item]] = [id, i];
    });
    s.routes = new Map(s.edges.map((e) => [e[0] * s.items.length + e[1], e]));
  });
  g.readers = g.values.map(() => []); // boxes
  g.boxes.forEach((b, id) => (b.in || []).forEach((v) => v >= 0 && g.readers[v].at(-1) !== id && g.readers[v].push(id)));
  g.byName = new Map();
  g.values.forEach((v, i) => g.byName.has(v.name) || g.byName.set(v.name, i));
  return g;
}

// ancestors are the scopes around a scope, itself first.
function ancestors(g, scope) {
  const list = [];
  for (let s = scope; s >= 0; s = g.parent[s]) list.push(s);
  return list;
}

// unfold opens scopes from the sections down while what is visible stays below limit.
// The sections before and after a large model's passes stay folded.
function unfold(g, limit) {
  const open = new Set(g.sections.filter((s) => /ward$/.test(g.scopes[s].name) || g.scopes[s].boxes <= limit / 2));
  if (!open.size) open.add(g.sections[0]);
  let visible = [...open].reduce((n, s) => n + g.scopes[s].items.length, 0);
  const queue = [...open];
  const todo = [];
  while (queue.length || todo.length) {
    if (!queue.length) {
      todo.sort((a, b) => g.scopes[a].items.length - g.scopes[b].items.length);
      const s = todo.shift();
      visible += g.scopes[s].items.length - 1;
      if (visible > limit) break;
      open.add(s);
      queue.push(s);
    }
    for (const item of g.scopes[queue.shift()].items) if (item < 0) todo.push(-1 - item);
  }
  return open;
}

// spread puts the centres of a row as near to want as widths and gaps allow.
function spread(want, widths) {
  const offset = [], group = [];
  want.forEach((w, i) => {
    offset.push(i ? offset[i - 1] + (widths[i - 1] + widths[i]) / 2 + GAP_X : 0);
    group.push([w - offset[i], 1]);
    while (group.length > 1) {
      const [a, b] = group.slice(-2);
      if (a[0] / a[1] <= b[0] / b[1]) break;
      group.splice(-2, 2, [a[0] + b[0], a[1] + b[1]]);
    }
  });
  const x = [];
  for (const [sum, n] of group) for (let k = 0; k < n; k++) x.push(sum / n + offset[x.length]);
  return x;
}

// measure is the size of a scope and the places of its items inside it.
function measure(g, open, id, memo) {
  if (memo.has(id)) return memo.get(id);
  const s = g.scopes[id];
  let m;
  if (!open.has(id)) {
    m = { w: SCOPE[0], h: SCOPE[1] };
  } else {
    const size = s.items.map((item) => {
      if (item >= 0) return boxSize(g.boxes[item]);
      const c = measure(g, open, -1 - item, memo);
      return [c.w, c.h];
    });
    const x = new Array(s.x.length), y = new Array(s.x.length);
    let top = HEAD + PAD, left = Infinity, right = 0;
    for (const row of s.rows) {
      const widths = row.map((i) => (size[i] || BEND)[0]);
      const centres = spread(row.map((i) => s.x[i]), widths);
      const h = Math.max(...row.map((i) => (size[i] || BEND)[1]));
      row.forEach((i, k) => {
        [x[i], y[i]] = [centres[k], top + h / 2];
        left = Math.min(left, centres[k] - widths[k] / 2);
        right = Math.max(right, centres[k] + widths[k] / 2);
      });
      top += h + GAP_Y;
    }
    for (let i = 0; i < x.length; i++) x[i] += PAD - left;
    m = { x, y, size, w: Math.max(right - left + 2 * PAD, 120), h: top - GAP_Y + PAD };
  }
  memo.set(id, m);
  return m;
}

// arrange places everything visible: boxes and folded scopes, frames of unfolded scopes,
// and the edges between what is visible.
function arrange(g, open) {
  const memo = new Map(), out = { items: [], frames: [], at: new Map(), edges: [], origin: new Map(), w: 0, h: 0 };
  const put = (id, x, y, depth) => {
    const m = memo.get(id);
    const frame = { scope: id, x, y, w: m.w, h: m.h, depth };
    out.frames.push(frame);
    out.origin.set(id, [x, y, m]);
    g.scopes[id].items.forEach((item, i) => {
      const [w, h] = m.size[i];
      const left = x + m.x[i] - w / 2, up = y + m.y[i] - h / 2;
      if (item < 0 && open.has(-1 - item)) return put(-1 - item, left, up, depth + 1);
      const it = { box: item >= 0 ? item : -1, scope: item >= 0 ? -1 : -1 - item, x: left, y: up, w, h };
      out.items.push(it);
      out.at.set(item, it);
    });
  };
  let x = 0;
  for (const s of g.sections) {
    const m = measure(g, open, s, memo);
    if (open.has(s)) put(s, x, 0, 0);
    else {
      const it = { box: -1, scope: s, x, y: 0, w: m.w, h: m.h };
      out.items.push(it);
      out.at.set(-1 - s, it);
    }
    x += m.w + SECTION_GAP;
    out.h = Math.max(out.h, m.h);
  }
  out.w = x - SECTION_GAP;
  connect(g, open, out);
  return out;
}

// shown is what stands for a box: itself, or the outermost folded scope around it.
function shown(g, open, memo, box) {
  let found = memo[box];
  if (found === undefined) {
    found = box;
    for (let s = g.home[box]; s >= 0; s = g.parent[s]) if (!open.has(s)) found = -1 - s;
    memo[box] = found;
  }
  return found;
}

// connect finds the edges between what is visible; those of one pair are one.
function connect(g, open, out) {
  const memo = [], pairs = new Map();
  g.boxes.forEach((b, id) => {
    const to = shown(g, open, memo, id);
    for (const v of b.in || []) {
      if (v < 0) continue;
      const value = g.values[v], from = shown(g, open, memo, value.box);
      if (from === to) continue;
      const key = from + ">" + to;
      let e = pairs.get(key);
      if (!e) {
        e = { from, to, dtypes: new Set(), units: new Set(), values: [], across: g.boxes[value.box].section !== b.section };
        pairs.set(key, e);
        out.edges.push(e);
      }
      e.values.push(v);
      e.dtypes.add(value.dtype);
      if (value.unit) e.units.add(value.unit);
    }
  });
  for (const e of out.edges) route(g, out, e);
}

const scopeOf = (g, item) => (item >= 0 ? g.home[item] : g.parent[-1 - item]);

// route finds the points of an edge: its ends, and the bends of the scope that has both.
function route(g, out, e) {
  const a = out.at.get(e.from), b = out.at.get(e.to);
  const down = a.y + a.h <= b.y + 1;
  e.points = [[a.x + a.w / 2, down ? a.y + a.h : a.y], [b.x + b.w / 2, down ? b.y : b.y + b.h]];
  e.back = !down;
  if (!e.across) {
    const bends = bendsOf(g, out, e);
    if (bends.length) e.points.splice(1, 0, ...(e.points[0][1] < e.points[1][1] ? bends : bends.reverse()));
  }
  const xs = e.points.map((p) => p[0]), ys = e.points.map((p) => p[1]);
  for (let i = 1; i < e.points.length; i++) {
    const [, up, , down] = controls(e, i);
    ys.push(up, down);
  }
  const label = e.units.size ? 14 + 6 * unitsOf(e).length : 8; // beside the arrow
  e.bounds = [Math.min(...xs) - 8, Math.min(...ys) - 8, Math.max(...xs) + label, Math.max(...ys) + 8];
}

const unitsOf = (e) => "×" + [...e.units].join(", ");

// controls are the two control points of the curve from point i-1 of an edge to point i.
function controls(e, i) {
  const [[x, y], [u, v]] = [e.points[i - 1], e.points[i]];
  const bow = e.back || e.across ? Math.max(20, Math.abs(v - y) / 3) * (e.back ? -1 : 1) : (v - y) / 2;
  return [x, y + bow, u, v - bow];
}

function bendsOf(g, out, e) {
  const up = new Map();
  let item = e.from;
  for (let s = scopeOf(g, e.from); s >= 0; s = g.parent[s]) {
    up.set(s, item >= 0 ? g.place[item] : g.scopePlace[-1 - item]);
    item = -1 - s;
  }
  item = e.to;
  for (let s = scopeOf(g, e.to); s >= 0; s = g.parent[s]) {
    if (up.has(s)) {
      const scope = g.scopes[s], to = item >= 0 ? g.place[item] : g.scopePlace[-1 - item];
      const found = scope.routes.get(up.get(s) * scope.items.length + to);
      const origin = out.origin.get(s);
      if (!found || !origin) return [];
      return found.slice(2).map((i) => [origin[0] + origin[2].x[i], origin[1] + origin[2].y[i]]);
    }
    item = -1 - s;
  }
  return [];
}
