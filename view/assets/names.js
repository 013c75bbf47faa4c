// MOST is how many names can be selected at a time: those nearest to the middle.
const MOST = 800;

// STILL is how long a picture has not moved, in milliseconds, when its names can be selected.
const STILL = 120;

// Names lays invisible text over the names that a picture draws, so that they can be selected and
// copied whole. While the picture moves there is none: a pan pays for no elements.
class Names {
  constructor(picture) {
    this.picture = picture;
    this.spans = new Map(); // by key
    this.layer = el("div", { class: "names", "aria-hidden": "true", hidden: true }); // the outline has the same names
    picture.canvas.after(this.layer);
  }

  // follow takes the names away when the picture has moved, and brings them back when it rests.
  follow() {
    const p = this.picture, now = [p.a, p.x, p.y, p.scale, p.w, p.h];
    if (this.place && now.every((x, i) => x === this.place[i])) return;
    this.place = now;
    this.layer.hidden = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.rest(), STILL);
  }

  rest() {
    const p = this.picture;
    p.written = [];
    p.paint();
    this.show(p.written);
    p.written = null;
  }

  // show has an element for each name. Those that were there stay, and what was selected with them.
  show(list) {
    const p = this.picture, far = (n) => Math.hypot(n.x - p.x - p.w / p.scale / 2, n.y - p.y - p.h / p.scale / 2);
    if (list.length > MOST) list = list.sort((a, b) => far(a) - far(b)).slice(0, MOST);
    const kept = new Map(), old = this.spans;
    for (const n of list) if (old.has(n.key) && old.get(n.key).textContent === n.name) kept.set(n.key, old.get(n.key));
    for (const [key, span] of old) if (!kept.has(key)) span.remove();
    this.spans = new Map();
    let next = this.layer.firstChild;
    for (const n of list.sort((a, b) => a.y - b.y || a.x - b.x)) { // as it is read, and copied
      const span = kept.get(n.key) || el("span", {}, n.name);
      this.spans.set(n.key, span);
      span.style.font = n.font;
      span.style.lineHeight = n.height + "px";
      span.style.transform = `translate(${(n.x - p.x) * p.scale}px, ${(n.y - p.y) * p.scale}px) scale(${p.scale * n.squeeze}, ${p.scale})`;
      if (span === next) next = next.nextSibling;
      else this.layer.insertBefore(span, next);
    }
    this.layer.hidden = false;
  }

  // offset is how many characters of a name stand left of an event: none or all of them beside it.
  offset(span, e) {
    const r = span.getBoundingClientRect(), text = span.firstChild;
    if (e.clientX <= r.left) return 0;
    if (e.clientX >= r.right) return text.length;
    const range = document.createRange();
    for (let i = 1; i <= text.length; i++) {
      range.setStart(text, i - 1);
      range.setEnd(text, i);
      const c = range.getBoundingClientRect();
      if (e.clientX < (c.left + c.right) / 2) return i - 1;
    }
    return text.length;
  }

  // over is the name at the target of an event.
  over(e) {
    return e.target.parentElement === this.layer ? e.target : null;
  }
}
