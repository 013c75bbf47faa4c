package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// attention in float64, with gradients by the textbook formulas.
type attentionRef struct {
	o, lse, dq, dk, dv []float64
}

// reference computes one head over rows s and columns d of q, k, v, do.
func reference(s, d int, scale float64, causal bool, q, k, v, do func(i, j int) float64) attentionRef {
	r := attentionRef{make([]float64, s*d), make([]float64, s), make([]float64, s*d), make([]float64, s*d), make([]float64, s*d)}
	for i := range s {
		n := s
		if causal {
			n = i + 1
		}
		p, sum := make([]float64, n), 0.0
		for j := range n {
			dot := 0.0
			for c := range d {
				dot += q(i, c) * k(j, c)
			}
			p[j] = math.Exp(dot * scale)
			sum += p[j]
		}
		r.lse[i] = math.Log(sum)
		dp, mean := make([]float64, n), 0.0
		for j := range n {
			p[j] /= sum
			for c := range d {
				r.o[i*d+c] += p[j] * v(j, c)
				r.dv[j*d+c] += p[j] * do(i, c)
				dp[j] += do(i, c) * v(j, c)
			}
			mean += p[j] * dp[j]
		}
		for j := range n {
			ds := p[j] * (dp[j] - mean) * scale
			for c := range d {
				r.dq[i*d+c] += ds * k(j, c)
				r.dk[j*d+c] += ds * q(i, c)
			}
		}
	}
	return r
}

// TestAttentionGraphs executes the composite graphs on a fused QKV buffer and compares them with the
// formulas.
func TestAttentionGraphs(t *testing.T) {
	const h, s, d = 2, 128, 16
	for _, causal := range []bool{false, true} {
		b := newBench(t, Options{})
		dnn := b.Dnn()
		r := rand.New(rand.NewPCG(11, 12))
		qkv, do := ptxtest.Fill(r, ptx.BFloat16, s*3*h*d, 0.7), ptxtest.Fill(r, ptx.BFloat16, s*h*d, 0.7)
		fused := []int64{3 * h * d * s, d, 3 * h * d, 1}
		plain := []int64{h * d * s, d, h * d, 1}
		a := cuda.Attention{Type: cuda.DnnBFloat16, B: 1, H: h, Sq: s, Skv: s, D: d, QStrides: fused, KStrides: fused, VStrides: fused, OStrides: plain, DOStrides: plain,
			DQStrides: fused, DKStrides: fused, DVStrides: fused,
			Scale: 0.25, Causal: causal, Version: dnn.Version()}
		in, pdo := b.put(qkv), b.put(do)
		alloc := func(n int64) cuda.Ptr { p, err := b.Alloc(n); b.ok(err); return p }
		at := func(part int) cuda.Ptr { return cuda.Ptr(2 * h * d * part) }
		o, stats := alloc(2*s*h*d), alloc(4*h*s)
		run := func(g *cuda.DnnGraph, feeds ...cuda.Ptr) {
			t.Helper()
			p, err := cuda.FirstPlan(dnn, g, cuda.DnnOptions{Deterministic: true, Workspace: 1 << 20})
			b.ok(err)
			b.ok(p.Run(feeds, alloc(p.Workspace()), b.s))
		}
		run(a.Forward(), in, in+at(1), in+at(2), o, stats)
		grads := alloc(2 * s * 3 * h * d)
		run(a.Backward(), in, in+at(1), in+at(2), o, pdo, stats, grads, grads+at(1), grads+at(2), alloc(4*h*s), alloc(4*h*s*d))
		got, gs, gg := b.get(ptx.BFloat16, s*h*d, o), b.get(ptx.Float32, h*s, stats), b.get(ptx.BFloat16, s*3*h*d, grads)
		for head := range h {
			part := func(k int) func(i, j int) float64 {
				return func(i, j int) float64 { return qkv.At(i*3*h*d + k*h*d + head*d + j) }
			}
			ref := reference(s, d, 0.25, causal, part(0), part(1), part(2), func(i, j int) float64 { return do.At(i*h*d + head*d + j) })
			for i := range s {
				closeTo(t, fmt.Sprintf("stats[%d]", i), gs.At(head*s+i), ref.lse[i], 1e-5)
				for c := range d {
					closeTo(t, fmt.Sprintf("o[%d,%d]", i, c), got.At(i*h*d+head*d+c), ref.o[i*d+c], 0.01)
					for k, want := range [][]float64{ref.dq, ref.dk, ref.dv} {
						closeTo(t, fmt.Sprintf("grad %d [%d,%d]", k, i, c), gg.At(i*3*h*d+k*h*d+head*d+c), want[i*d+c], 0.02)
					}
				}
			}
		}
	}
}

