package e2e_test

import (
	"cmp"
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
)

// casting builds a model whose casts to 16 bits the user wrote; those named in
// left are left out.
type casting struct {
	*ampc.Model
	left   []string
	weight float64 // of the loss, 0: 1
}

func (b *casting) narrow(name string, x ampc.Tensor) ampc.Tensor {
	if slices.Contains(b.left, name) {
		return x
	}
	return b.Named(name).Cast(x, ampc.F16)
}

// wide is x in f32.
func (b *casting) wide(x ampc.Tensor) ampc.Tensor { return b.Cast(x, ampc.F32) }

// writtenCasts are models in which a cast to f16 is at fault: none is finite
// with it, all are without.
var writtenCasts = map[string]func(b *casting, x ampc.Tensor) ampc.Tensor{
	"folded into an elementwise op": func(b *casting, x ampc.Tensor) ampc.Tensor {
		return b.Affine(b.wide(b.narrow("narrow", b.Affine(b.Linear("up", x, 16), 1e6, 0))), 1e-5, 0)
	},
	"folded into a product": func(b *casting, x ampc.Tensor) ampc.Tensor {
		return b.Affine(b.wide(b.narrow("narrow", b.Linear("up", b.Affine(x, 1e6, 0), 16))), 1e-5, 0)
	},
	"folded into a row that is kept": func(b *casting, x ampc.Tensor) ampc.Tensor {
		return b.Affine(b.wide(b.narrow("narrow", b.Exp(b.Affine(b.Tanh(b.Linear("up", x, 16)), 30, 0)))), 1e-12, 0)
	},
	"of a view": func(b *casting, x ampc.Tensor) ampc.Tensor {
		h := b.Transpose(b.Reshape(b.Affine(b.Linear("up", x, 16), 1e6, 0), 8, 4, 4), 0, 2, 1)
		return b.Reshape(b.Affine(b.wide(b.narrow("narrow", h)), 1e-5, 0), 8, 16)
	},
	"of a value that others read": func(b *casting, x ampc.Tensor) ampc.Tensor {
		h := b.Affine(b.Linear("up", x, 16), 1e6, 0)
		return b.Affine(b.Add(b.wide(b.narrow("narrow", h)), h), 1e-5, 0)
	},
	"what is computed from it overflows": func(b *casting, x ampc.Tensor) ampc.Tensor {
		return b.Affine(b.wide(b.Relu(b.Affine(b.narrow("narrow", b.Linear("up", x, 16)), 1e6, 0))), 1e-5, 0)
	},
	"two of one value": func(b *casting, x ampc.Tensor) ampc.Tensor {
		h := b.Affine(b.Linear("up", x, 16), 1e6, 0)
		one := b.narrow("narrow", h)
		two := b.narrow("again", h)
		return b.Affine(b.Add(b.wide(one), b.Relu(b.wide(two))), 1e-5, 0)
	},
	"one behind the other": func(b *casting, x ampc.Tensor) ampc.Tensor {
		h := b.narrow("narrow", b.Affine(b.Linear("up", x, 16), 1e6, 0))
		return b.Affine(b.wide(b.narrow("again", b.Relu(b.wide(h)))), 1e-5, 0)
	},
	"into a product": func(b *casting, x ampc.Tensor) ampc.Tensor {
		h := b.narrow("narrow", b.Affine(b.Tanh(b.Linear("up", x, 16)), 1e6, 0))
		return b.Affine(b.Linear("next", b.wide(h), 16), 1e-6, 0)
	},
	"gradients overflow": func(b *casting, x ampc.Tensor) ampc.Tensor {
		b.weight = 1e5
		return b.Affine(b.wide(b.narrow("narrow", b.Affine(b.Linear("up", x, 16), 1e-4, 0))), 1e4, 0)
	},
	"rounds to zero": func(b *casting, x ampc.Tensor) ampc.Tensor {
		tiny := b.wide(b.narrow("narrow", b.Affine(b.Sigmoid(b.Linear("up", x, 16)), 1e-9, 0)))
		return b.Affine(b.Rsqrt(tiny), 1e-5, 0)
	},
}

// openByHand compiles the model without the casts left, under a remedy's scaler.
func openByHand(t *testing.T, p ampc.Policy, build func(*casting, ampc.Tensor) ampc.Tensor, r ampc.Remedy, left ...string) (*ampc.Model, *ampc.Step) {
	t.Helper()
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Policy: p}
	if r.Scale != 0 || r.Floor != 0 {
		if c.Scaler = p.Scaler; c.Scaler == (ampc.Scaler{}) {
			c.Scaler = ampc.Dynamic()
		}
		c.Scaler.Init, c.Scaler.Floor = cmp.Or(r.Scale, c.Scaler.Init), cmp.Or(r.Floor, c.Scaler.Floor)
	}
	b := &casting{Model: ampc.New("byhand", ampc.Seed(3)), left: left}
	x, y := b.Input("x", ampc.F32, 8, 16), b.Input("y", ampc.F32, 8, 4)
	out := b.Linear("down", build(b, x), 4)
	loss := b.Affine(b.MSE(out, y), max(b.weight, 1), 0)
	c.Grads = []ampc.Tensor{b.Lookup("up.w"), b.Lookup("down.w")}
	s, err := b.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.Model, s
}

