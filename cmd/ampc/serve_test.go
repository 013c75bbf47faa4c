package main

import (
	"context"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A run's page shows its numbers while it goes on, and afterwards from its log.
func TestTrainServes(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser and a training run take seconds")
	}
	b := openBrowser(t)
	out := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancelCause(context.Background())
	r, w := io.Pipe()
	done := make(chan int)
	go func() {
		done <- run(ctx, append(strings.Fields("train "+tiny+" --steps 1000000 --quiet --serve :0"), "--text", rhyme(t), "--out", out), strings.NewReader(""), w, io.Discard)
	}()
	text, address := make([]byte, 4096), ""
	for seen := ""; address == ""; {
		n, err := r.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		seen += string(text[:n])
		if _, rest, found := strings.Cut(seen, "watch it: "); found {
			address, _, _ = strings.Cut(rest, "\n")
		}
	}
	go io.Copy(io.Discard, r)
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Errorf("address %q", address)
	}
	b.open(address)
	b.until("Number(document.body.dataset.points) >= 20")
	b.until("document.querySelector('#now').textContent.includes('gradient norm')")
	for _, row := range []string{"loss", "loss scale", "gradient norm", "tokens/s", "skipped", "memory", "nearest to overflow", "nearest to underflow"} {
		if !strings.Contains(b.text("#now"), row) {
			t.Errorf("no %s in %q", row, b.text("#now"))
		}
	}
	if n := b.count("#other svg"); n < 5 {
		t.Errorf("%d curves", n)
	}
	b.quiet()
	b.picture("training")
	cancel(errInterrupted)
	if code := <-done; code != exitInterrupted {
		t.Errorf("code %d", code)
	}
	b.until("document.querySelector('#now caption').textContent === 'ended'")
	b.open(viewFile(t, out))
	lines := strings.Count(string(read(t, out, curvesLines)), "\n")
	var points int
	b.eval("block('training').then((x) => x.points.length)", &points)
	if points != lines || lines < 20 {
		t.Errorf("%d points of %s lines", points, strconv.Itoa(lines))
	}
	var watched int
	b.eval("block('training').then((x) => x.points.filter((p) => p.range_high > 0 && p.range_high_value && p.range_low > 1 && p.range_low_value).length)", &watched)
	if want := (lines + rangeEvery - 1) / rangeEvery; watched != want || !strings.Contains(b.text("#now"), "nearest to overflow%") {
		t.Errorf("%d of %d steps have worst ranges, want %d; %s", watched, lines, want, b.text("#now"))
	}
	b.tab("graph")
}
