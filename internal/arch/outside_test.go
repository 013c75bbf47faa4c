package arch_test

import (
	"ampc/internal/trial"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// outside makes a module of a stranger's, who uses this one.
func outside(t testing.TB) (dir string) {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(mod), "module ampc", "module outside", 1)
	text += fmt.Sprintf("\nrequire ampc v0.0.0\nreplace ampc => %s\n", root)
	trial.WriteFile(t, filepath.Join(dir, "go.mod"), text)
	trial.WriteFile(t, filepath.Join(dir, "go.sum"), string(sum))
	return dir
}

// goRun runs the program in dir and returns what it printed.
func goRun(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("go", "run", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
