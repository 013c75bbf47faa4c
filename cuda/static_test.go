package cuda_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// What does not link this package stays static: importing the loader of
// libraries makes a program dynamic, even without cgo.
func TestOtherProgramsStayStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("links two programs; run without -short")
	}
	if runtime.GOOS != "linux" {
		t.Skip("ELF files are linux's")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool to link programs with")
	}
	for pkg, want := range map[string]bool{"ampc/examples": false, "ampc/bench": true} {
		file := filepath.Join(t.TempDir(), "program")
		c := exec.Command(tool, "build", "-o", file, pkg)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", pkg, err, out)
		}
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if dynamic != want {
			t.Errorf("%s: dynamic %t, want %t", pkg, dynamic, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
