package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// window sets the size and the colours that the reader prefers.
func (b *browser) window(width, height int, theme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": theme}}}, nil)
}

// outside lists controls and texts that reach out of the window or lie over each other.
const outside = `(() => {
	const bad = [], seen = (e) => e.checkVisibility() && e.getClientRects().length;
	if (document.documentElement.scrollWidth > innerWidth) bad.push('the page is wider than its window: ' + document.documentElement.scrollWidth);
	const list = [...document.querySelectorAll('header > *, #tools > *, #legend, .caption, #outline, #panel, #stage')].filter((e) => seen(e) && e.textContent + e.id);
	for (const e of list) {
		const r = e.getBoundingClientRect();
		if (r.left < -1 || r.right > innerWidth + 1 || r.top < -1 || r.bottom > innerHeight + 1 && !e.closest('aside')) bad.push((e.id || e.textContent) + ' reaches out of the window');
	}
	const top = [...document.querySelectorAll('header > *')].filter(seen).map((e) => [e, e.getBoundingClientRect()]);
	for (const [e, r] of top) for (const [f, q] of top)
		if (e !== f && r.left < q.right - 1 && q.left < r.right - 1 && r.top < q.bottom - 1 && q.top < r.bottom - 1) bad.push(e.id + ' lies over ' + f.id);
	const stage = document.getElementById('stage').getBoundingClientRect();
	if (stage.width < 200 || stage.height < 150) bad.push('the graph has ' + stage.width + ' by ' + stage.height + ' pixels');
	return bad.join('; ');
})()`

// Every view fits windows of all sizes, light and dark.
func TestViewWindows(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser for each view takes seconds")
	}
	b := openBrowser(t)
	bad := badStep(t)
	pages := []struct {
		name, address string
		tabs          []string
	}{
		{"gpt", viewFile(t, "zoo:gpt", "--passes", "source"), []string{"graph", "program"}},
		{"resnet8", viewFile(t, "zoo:resnet8", "--policy", "mixed-bf16", "--passes", "source"), []string{"graph"}},
		{"policies", viewFile(t, "zoo:mlp", "--diff-policy", "f32"), []string{"graph"}},
		{"bad", viewFile(t, bad), []string{"doctor"}},
	}
	for _, size := range [][2]int{{1200, 760}, {800, 600}, {400, 700}} {
		for _, theme := range []string{"light", "dark"} {
			b.window(size[0], size[1], theme)
			for _, p := range pages {
				b.open(p.address)
				for _, tab := range p.tabs {
					b.tab(tab)
					name := fmt.Sprintf("%s-%s-%d-%s", p.name, tab, size[0], theme)
					var what string
					if b.eval(outside, &what); what != "" {
						t.Errorf("%s: %s", name, what)
					}
					b.picture(name)
				}
				if p.name == "gpt" {
					b.tab("graph")
					b.find("%d.h0.attn")
					b.press("find", "Enter")
					b.picture(fmt.Sprintf("value-%d-%s", size[0], theme))
				}
			}
		}
	}
}

// accessible is the page as a screen reader has it: the names of all elements by role.
func (b *browser) accessible() map[string][]string {
	b.t.Helper()
	type text struct{ Value any }
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name text
			Properties []struct {
				Name  string
				Value text
			}
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	out := map[string][]string{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		out[role] = append(out[role], strings.TrimSpace(name))
	}
	return out
}

