package e2e_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"ampc"
	"ampc/lower"
)

// withCopies trains a few steps and returns the model; the weights are changed
// from outside in between, which makes their 16-bit copies stale.
func withCopies(t *testing.T, on bool, file string) *ampc.Model {
	t.Helper()
	m := ampc.New("weight-copies")
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
	loss := m.CrossEntropy(m.Linear("fc2", m.Relu(m.Linear("fc1", x, 16)), 3), y)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16(), Compile: ampc.CompileOptions{WeightCopies: on}}, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	casts := 0
	for _, s := range step.Program().Parts[lower.Prepare] {
		casts += len(s.Out)
	}
	if on != (casts == 0) {
		t.Errorf("copies %t: %d casts in prepare", on, casts)
	}
	run := func(n int) {
		for i := range n {
			feed := ampc.Feed{"x": make([]float32, 32), "y": make([]int32, 8)}
			for k := range 32 {
				feed["x"].([]float32)[k] = float32((k*7+i*13)%11)/5 - 1
			}
			for k := range 8 {
				feed["y"].([]int32)[k] = int32((k + i) % 3)
			}
			if _, err := step.Run(context.Background(), feed); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(3)
	w := make([]float32, 64)
	for i := range w {
		w[i] = float32(i%5)/10 - 0.2
	}
	if err := m.SetVariable("fc1.w", w); err != nil {
		t.Fatal(err)
	}
	run(3)
	if err := m.SaveFile(file); err != nil {
		t.Fatal(err)
	}
	run(2)
	if err := m.LoadFile(file); err != nil {
		t.Fatal(err)
	}
	run(3)
	return m
}

// Training with copies that the update writes gives the same bits as training
// with casts, also after weights were set and loaded; checkpoints of the two
// are the same.
func TestWeightCopiesChangeNoBit(t *testing.T) {
	dir := t.TempDir()
	a, b := withCopies(t, false, filepath.Join(dir, "a")), withCopies(t, true, filepath.Join(dir, "b"))
	for _, name := range a.Variables() {
		x, err := a.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x.Bytes, y.Bytes) {
			t.Errorf("%s differs", name)
		}
	}
	if err := b.LoadFile(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	for _, w := range b.Warnings() {
		t.Error(w)
	}
}
