package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ampc/models"
)

// viewFile writes a page and returns its address and the flags it was made with.
func viewFile(t testing.TB, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "page.html")
	if code, _, errs := ampcRun("", append([]string{"view", "-o", out}, args...)...); code != 0 {
		t.Fatalf("view %v: %s", args, errs)
	}
	return "file://" + out
}

// number is what an element's data attribute says.
func (b *browser) number(selector, key string) int {
	b.t.Helper()
	var text string
	b.eval(fmt.Sprintf("document.querySelector(%q).dataset[%q]", selector, key), &text)
	n, err := strconv.Atoi(text)
	if err != nil {
		b.t.Fatalf("%s %s: %q", selector, key, text)
	}
	return n
}

// find types into the search field and returns how many boxes it found.
func (b *browser) find(text string) int {
	b.t.Helper()
	b.eval(fmt.Sprintf("(() => { const f = document.getElementById('find'); f.value = %q; f.dispatchEvent(new Event('input')); })()", text), nil)
	var found string
	b.eval("document.getElementById('found').textContent", &found)
	n, err := strconv.Atoi(strings.TrimSuffix(found, " found"))
	if err != nil {
		b.t.Fatalf("find %s: %q", text, found)
	}
	return n
}

// press sends a key to an element.
func (b *browser) press(id, key string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.getElementById(%q).dispatchEvent(new KeyboardEvent('keydown', {key: %q, bubbles: true}))", id, key), nil)
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	var s string
	b.eval(fmt.Sprintf("document.querySelector(%q).textContent", selector), &s)
	return s
}

// checkGraph looks at a page with a graph: it draws, folds, unfolds, finds, and says why
// as the command does. values are names to ask for.
func (b *browser) checkGraph(values []string, why func(value string) string) {
	t := b.t
	t.Helper()
	first := b.number("#canvas", "visible")
	b.press("canvas", "f")
	folded := b.number("#canvas", "visible")
	b.press("canvas", "u")
	all := b.number("#canvas", "visible")
	var boxes int
	b.eval("block('graph').then((g) => g.boxes.length)", &boxes)
	if first < 1 || all != boxes || folded > all || boxes > 20 && folded >= all {
		t.Errorf("%d visible at first, %d folded, %d unfolded of %d boxes", first, folded, all, boxes)
	}
	var overlaps int
	b.eval(`block('graph').then((g) => { const a = arrange(prepare(g), new Set(g.scopes.keys())).items; let n = 0;
		a.sort((p, q) => p.x - q.x);
		for (let i = 0; i < a.length; i++) for (let j = i + 1; j < a.length && a[j].x < a[i].x + a[i].w - 1; j++) if (a[j].y < a[i].y + a[i].h - 1 && a[i].y < a[j].y + a[j].h - 1) n++;
		return n; })`, &overlaps)
	if overlaps > 0 {
		t.Errorf("%d pairs of boxes overlap", overlaps)
	}
	b.press("canvas", "f")
	for _, v := range values {
		if n := b.find(v); n < 1 {
			t.Errorf("%s is not found", v)
			continue
		}
		b.press("find", "Enter")
		var chosen string
		b.eval("document.querySelector('#panel h2').textContent", &chosen)
		if got, want := b.text("#why"), why(strings.TrimPrefix(chosen, "%")); got != want {
			t.Errorf("why %s on the page:\n%sampc why:\n%s", chosen, got, want)
		}
	}
	b.quiet()
}

