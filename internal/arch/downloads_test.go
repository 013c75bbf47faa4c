package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// modulesOf lists the modules that packages link, in dir.
func modulesOf(t *testing.T, dir string, env []string, packages ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, packages...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, wrong.String())
	}
	mods := strings.Fields(string(out))
	slices.Sort(mods)
	return slices.Compact(mods)
}

// Only the bridges link Gorgonia, and the core links next to nothing.
func TestLinkedModules(t *testing.T) {
	core := []string{"ampc", "github.com/x448/float16"}
	if got := modulesOf(t, ".", nil, ".", "./models"); !slices.Equal(got, core) {
		t.Errorf("the core links %v, want %v", got, core)
	}
	for _, m := range modulesOf(t, ".", nil, "./cmd/...", "./examples/...") {
		if strings.HasPrefix(m, "gorgonia.org/") {
			t.Errorf("the command line links %s", m)
		}
	}
}

// A program for the CPU alone links nothing of other targets.
func TestCPUProgramsLinkNoOtherTarget(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".", "./models").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, "ampc/lower") {
		t.Fatalf("go list -deps names no ampc/lower: %v", linked)
	}
	for _, p := range []string{"ampc/ptx", "ampc/lower/sm", "ampc/cuda", "ampc/runtime/gpu"} {
		if slices.Contains(linked, p) {
			t.Errorf("the core links %s", p)
		}
	}
}

// A program of another owner that imports the core is built where no other module
// than float16 can be had: what the rest of this one requires is not looked at.
func TestCoreDownloads(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	proxy, half := t.TempDir(), "github.com/x448/float16"
	have := os.DirFS(filepath.Join(strings.TrimSpace(string(cache)), "cache/download", half))
	if err := os.CopyFS(filepath.Join(proxy, half), have); err != nil {
		t.Skipf("no copy of %s to serve: %v", half, err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module user\n\ngo 1.26.5\n\nrequire ampc v0.0.0\n\nreplace ampc => " + here + "\n",
		"main.go": "package main\n\nimport _ \"ampc\"\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"GOPROXY=file://" + proxy, "GOSUMDB=off", "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off"}
	if got, want := modulesOf(t, dir, env, "."), []string{"ampc", half, "user"}; !slices.Equal(got, want) {
		t.Errorf("a user's program links %v, want %v", got, want)
	}
}
