package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// largeGraph writes a graph of nodes in scopes of 40 and 400, most of which read two shortly before.
func largeGraph(b *testing.B, nodes int) string {
	r := rand.New(rand.NewPCG(1, 1))
	var text strings.Builder
	text.WriteString("graph @large {\n  input %v0 : f32[64]\nforward:\n")
	names := []string{"v0"}
	for i := range nodes {
		name := fmt.Sprintf("l%d.b%d.n%d", i/400, i/40%10, i)
		near := func() string { return names[max(0, len(names)-1-int(r.ExpFloat64()*8))] }
		fmt.Fprintf(&text, "  %%%s = add %%%s, %%%s\n", name, near(), near())
		names = append(names, name)
	}
	fmt.Fprintf(&text, "  return %%%s\n}\n", names[nodes])
	file := filepath.Join(b.TempDir(), "large.ir")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	return file
}

// spent is processor time so far, in milliseconds: of the page's script, and of all processes of the
// browser, whose rest is drawing what the script asked for and showing it.
func (b *browser) spent() (script, all float64) {
	var page struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	b.call("Performance.getMetrics", nil, &page)
	for _, m := range page.Metrics {
		if m.Name == "ScriptDuration" {
			script = 1000 * m.Value
		}
	}
	var browser struct{ ProcessInfo []struct{ CPUTime float64 } }
	session := b.session
	b.session = "" // of the browser as a whole
	b.call("SystemInfo.getProcessInfo", nil, &browser)
	b.session = session
	for _, p := range browser.ProcessInfo {
		all += 1000 * p.CPUTime
	}
	return script, all
}

// panned pans a graph in a circle, by 80 pixels a frame, and returns frames per second.
func (b *browser) panned(frames int) (fps float64) {
	b.eval(fmt.Sprintf(`new Promise((done) => { const c = document.getElementById('canvas'), from = performance.now(); let n = 0;
		const next = () => { c.dispatchEvent(new KeyboardEvent('keydown', {key: ['ArrowRight', 'ArrowDown', 'ArrowLeft', 'ArrowUp'][(n >> 2) %% 4], shiftKey: true}));
			n++ < %d ? requestAnimationFrame(next) : done(1000 * n / (performance.now() - from)); };
		requestAnimationFrame(next); })`, frames), &fps)
	return fps
}

// BenchmarkViewLarge is a graph of 10,000 nodes: the time to compile it and to write its file, the
// bytes of the file, the time from opening it to the first picture, and of a pan the frames per
// second (a browser makes 60 at most) and the processor time of a frame, that of the script and of
// the whole browser. The graph is folded, unfolded and in sight as a whole, and unfolded with names
// that can be read.
func BenchmarkViewLarge(b *testing.B) {
	const frames = 120
	file := largeGraph(b, 10_000)
	page := openBrowser(b)
	page.call("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	for b.Loop() {
		from := time.Now()
		address := viewFile(b, file, "--policy", "f32", "--passes", "order", "--disable", "canon")
		b.ReportMetric(time.Since(from).Seconds(), "write-s")
		info, err := os.Stat(strings.TrimPrefix(address, "file://"))
		if err != nil {
			b.Fatal(err)
		}
		page.open(address)
		b.ReportMetric(float64(info.Size()), "bytes")
		var ready float64
		page.until("document.body.dataset.after")
		page.eval("Number(document.body.dataset.after)", &ready)
		b.ReportMetric(ready, "first-ms")
		for _, state := range []struct {
			name string
			get  func()
		}{
			{"folded", func() { page.press("canvas", "f") }},
			{"unfolded", func() { page.press("canvas", "u") }},
			{"near", func() { page.find("n5000"); page.press("find", "Enter") }},
		} {
			state.get()
			page.panned(5) // the first draws everything
			script, all := page.spent()
			fps := page.panned(frames)
			nowScript, nowAll := page.spent()
			b.ReportMetric(fps, state.name+"-fps")
			b.ReportMetric((nowScript-script)/frames, state.name+"-script-ms")
			b.ReportMetric((nowAll-all)/frames, state.name+"-all-ms")
		}
	}
}