// TestConvGraphs: the three products of a convolution agree with each other: <y, x*w> is linear in
// each, so <dx, x> = <dw, w> = <dy, y>.
func TestConvGraphs(t *testing.T) {
	for _, nhwc := range []bool{false, true} {
		b := newBench(t, Options{})
		dnn := b.Dnn()
		c := cuda.Conv{Type: cuda.DnnFloat, Out: cuda.DnnFloat, NHWC: nhwc, X: []int64{2, 4, 7, 6}, W: []int64{6, 2, 3, 2}, Y: []int64{2, 6, 4, 5},
			Shape: cuda.ConvShape{Pads: []int64{1, 0}, EndPads: []int64{1, 0}, Strides: []int64{2, 1}, Dilations: []int64{1, 1}}}
		r := rand.New(rand.NewPCG(13, 14))
		draw := func(d []int64) ptxtest.Tensor { return ptxtest.Fill(r, ptx.Float32, int(count(d)), 1) }
		x, w, dy := draw(c.X), draw(c.W), draw(c.Y)
		px, pw, pdy := b.put(x), b.put(w), b.put(dy)
		result := func(kind cuda.DnnKind, n int, feeds func(p cuda.Ptr) []cuda.Ptr) ptxtest.Tensor {
			p, err := b.Alloc(int64(4 * n))
			b.ok(err)
			c.Kind = kind
			plan, err := cuda.FirstPlan(dnn, c.Graph(), cuda.DnnOptions{Workspace: 1 << 20})
			b.ok(err)
			ws, err := b.Alloc(plan.Workspace())
			b.ok(err)
			b.ok(plan.Run(feeds(p), ws, b.s))
			return b.get(ptx.Float32, n, p)
		}
		y := result(cuda.DnnConv, dy.Len(), func(p cuda.Ptr) []cuda.Ptr { return []cuda.Ptr{px, pw, p} })
		dx := result(cuda.DnnConvData, x.Len(), func(p cuda.Ptr) []cuda.Ptr { return []cuda.Ptr{p, pw, pdy} })
		dw := result(cuda.DnnConvFilter, w.Len(), func(p cuda.Ptr) []cuda.Ptr { return []cuda.Ptr{px, p, pdy} })
		dot := func(a, b ptxtest.Tensor) (v float64) {
			for i := range a.Len() {
				v += a.At(i) * b.At(i)
			}
			return v
		}
		closeTo(t, "<dx,x>", dot(dx, x), dot(dy, y), 1e-5)
		closeTo(t, "<dw,w>", dot(dw, w), dot(dy, y), 1e-5)
		if nhwc {
			continue
		}
		// One output by hand: image 1, channel 5 (second group), row 2, column 3.
		v := 0.0
		for ch := range 2 {
			for kh := range 3 {
				for kw := range 2 {
					if row := 2*2 - 1 + kh; row < 7 {
						v += x.At(((4+2+ch)*7+row)*6+3+kw) * w.At(((5*2+ch)*3+kh)*2+kw)
					}
				}
			}
		}
		closeTo(t, "y[1,5,2,3]", y.At(((6+5)*4+2)*5+3), v, 1e-5)
	}
}

func TestDnnRefuses(t *testing.T) {
	a := cuda.Attention{Type: cuda.DnnHalf, B: 1, H: 1, Sq: 8, Skv: 8, D: 12, Scale: 1}
	b := newBench(t, Options{})
	if _, err := cuda.FirstPlan(b.Dnn(), a.Forward(), cuda.DnnOptions{Workspace: 1 << 20}); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("head size 12: %v", err)
	}
	a.D, a.Type = 16, cuda.DnnFloat
	if _, err := cuda.FirstPlan(b.Dnn(), a.Forward(), cuda.DnnOptions{Workspace: 1 << 20}); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("f32: %v", err)
	}
	old, err := Open(Options{Major: 7})
	b.ok(err)
	a.Type = cuda.DnnHalf
	if _, err := cuda.FirstPlan(old.Dnn(), a.Forward(), cuda.DnnOptions{Workspace: 1 << 20}); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("sm_70: %v", err)
	}
	p, err := cuda.FirstPlan(b.Dnn(), a.Forward(), cuda.DnnOptions{Workspace: 1 << 20})
	b.ok(err)
	b.code(p.Run([]cuda.Ptr{16, 16}, 16, b.s), cuda.CodeInvalidValue, "2 tensors")
	x := b.buffer()
	b.code(p.Run([]cuda.Ptr{x, x, x, x, x}, 0, b.s), cuda.CodeInvalidValue, "workspace")
	b.code(p.Run([]cuda.Ptr{x, x + 2, x, x, x}, x, b.s), cuda.CodeInvalidValue, "multiple of 16")
	if _, err := cuda.FirstPlan(b.Dnn(), a.Backward(), cuda.DnnOptions{Workspace: 1 << 20}); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("gradients over 8 keys: %v", err)
	}
	if _, err := cuda.FirstPlan(b.Dnn(), a.Forward(), cuda.DnnOptions{}); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("no workspace: %v", err)
	}
	mixed := cuda.Conv{Type: cuda.DnnHalf, X: []int64{1, 1, 2, 2}, W: []int64{1, 1, 1, 1}, Y: []int64{1, 1, 2, 2}}.Graph()
	mixed.Nodes[0].B.Type = cuda.DnnFloat
	if _, err := cuda.FirstPlan(b.Dnn(), mixed, cuda.DnnOptions{Workspace: 1 << 20}); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("f16 images, f32 filters: %v", err)
	}
	broken := newBench(t, Options{FailGraph: 1})
	f, err := cuda.FirstPlan(broken.Dnn(), a.Forward(), cuda.DnnOptions{Workspace: 1 << 20})
	b.ok(err)
	broken.code(f.Run([]cuda.Ptr{x, x, x, x, x}, x, broken.s), cuda.CodeLaunchFailed, "injected")
}
