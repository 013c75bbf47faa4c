package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRanksBesideOneProcess: bench ranks measures both and prints their rates. A model without
// tokens is one line.
func TestRanksBesideOneProcess(t *testing.T) {
	const spec = "gpt?layers=1&dim=16&heads=2&seq=8&vocab=24&batch=4"
	var out bytes.Buffer
	if err := run([]string{"ranks", "-worker", "-steps", "1", spec}, &out); err != nil || !regexp.MustCompile(`"tokens_per_second":[1-9]`).Match(out.Bytes()) {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := run([]string{"ranks", "-worker", "mlp?batch=4"}, &out); err == nil || !strings.Contains(err.Error(), "want a language model") {
		t.Error(err)
	}
	if _, err := exec.LookPath("mpirun.openmpi"); err != nil {
		t.Skip("mpirun.openmpi is not installed")
	}
	if testing.Short() {
		t.Skip("builds the command and starts ranks; run without -short")
	}
	exe := filepath.Join(t.TempDir(), "bench")
	if built, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, built)
	}
	said, err := exec.Command(exe, "ranks", "-hidden", "-rounds", "1", "-steps", "1", "-beside", exe+" ranks -worker "+spec, spec).CombinedOutput()
	want := regexp.MustCompile(`(?m)^ *one process, 2 threads +[0-9.]+ +100.0% .*\s+2 ranks, MPI .* +[0-9.]+ +[0-9.]+% .* +-?[0-9]+% +[0-9.]+ kB *$\s+one process, 2 threads +[0-9.]+ `)
	if err != nil || !want.Match(said) {
		t.Errorf("%v\n%s", err, said)
	}
}
