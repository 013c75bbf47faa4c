package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs one of bench/gpu's and gives what it prints and its exit status.
func script(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to run the scripts with")
	}
	c := exec.Command(sh, args...)
	c.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	b, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(b), c.ProcessState.ExitCode()
}

func TestScriptsParse(t *testing.T) {
	for _, name := range []string{"gpu/build.sh", "gpu/run.sh", "cpu/run.sh"} {
		if out, code := script(t, "-n", name); code != 0 {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// The folder that is carried to a GPU machine is built and used, on the
// simulator: what passes, what is not run and what fails each say so.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("building the programs that are carried takes a while; run without -short")
	}
	dir, out := filepath.Join(t.TempDir(), "carried"), filepath.Join(t.TempDir(), "out")
	if text, code := script(t, "gpu/build.sh", dir); code != 0 {
		t.Fatal(text)
	}
	run := filepath.Join(dir, "run.sh")
	text, code := script(t, run, "--device", "sim:sm_90", out, "probe", "bandwidth", "gemm", "attention", "replay", "mlp:f32", "mlp:bf16", "memcheck", "table")
	if code != 0 || !strings.Contains(text, "ALL PASSED") {
		t.Errorf("exit status %d:\n%s", code, text)
	}
	summary := read(t, filepath.Join(out, "summary.txt"))
	for _, want := range []string{"probe: ok\n", "bandwidth: ok\n", "gemm: ok\n", "attention: ok\n", "replay: ok\n", "mlp:bf16 ampc: ok\n", "memcheck: not run: needs a GPU\n", "table: ok\n"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the summary lacks %q:\n%s", want, summary)
		}
	}
	if table := read(t, filepath.Join(out, "table.md")); strings.Count(table, "| mlp?") < 2 {
		t.Errorf("want a row for each precision:\n%s", table)
	}
	if err := os.Remove(filepath.Join(dir, "gputest")); err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]string{"replay": "replay: FAILED: exit status 127", "gpt2:f8": "no precision in gpt2:f8", "all": "no part all"} {
		if text, code := script(t, run, "--device", "sim:sm_90", out, part); code != 1 || !strings.Contains(text, want) || !strings.Contains(text, "SOMETHING FAILED") {
			t.Errorf("part %s: exit status %d, want 1 and %q:\n%s", part, code, want, text)
		}
	}
	// next continues where an earlier call ended, and begins nothing that it has no time for.
	if text, code := script(t, run, "--device", "sim:sm_90", "--seconds", "10", out); code != 0 || !strings.Contains(text, "no time left; next: answers") {
		t.Errorf("exit status %d without time:\n%s", code, text)
	}
	if text, code := script(t, run, "--device", "tpu", out); code != 2 || !strings.Contains(text, "want cuda:0 or sim:sm_90") {
		t.Errorf("exit status %d: %s", code, text)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
