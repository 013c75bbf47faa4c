package main

import (
	"fmt"
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
	bad := filepath.Join(t.TempDir(), "bad.ampc")
	if code, _, errs := ampcRun("", "doctor", "zoo:mlp?batch=4&hidden=32", "--scaler", "16777216", "--save", bad); code != 0 {
		t.Fatal(errs)
	}
	pages := []struct {
		name, address string
		tabs          []string
	}{
		{"gpt", viewFile(t, "zoo:gpt", "--passes", "source"), []string{"graph", "program"}},
		{"resnet8", viewFile(t, "zoo:resnet8", "--policy", "mixed-bf16", "--passes", "source"), []string{"graph"}},
		{"policies", viewFile(t, "zoo:mlp", "--diff-policy", "f32"), []string{"graph"}},
		{"bad", viewFile(t, bad), []string{"doctor"}},
	}
	for _, size := range [][2]int{{1400, 900}, {800, 600}, {400, 700}} {
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