// Every zoo model's page draws, folds, finds and explains; so do those of ONNX files.
func TestViewInBrowser(t *testing.T) {
	b := openBrowser(t)
	type source struct {
		args   []string
		values []string
	}
	var list []source
	for _, m := range models.Names() {
		if testing.Short() && m[0] != "mlp" {
			continue
		}
		list = append(list, source{[]string{"zoo:" + m[0]}, []string{"cast", "loss", "d."}})
	}
	list = append(list, source{[]string{"zoo:mlp", "--policy", "mixed-bf16", "--micro", "2"}, []string{"relu", "bf16"}})
	exported := filepath.Join(t.TempDir(), "lenet.onnx")
	if code, _, errs := ampcRun("", "export", "zoo:lenet", exported); code != 0 {
		t.Fatal(errs)
	}
	for _, file := range []string{"../../onnx/testdata/mlp.onnx", "../../onnx/testdata/product.onnx", exported} {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		args := []string{path}
		if file != exported {
			args = append(args, "--dim", "N=8")
		}
		list = append(list, source{args, []string{"f32"}})
	}
	for _, s := range list {
		t.Run(filepath.Base(strings.Join(s.args, " ")), func(t *testing.T) {
			b.t = t
			b.open(viewFile(t, append(s.args, "--passes", "source")...))
			b.picture("graph-" + strings.NewReplacer("/", "", ":", "-", " ", "_").Replace(filepath.Base(s.args[0])))
			b.checkGraph(s.values, func(v string) string {
				code, out, errs := ampcRun("", append([]string{"why"}, append(s.args, v)...)...)
				if code != 0 {
					t.Errorf("why %s: %s", v, errs)
				}
				return out
			})
		})
	}
	b.t = t
}