func byHandFeed() ampc.Feed {
	x, y := make([]float32, 8*16), make([]float32, 8*4)
	for i := range x {
		x[i] = float32(i*7%13)/6 - 1
	}
	for i := range y {
		y[i] = float32(i*5%11)/5 - 1
	}
	return ampc.Feed{"x": x, "y": y}
}

// The doctor names the cast that the user wrote where it is the fault, and where
// it stands. Applied, each of its remedies has the step taken, with the gradients
// of f32: none keeps in f32, or computes in bf16, what the cast narrows again.
func TestCastsByHandAreNamed(t *testing.T) {
	for name, build := range writtenCasts {
		for _, policy := range []string{"f32", "tf32", "mixed-f16", "mixed-bf16", "o1-f16", "o2-f16", "torch-f16", "torch-cpu-bf16", "manual"} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				p, err := ampc.PolicyNamed(policy)
				if err != nil {
					t.Fatal(err)
				}
				_, s := openByHand(t, p, build, ampc.Remedy{})
				if !metrics(t, run(t, s, byHandFeed())).Skipped {
					if p.Low == ampc.F16 || policy == "f32" {
						t.Fatal("the step is taken")
					}
					t.Skip("the step is taken: this policy stores none of what is computed from the cast in f16")
				}
				d := ask(t, s)
				path := filepath.Join(t.TempDir(), "bad.ampc")
				if err := s.SaveReplay(path); err != nil {
					t.Fatal(err)
				}
				if there, err := ampc.DiagnoseFile(context.Background(), path); err != nil || there.String() != d.String() {
					t.Errorf("%v: from the file\n%s\nhere\n%s", err, there, d)
				}
				named := false
				for _, r := range d.Remedies {
					named = named || r.LeaveOut != nil
					for _, c := range r.LeaveOut {
						if !strings.Contains(c, " (") || !strings.Contains(c, "diagnose_casts_test.go:") {
							t.Errorf("no place: %s", c)
						}
					}
					applyByHand(t, d, r, p, build)
				}
				if !named && d.Cause != ampc.NoFault { // else a scale helps as well
					t.Errorf("no remedy leaves the cast out:\n%s", d)
				}
			})
		}
	}
}

// applyByHand does what r says and compares the step with one in f32 without casts.
func applyByHand(t *testing.T, d *ampc.Diagnosis, r ampc.Remedy, p ampc.Policy, build func(*casting, ampc.Tensor) ampc.Tensor) {
	t.Helper()
	if r.Policy != "" {
		var err error
		if p, err = ampc.PolicyNamed(r.Policy); err != nil {
			t.Errorf("%v: %s", err, d)
			return
		}
	}
	for _, k := range r.Keep {
		p = p.Keep(k)
	}
	var left []string
	for _, c := range r.LeaveOut {
		name, _, _ := strings.Cut(c, " ")
		left = append(left, name)
	}
	m, s := openByHand(t, p, build, r, left...)
	result := run(t, s, byHandFeed())
	for metrics(t, result).Skipped {
		if next, err := s.Diagnose(context.Background()); err != nil || next.Cause != ampc.NoFault { // it searches for its scale
			t.Errorf("the doctor says\n%s\nand after %+v\n%s", d, r, next)
			return
		}
		result = run(t, s, byHandFeed())
	}
	f32, right := openByHand(t, ampc.F32Only(), build, ampc.Remedy{}, "narrow", "again")
	want := run(t, right, byHandFeed())
	off, all := 0.0, 0.0
	for _, name := range []string{"up.w", "down.w"} {
		a, b := gradOf(t, m, result, name), gradOf(t, f32, want, name)
		for i := range b {
			off, all = off+(a[i]-b[i])*(a[i]-b[i]), all+b[i]*b[i]
		}
	}
	if !(off <= all/256) {
		t.Errorf("after %+v the gradients are off by %.3g of their norm; the doctor says\n%s", r, math.Sqrt(off/all), d)
	}
}

func gradOf(t *testing.T, m *ampc.Model, r *ampc.Result, name string) []float64 {
	t.Helper()
	h, err := r.Grad(m.Lookup(name))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, h.Len())
	for i := range out {
		out[i] = h.At(i)
	}
	return out
}