// Controls, pictures and the outline have names for screen readers, and all of them are reached
// and used by keys alone.
func TestViewWithoutPointer(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes seconds")
	}
	b := openBrowser(t)
	b.call("Accessibility.enable", nil, nil)
	b.open(viewFile(t, "zoo:mlp"))
	key := func(name, text string) {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": name, "code": name, "text": text}, nil)
		b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": name, "code": name}, nil)
	}
	focused := func() (id string) {
		b.eval("document.activeElement.id || document.activeElement.tagName", &id)
		return id
	}
	check := func(view string, want map[string]string) {
		t.Helper()
		all := b.accessible()
		for _, role := range []string{"button", "link", "searchbox", "textbox", "combobox", "treeitem", "application", "image", "img", "region", "tree", "navigation", "table"} {
			if role != "table" && slices.Contains(all[role], "") {
				t.Errorf("%s: a %s has no name", view, role)
			}
		}
		for role, name := range want {
			if !slices.ContainsFunc(all[role], func(s string) bool { return strings.Contains(s, name) }) {
				t.Errorf("%s: no %s is called %q, only %q", view, role, name, all[role])
			}
		}
	}
	check("graph", map[string]string{"button": "Fold all scopes", "treeitem": "matmul %d.fc2.w, f32", "tree": "Scopes and nodes", "combobox": "Graph", "searchbox": "Find"})
	// Tab reaches everything once, the outline as one stop.
	order := map[string]bool{}
	for range 25 {
		key("Tab", "")
		order[focused()] = true
	}
	for _, id := range []string{"tab-graph", "tab-program", "find", "theme", "help", "main", "beside", "LI", "canvas", "panel"} {
		if !order[id] {
			t.Errorf("Tab does not reach %s, only %v", id, order)
		}
	}
	// Search, walk along the operands, and have it read out.
	b.eval("document.getElementById('canvas').focus()", nil)
	key("/", "/")
	if id := focused(); id != "find" {
		t.Errorf("/ leads to %s", id)
	}
	for _, c := range "%d.relu" {
		key(string(c), string(c))
	}
	key("Enter", "\r")
	if got := b.text("#panel h2"); got != "%d.relu" {
		t.Errorf("search chose %s", got)
	}
	key("Escape", "")
	key("ArrowUp", "")
	if got := b.text("#panel h2"); got != "%d.fc2" {
		t.Errorf("its first operand is %s", got)
	}
	if got := b.text("#said"); !strings.HasPrefix(got, "%d.fc2, f16[64,10]") {
		t.Errorf("read out: %q", got)
	}
	key("Backspace", "")
	if got := b.text("#panel h2"); got != "%d.relu" {
		t.Errorf("Backspace leads to %s", got)
	}
	check("value", map[string]string{"link": "%d.fc2"})
	// A link of the panel and a row of the outline answer to Enter.
	b.eval("document.querySelector('#panel a.value').focus()", nil)
	key("Enter", "\r")
	b.eval("document.querySelector('#tree li').focus()", nil)
	key("ArrowDown", "")
	key("ArrowDown", "")
	key("Enter", "\r")
	if got := b.text("#panel h2"); got != "%fc1.b" {
		t.Errorf("the third row of the outline is %s", got)
	}
	b.tab("program")
	check("program", map[string]string{"image": "lifetime against offset", "region": "View"})
	b.quiet()
}

// Names, reasons and types are text that can be selected and copied.
func TestViewTextIsSelectable(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes seconds")
	}
	b := openBrowser(t)
	b.open(viewFile(t, "zoo:mlp"))
	b.find("%d.relu")
	b.press("find", "Enter")
	for selector, want := range map[string]string{"#panel h2": "%d.relu", "#why": "matmul is low", "#line": "= matmul", "#panel a.value": "%d.relu", "#tree": "%fc1.w.f16", "#panel table": "f32[64,256]"} {
		var got string
		b.eval(fmt.Sprintf(`(() => { const s = getSelection(); s.selectAllChildren(document.querySelector(%q)); return s.toString(); })()`, selector), &got)
		if !strings.Contains(got, want) {
			t.Errorf("selecting %s gives %q, want %q in it", selector, got, want)
		}
	}
}

// placeOfName is where a name of the graph stands on the screen: left, right and middle, in pixels.
func (b *browser) placeOfName(name string) (left, right, y int) {
	b.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll('.names:not([hidden]) span')].find((e) => e.textContent === %q)", name)
	b.until(find)
	var place [3]float64
	b.eval(fmt.Sprintf("(() => { const r = %s.getBoundingClientRect(); return [r.left, r.right, (r.top + r.bottom) / 2]; })()", find), &place)
	return int(place[0]), int(place[1]), int(place[2])
}