// A model whose names are HTML and scripts shows them as text.
func TestViewHostileNames(t *testing.T) {
	b := openBrowser(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "bad.ir")
	if err := os.WriteFile(file, []byte(`graph @"</script><script>document.title='taken'</script>" {
  input %"<img src=x onerror=document.title='taken'>" : f32[4]
forward:
  %"</script><b id=injected>x" = relu %"<img src=x onerror=document.title='taken'>" : f32[4]
  return %"</script><b id=injected>x"
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	b.open(viewFile(t, file))
	if b.find("injected") != 1 {
		t.Error("the value is not found by its name")
	}
	b.press("find", "Enter")
	var injected bool
	b.eval("document.title === 'taken' || document.getElementById('injected') !== null || document.images.length > 0", &injected)
	if injected {
		t.Error("a name became markup")
	}
	if h := b.text("#panel h2"); !strings.Contains(h, "<b id=injected>") {
		t.Errorf("the panel shows %q", h)
	}
	b.tab("program")
	b.eval("document.title === 'taken' || document.getElementById('injected') !== null || document.images.length > 0", &injected)
	if text := b.text("#other"); injected || !strings.Contains(text, "<b id=injected>") {
		t.Errorf("the program: a name became markup: %v; %s", injected, text)
	}
}

// choose selects an option, as a reader does.
func (b *browser) choose(id, value string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("(() => { const s = document.getElementById(%q); s.value = %q; s.dispatchEvent(new Event('change')); })()", id, value), nil)
}

// Passes and policies stand side by side, with what differs marked.
func TestViewCompares(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser for each view takes seconds")
	}
	b := openBrowser(t)
	b.open(viewFile(t, "zoo:mlp", "--diff-policy", "f32"))
	b.until("document.body.dataset.shown === 'graph|policy'")
	differs := b.text("#differs")
	code, out, _ := ampcRun("", "why", "zoo:mlp", "--diff-policy", "f32", "mixed-f16")
	if code != 0 || strings.Contains(differs, "0 changed") || !strings.Contains(out, "%relu") {
		t.Fatalf("page: %s; why: %s", differs, out)
	}
	if panel := b.text("#panel"); !strings.Contains(panel, "%relu") || !strings.Contains(panel, "%fc1.w.f16") {
		t.Errorf("the list of differences lacks values: %s", panel)
	}
	b.picture("policies")
	b.choose("main", "pass:amp")
	b.choose("beside", "pass:cluster")
	b.until("document.body.dataset.shown === 'pass:amp|pass:cluster'")
	if panel := b.text("#panel"); !strings.Contains(panel, "cast %x.f16") {
		t.Errorf("before and after amp: %s", panel)
	}
	b.choose("beside", "")
	b.until("document.body.dataset.shown === 'pass:amp'")
	var hidden bool
	if b.eval("document.getElementById('pane2').hidden", &hidden); !hidden {
		t.Error("the second graph is still there")
	}
	b.quiet()
}

// tab opens a view and waits for it.
func (b *browser) tab(name string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.getElementById('tab-%s').click()", name), nil)
	b.until(fmt.Sprintf("document.body.dataset.tab === %q", name))
	b.quiet()
}

// count is how many elements a selector finds.
func (b *browser) count(selector string) int {
	b.t.Helper()
	var n int
	b.eval(fmt.Sprintf("document.querySelectorAll(%q).length", selector), &n)
	return n
}

// The panel has what other commands say of a value; the program has all steps and buffers.
func TestViewProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser for each view takes seconds")
	}
	model := []string{"zoo:mlp", "--record", "1", "--range", "x=-3..3"}
	b := openBrowser(t)
	b.window(1200, 760, "light")
	b.open(viewFile(t, append([]string{"--profile", "2"}, model...)...))
	b.find("%d.relu")
	b.press("find", "Enter")
	b.until("document.querySelector('#whynot') && document.querySelector('#whynot').textContent !== '…'")
	_, flips, _ := ampcRun("", append([]string{"why-not"}, model...)...)
	if got := b.text("#whynot"); !strings.Contains(flips, got+"\n") {
		t.Errorf("why-not on the page: %q, ampc why-not:\n%s", got, flips)
	}
	panel := b.text("#panel table")
	for _, want := range []string{"Rangerecorded: [", "Scale unit×amp.scale", "Sourcevision.go:15", "Stepgemm %d.fc1, micro: ", "Readersrelu_grad", "Writermatmul", "read, "} {
		if !strings.Contains(panel, want) {
			t.Errorf("the panel has no %q: %s", want, panel)
		}
	}
	var both string
	b.eval("block('ranges').then((r) => r['%relu'])", &both)
	if !strings.HasPrefix(both, "static: [0, 84.02]; recorded: [0, ") {
		t.Errorf("the range of relu: %q", both)
	}
	b.picture("panel")
	b.tab("program")
	var steps, buffers, unmeasured int
	b.eval("block('program').then((p) => p.steps.length)", &steps)
	b.eval("block('program').then((p) => p.buffers.length)", &buffers)
	b.eval("block('program').then((p) => p.steps.filter((s) => !s.ns).length)", &unmeasured)
	if got := b.count("#other rect"); steps < 10 || got != steps+buffers {
		t.Errorf("%d bars for %d steps and %d buffers", got, steps, buffers)
	}
	if unmeasured == steps {
		t.Error("no step has a time")
	}
	b.picture("program")
}

// A bad step shows the report of ampc doctor and the exponents of what it names.
func TestViewDoctor(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser for each view takes seconds")
	}
	b := openBrowser(t)
	bad := badStep(t)
	b.open(viewFile(t, bad))
	b.tab("doctor")
	_, report, _ := ampcRun("", "doctor", bad)
	if got := b.text("#report"); !strings.Contains(report, got) {
		t.Errorf("report on the page:\n%s\nampc doctor:\n%s", got, report)
	}
	var counted, finite int
	b.eval("block('doctor').then((d) => d.tensors.filter((t) => t.bins).flatMap((t) => t.bins.counts).reduce((a, b) => a + b, 0))", &counted)
	b.eval("block('doctor').then((d) => d.tensors.filter((t) => t.bins).map((t) => t.elements - t.nan - t.inf - t.zeros).reduce((a, b) => a + b, 0))", &finite)
	if counted == 0 || counted != finite || b.count("#other svg") < 3 {
		t.Errorf("%d elements in %d histograms, %d are finite and not 0", counted, b.count("#other svg"), finite)
	}
	b.picture("doctor")
	b.eval("document.querySelector('#other button').click()", nil)
	b.until("document.body.dataset.tab === 'graph' && document.querySelector('#why')")
	var middle bool
	b.eval(`(() => { const p = pictures[0], i = p.a.at.get(p.selected.id), r = p.canvas.parentElement.getBoundingClientRect();
		return Math.abs((i.x + i.w / 2 - p.x) * p.scale - r.width / 2) < 2 && Math.abs((i.y + i.h / 2 - p.y) * p.scale - r.height / 2) < 2; })()`, &middle)
	if !middle {
		t.Error("the node of the report is not in the middle of the graph")
	}
	b.quiet()
}
