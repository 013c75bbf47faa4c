//go:build linux && (amd64 || arm64) && !nompi

package mpi_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// trainer is a program that runs one step on several ranks.
const trainer = `package main

import (
	"context"
	"fmt"
	"os"

	"ampc"
	"ampc/mpi"
	"ampc/runtime/cpu"
)

func main() {
	if err := train(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("trained")
}

func train() error {
	w, err := mpi.Open(mpi.Options{})
	if err != nil {
		return err
	}
	b, err := cpu.Open(1)
	if err != nil {
		return err
	}
	m := ampc.New("m", ampc.On(b))
	y := m.Linear("fc", m.Input("x", ampc.F32, 2, 3), 2)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Parallel: ampc.DataParallel(w)}, ampc.Loss{Value: m.ReduceMean(m.Mul(y, y))})
	if err != nil {
		return err
	}
	if _, err := step.Run(context.Background(), ampc.Feed{"x": make([]float32, 6)}); err != nil {
		return err
	}
	return w.Close()
}
`

// TestVersionsDiffer: a rank whose program is built from another version of ampc is named before the
// first step. Ranks of one version train.
func TestVersionsDiffer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs; run without -short")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var programs []string
	for _, version := range []string{"v1.0.0", "v1.0.1"} {
		from := filepath.Join(dir, version)
		mod := fmt.Sprintf("require ampc %s\n\nreplace ampc => %s\n", version, root)
		files := map[string]string{"main.go": trainer, "go.mod": strings.Replace(string(own), "module ampc", "module trainer", 1) + mod, "go.sum": string(sums)}
		if err := os.Mkdir(from, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		exe := filepath.Join(from, "trainer")
		build := exec.Command("go", "build", "-mod=mod", "-o", exe, ".")
		build.Dir, build.Env = from, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		programs = append(programs, exe)
	}
	const want = "run: rank 1 has compiled another step than rank 0: give all ranks the same model, policy, optimizer and version of the program"
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			if _, err := exec.LookPath(f.start[0]); err != nil {
				t.Skipf("%s is not installed", f.start[0])
			}
			start := func(second string) (string, error) {
				args := append(append([]string{}, f.start[1:]...), "1", programs[0], ":", "-n", "1", second)
				out, err := exec.Command(f.start[0], args...).CombinedOutput()
				return string(out), err
			}
			if out, err := start(programs[0]); err != nil || strings.Count(out, "trained") != 2 {
				t.Errorf("ranks of one version: %v\n%s", err, out)
			}
			if out, err := start(programs[1]); err == nil || !strings.Contains(out, want) {
				t.Errorf("ranks of two versions: %v\n%s\nwant %s", err, out, want)
			}
		})
	}
}
