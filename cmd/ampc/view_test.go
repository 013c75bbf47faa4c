package main

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc/models"
)

// badStep saves a step whose loss scale is too high, and returns its file.
func badStep(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bad.ampc")
	if code, _, errs := ampcRun("", "doctor", "zoo:mlp?batch=4&hidden=32", "--scaler", "16777216", "--save", path); code != 0 {
		t.Fatal(errs)
	}
	return path
}

// shallow are models of the zoo with fewer layers of the same kinds. TestViewInBrowser has pages of whole ones.
var shallow = map[string]string{"gpt2": "gpt2?layers=2", "resnet50": "resnet50?blocks3=1&blocks4=1", "convlstm": "convlstm?seq=2&ahead=2"}

// Every zoo model, a compiled graph and a saved step become a page.
func TestViewFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	var specs []string
	for _, m := range models.Names() {
		if testing.Short() && (m[0] == "gpt2" || m[0] == "resnet50") {
			continue
		}
		specs = append(specs, "zoo:"+cmp.Or(shallow[m[0]], m[0]))
	}
	_, text, _ := ampcRun("", "dump", "zoo:mlp")
	if err := os.WriteFile("step.ir", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, spec := range append(specs, "step.ir", badStep(t)) {
		code, out, errs := ampcRun("", "view", spec, "-o", "page.html")
		if code != 0 || out != "" || errs != "" {
			t.Fatalf("%s: code %d, %q, %q", spec, code, out, errs)
		}
		page, err := os.ReadFile("page.html")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), `id="block-graph"`) || !strings.HasSuffix(string(page), "</html>\n") {
			t.Errorf("%s: no page", spec)
		}
	}
	for args, want := range map[string]string{
		"view zoo:mlp -o nowhere/a.html":    "nowhere/a.html: no such file or directory",
		"view none.ampc":                    "none.ampc: no such file or directory",
		"view zoo:mlp --listen 127.0.0.1:x": "127.0.0.1:x",
	} {
		code, _, errs := ampcRun("", strings.Fields(args)...)
		if code == 0 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: code %d, %q", args, code, errs)
		}
	}
}

// Without -o the page is served on the loopback address until the command is interrupted.
func TestViewServes(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	r, w := io.Pipe()
	done := make(chan int)
	go func() { done <- run(ctx, []string{"view", "zoo:mlp"}, strings.NewReader(""), w, io.Discard) }()
	line := make([]byte, 200)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(string(line[:n]))
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("address %s", address)
	}
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), `id="block-graph"`) {
		t.Errorf("%s: %v, %d bytes, %v", address, resp.Status, len(page), err)
	}
	cancel(errInterrupted)
	if code := <-done; code != exitInterrupted {
		t.Errorf("code %d", code)
	}
}
