package arch_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/safetensors"
	"ampc/internal/trial"
)

// buildOutside builds a stranger's program of less than 80 lines in a module of its own.
func buildOutside(t testing.TB, name string) (program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs a program: skipped by -short")
	}
	src, err := os.ReadFile(filepath.Join("internal/arch/testdata/outside", name, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(src), "\n"); n >= 80 {
		t.Errorf("the program has %d lines", n)
	}
	dir := outside(t)
	trial.WriteFile(t, filepath.Join(dir, "main.go"), string(src))
	program = filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return program
}

// runProgram runs a built program and returns what it printed to its standard output.
func runProgram(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, text, errs.String())
	}
	return string(text)
}

// picturesOf fills a folder with n images, 20 by 24, under noise: bright where bright says.
func picturesOf(t *testing.T, dir string, n int, bright func(x, y int) bool) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, uint64(len(dir))))
	for i := range n {
		m := image.NewNRGBA(image.Rect(0, 0, 20, 24))
		for y := range 24 {
			for x := range 20 {
				v := uint8(r.IntN(80))
				if bright(x, y) {
					v += 150
				}
				m.SetNRGBA(x, y, color.NRGBA{v, v / 2, 255 - v, 255})
			}
		}
		var b bytes.Buffer
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.png", i)), b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// A classifier of a folder of images, one of which is damaged, learns rows from columns;
// begun with fewer epochs, it continues.
func TestOutsideFolder(t *testing.T) {
	program := buildOutside(t, "folder")
	dir, out := t.TempDir(), t.TempDir()
	picturesOf(t, filepath.Join(dir, "columns"), 40, func(x, y int) bool { return x/4%2 == 0 })
	picturesOf(t, filepath.Join(dir, "rows"), 40, func(x, y int) bool { return y/4%2 == 0 })
	trial.WriteFile(t, filepath.Join(dir, "rows", "bad.png"), "not an image")
	if got := runProgram(t, program, dir, out, "2"); !strings.Contains(got, `10 steps, classes ["columns" "rows"]`) {
		t.Errorf("it printed %s", got)
	}
	got := runProgram(t, program, dir, out, "6")
	if !strings.Contains(got, "resumed after step 10") || !strings.HasSuffix(got, "accuracy 1.00\n") {
		t.Errorf("it printed %s", got)
	}
	for _, name := range []string{"last.safetensors", "best.safetensors", "log.csv"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
}

// A GAN over a folder of images that are bright on the left draws such.
func TestOutsideGAN(t *testing.T) {
	program := buildOutside(t, "gan")
	dir := t.TempDir()
	picturesOf(t, filepath.Join(dir, "left"), 48, func(x, y int) bool { return x < 10 })
	got := runProgram(t, program, dir, "150")
	var loss, left, right float64
	if _, err := fmt.Sscanf(got, "loss %f, left %f, right %f", &loss, &left, &right); err != nil || left-right < 0.2 {
		t.Errorf("it printed %s (%v)", got, err)
	}
}

// An optimizer that ampc does not have learns, and its states are in the checkpoint.
func TestOutsideOptimizer(t *testing.T) {
	program := buildOutside(t, "optimizer")
	out := filepath.Join(t.TempDir(), "out.safetensors")
	got := runProgram(t, program, "300", out)
	var loss, scale float64
	if _, err := fmt.Sscanf(got, "loss %f scale %f", &loss, &scale); err != nil || loss > 0.02 || scale != 65536 {
		t.Errorf("it printed %s (%v)", got, err)
	}
	f, err := safetensors.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	states := 0
	for _, info := range f.Tensors {
		if strings.Contains(info.Name, "amsgrad") {
			states++
		}
	}
	if states != 3*4 {
		t.Errorf("%d states of 4 parameters are saved: %v", states, f.Tensors)
	}
}