func (b *browser) selection() (text string) {
	b.t.Helper()
	b.eval("getSelection().toString()", &text)
	return text
}

// Names in the graph are selected by the pointer and copied whole, also where they are drawn cut.
// Off the names a drag pans as before, and the selection stays with its name.
func TestViewNamesAreSelectable(t *testing.T) {
	b := openBrowser(t)
	long := "layer.with.a.very.long.name.indeed.that.has.no.room"
	file := filepath.Join(t.TempDir(), "long.ir")
	if err := os.WriteFile(file, []byte("graph @long {\n  input %x : f32[4]\nforward:\n  %"+long+" = relu %x : f32[4]\n  %y = exp %"+long+" : f32[4]\n  return %y\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args       []string
		find, name string
	}{
		{[]string{"zoo:mlp", "--passes", "source"}, "%d.relu", "%d.relu"},
		{nil, "%d.relu", "relu_grad"},
		{nil, "%fc1.w", "%fc1.w"},
		{nil, "%fc1.w.f16", "f32→f16"},
		{nil, "", "forward"},
		{[]string{file, "--policy", "f32"}, "%" + long, "%" + long},
		{nil, "relu", "relu"},
		{nil, "exp", "exp"},
	} {
		if c.args != nil {
			b.open(viewFile(t, c.args...))
		}
		if c.find != "" {
			b.find(c.find)
			b.press("find", "Enter")
		} else {
			b.press("canvas", "f")
		}
		left, right, y := b.placeOfName(c.name)
		b.drag(left+1, y, right-1, y)
		if got := b.selection(); got != c.name {
			t.Errorf("dragged over %s: %q is selected", c.name, got)
		}
		b.drag(right-1, y, left-40, y+25)
		if got := b.selection(); got != c.name {
			t.Errorf("dragged past the start of %s: %q is selected", c.name, got)
		}
	}
	left, right, y := b.placeOfName("exp")
	b.drag(left+1, y, (left+right)/2, y+1)
	if got := b.selection(); got != "ex" && got != "e" {
		t.Errorf("dragged to the middle of exp: %q is selected", got)
	}
	b.click(left+3, y, 1)
	if got := b.selection(); got != "" || b.text("#panel h2") != "%y" {
		t.Errorf("a click on a name selects the text %q and shows %s", got, b.text("#panel h2"))
	}
	b.click(left+3, y, 2)
	var copied string
	b.eval("(() => { let s; document.addEventListener('copy', () => (s = getSelection().toString()), { once: true }); document.execCommand('copy'); return s; })()", &copied)
	if copied != "exp" {
		t.Errorf("a double click copies %q", copied)
	}
	b.eval("pictures[0].pan(30, 40)", nil)
	if l, _, _ := b.placeOfName("exp"); l != left+30 || b.selection() != "exp" {
		t.Errorf("after a pan by keys %q is selected, its name at %d, want %d", b.selection(), l, left+30)
	}
	b.picture("names")
	b.eval("pictures[0].pan(-30, -40)", nil)
	b.placeOfName("exp")
	var focused string
	if b.eval("document.activeElement.id", &focused); focused != "canvas" {
		t.Errorf("after a click on a name the keys go to %s", focused)
	}
	b.drag(left+60, y, left+90, y+40)
	if l, r, v := b.placeOfName("exp"); l != left+30 || r != right+30 || v != y+40 {
		t.Errorf("dragged beside the name by 30, 40: from %d, %d to %d, %d", left, y, l, v)
	}
	b.quiet()
}

// drag moves the pointer with its left button pressed.
func (b *browser) drag(x, y, toX, toY int) {
	b.t.Helper()
	b.mouse("mousePressed", x, y, 1)
	for n := 1; n <= 4; n++ {
		b.mouse("mouseMoved", x+(toX-x)*n/4, y+(toY-y)*n/4, 0)
	}
	b.mouse("mouseReleased", toX, toY, 1)
}

// mouse sends a pointer's event at a place of the window.
func (b *browser) mouse(kind string, x, y, clicks int) {
	b.t.Helper()
	b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": clicks}, nil)
}

func (b *browser) click(x, y, clicks int) {
	b.t.Helper()
	for n := 1; n <= clicks; n++ {
		b.mouse("mousePressed", x, y, n)
		b.mouse("mouseReleased", x, y, n)
	}
}

// The pointer folds, unfolds, chooses, pans and zooms.
func TestViewPointer(t *testing.T) {
	b := openBrowser(t)
	b.open(viewFile(t, "zoo:mlp", "--passes", "source"))
	at := func(find string) (x, y int) { // the middle of an item, or of a frame's head
		t.Helper()
		var place []int
		b.eval(fmt.Sprintf(`(() => { const p = pictures[0], r = p.canvas.getBoundingClientRect(), i = p.%s;
			return [r.left + (i.x + (i.box >= 0 ? i.w / 2 : 40) - p.x) * p.scale, r.top + (i.y + 12 - p.y) * p.scale].map(Math.round); })()`, find), &place)
		return place[0], place[1]
	}
	frames := b.number("#canvas", "frames")
	x, y := at("a.frames.find((f) => p.g.scopes[f.scope].name === 'forward')")
	b.click(x, y, 1)
	if n := b.number("#canvas", "frames"); n >= frames {
		t.Errorf("%d frames after the title of one of %d was clicked", n, frames)
	}
	x, y = at("a.items.find((f) => f.scope >= 0 && p.g.scopes[f.scope].name === 'forward')")
	b.click(x, y, 1)
	if h := b.text("#panel h2"); h != "forward" {
		t.Errorf("a click on the folded section shows %s", h)
	}
	b.click(x, y, 2)
	if n := b.number("#canvas", "frames"); n != frames {
		t.Errorf("%d frames after a double click, want %d", n, frames)
	}
	relu := "a.items.find((f) => f.box >= 0 && p.g.boxes[f.box].op === 'relu')"
	x, y = at(relu)
	b.mouse("mousePressed", x, y, 1)
	b.mouse("mouseMoved", x-30, y+50, 0)
	b.mouse("mouseReleased", x-30, y+50, 1)
	if u, v := at(relu); u != x-30 || v != y+50 {
		t.Errorf("dragged from %d,%d by -30,50 to %d,%d", x, y, u, v)
	}
	x, y = at(relu)
	b.click(x, y, 1)
	if h := b.text("#panel h2"); h != "%relu" {
		t.Errorf("a click on relu shows %s", h)
	}
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -900}, nil)
	b.until("pictures[0].scale > 1")
	b.quiet()
}

// The page's policy refuses scripts that are not its own, pictures, and every other host.
func TestViewPolicy(t *testing.T) {
	b := openBrowser(t)
	b.open(viewFile(t, "zoo:mlp", "--passes", "source"))
	for want, script := range map[string]string{
		"connect-src":               "fetch('https://example.invalid/').catch(() => 0)",
		"img-src":                   "new Image().src = 'https://example.invalid/a.png'",
		"require-trusted-types-for": "document.body.append(Object.assign(document.createElement('script'), { text: 'alert(1)' }))",
		"frame-src":                 "document.body.append(Object.assign(document.createElement('iframe'), { src: 'https://example.invalid/' }))",
	} {
		var refused string
		b.eval(fmt.Sprintf(`new Promise((done) => { document.addEventListener('securitypolicyviolation', (e) => done(e.effectiveDirective), { once: true });
			setTimeout(() => done('nothing'), 2000); try { %s; } catch { } })`, script), &refused)
		if refused != want {
			t.Errorf("%s: refused by %s, want %s", script, refused, want)
		}
	}
}
