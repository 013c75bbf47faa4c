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

// A module outside this one builds and runs against the API.
func TestOutsideModule(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module: skipped by -short")
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
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
	trial.WriteFile(t, filepath.Join(dir, "main.go"), `package main

import (
	"context"
	"fmt"
	"log"

	"ampc"
)

func main() {
	m := ampc.New("outside")
	x, y := m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2)
	loss := m.CrossEntropy(m.Linear("fc", x, 2), y)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()}, ampc.Loss{Value: loss})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	r, err := step.Run(context.Background(), ampc.Feed{"x": []float32{1, 2, 3, 4, 5, 6}, "y": []int32{0, 1}})
	if err != nil {
		log.Fatal(err)
	}
	got, err := r.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Loss > 0, got.Scale)
}
`)
	if got := goRun(t, dir); got != "true 65536\n" {
		t.Errorf("the program printed %q", got)
	}
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
