package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// TestOrder runs all of run.sh as on a GPU, with programs that note how they are called: what matters most
// comes first, in the order of the project's plan for a machine that is lent for a short time.
func TestOrder(t *testing.T) {
	dir, out, calls := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "calls")
	const note = "#!/bin/sh\necho \"$(basename \"$0\") $*\" >>\"$CALLS\"\n"
	stubs := map[string]string{"gputest": "", "suite": "", "ampc": "", "python": "", "compute-sanitizer": "",
		"bench": "case $1 in start) : >\"$3\" ;; train) shift; while [ \"$1\" != --into ]; do shift; done; echo {} >>\"$2\" ;; esac\n"}
	for name, text := range stubs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(note+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte(read(t, "gpu/run.sh")), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CALLS", calls)
	t.Setenv("AMPC_PYTHON", filepath.Join(dir, "python"))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if text, code := script(t, filepath.Join(dir, "run.sh"), out); code != 0 {
		t.Fatalf("exit status %d:\n%s", code, text)
	}
	rest := read(t, calls)
	for _, want := range []string{
		"ampc devices", "TestProbe", "TestAnswers", "TestFlavours", "TestGemmSpeed", "TestAttentionSpeed", "TestCopy", "TestKernels", "suite -test.v -test.timeout 195s -test.run TestLibraries",
		"bench train * --device cuda:0 --precision bf16", "bench train * --device cuda:0/noaux --precision bf16", "bench train * --device cuda:0/vary --precision bf16",
		"torch/train.py * --precision bf16 --mode eager", "torch/train.py * --precision bf16 --mode compile", "ampc bench zoo:gpt2* --profile", "ampc bench zoo:gpt2* --profile",
		"bench train *resnet50* --device cuda:0 --precision bf16", "bench train *resnet50* --device cuda:0/noaux --precision bf16",
		"torch/train.py *resnet50* --precision bf16 --mode eager", "torch/train.py *resnet50* --precision bf16 --mode compile", "ampc bench zoo:resnet50* --profile", "ampc bench zoo:resnet50* --profile",
		"bench train *gpt2* --device cuda:0 --precision f16", "bench train *resnet50* --device cuda:0 --precision f16", "--tool memcheck", "TestBandwidth",
	} {
		pattern := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(want), `\*`, `[^\n]*`))
		at := pattern.FindStringIndex(rest)
		if at == nil {
			t.Fatalf("%q is not called, or not after what is before it; then come\n%s", want, rest)
		}
		rest = rest[at[1]:]
	}
	finished := strings.Fields(read(t, filepath.Join(out, "finished.txt")))
	order := regexp.MustCompile(`(?s)\norder="(.*?)"`).FindStringSubmatch(read(t, "gpu/run.sh"))
	if got := strings.Fields(order[1]); !slices.Equal(got, finished) {
		t.Errorf("finished %v of %v", finished, got)
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
