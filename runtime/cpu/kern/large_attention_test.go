package kern

import (
	"math"
	"testing"
)

// largeAttention is an attention of random sizes: heads lie beside each other, as in the result of one product, or after each other.
func largeAttention(d dice) *Attention {
	kv := 1 + d.IntN(4)
	a := &Attention{Batch: 1 + d.IntN(3), KVHeads: kv, Heads: kv * []int{1, 1, 1, 2, 3}[d.IntN(5)], S: d.extent(400), Scale: 0.1 + 0.2*d.Float32(), Causal: d.IntN(3) > 0}
	a.T = a.S
	if d.IntN(3) == 0 {
		a.T = d.extent(700)
	}
	if d.IntN(4) > 0 { // whole panels
		a.D = 16 * (1 + d.IntN(8))
		a.DV = []int{a.D, 16 * (1 + d.IntN(8))}[d.IntN(3)/2]
	} else {
		a.D, a.DV = d.extent(150), d.extent(150)
	}
	if a.Offset = a.T - a.S; d.IntN(4) == 0 {
		a.Offset = d.IntN(2*a.S+1) - a.S
	}
	typ, apart := []Type{F32, F32, F16, BF16}[d.IntN(4)], d.IntN(2)*d.IntN(3)*16
	view := func(t Type, heads, rows, width int) View {
		if d.IntN(4) == 0 {
			return View{d.buf(t, a.Batch*heads*rows*width), [3]int{heads * rows * width, rows * width, width}}
		}
		ld := heads*width + apart
		return View{d.buf(t, a.Batch*rows*ld), [3]int{rows * ld, width, ld}}
	}
	a.Q, a.K, a.V = view(typ, a.Heads, a.S, a.D), view(typ, kv, a.T, a.D), view(typ, kv, a.T, a.DV)
	out := []Type{F32, typ}[d.IntN(2)] // y is f32, as gradients read it
	a.Y, a.DY = view(F32, a.Heads, a.S, a.DV), view(typ, a.Heads, a.S, a.DV)
	for from, to := range map[*View]*View{&a.Q: &a.GradQ, &a.K: &a.GradK, &a.V: &a.GradV} {
		*to = View{d.buf(out, from.Len()), from.Stride}
	}
	if d.IntN(3) == 0 {
		a.Mask = View{d.buf(F32, a.S*a.T), [3]int{0, 0, a.T}}
		for i := range a.S * a.T / 9 {
			a.Mask.set(9*i, float32(math.Inf(-1)))
		}
	}
	a.LSE = make([]float32, a.Batch*a.Heads*a.S)
	return a
}

// TestLargeAttention: attention of random sizes and its gradients are those by the definition, and what lies between rows stays.
func TestLargeAttention(t *testing.T) {
	onLargeCases(t, func(t *testing.T, p *Path, d dice) {
		a := largeAttention(d)
		if a.Batch*a.Heads*a.S*a.T*(a.D+a.DV) > 1<<24 { // the definition takes a second
			return
		}
		results := []*View{&a.Y, &a.GradQ, &a.GradK, &a.GradV}
		var before [4][]float64
		for k, v := range results {
			before[k] = v.Buf.wide()
		}
		m := New(p, 1+d.IntN(3))
		defer m.Close()
		m.Attention(a)
		m.AttentionGrad(a)
		y, lse, dq, dk, dv := refAttention(a)
		sizes := [...]any{a.Batch, a.Heads, a.KVHeads, a.S, a.T, a.D, a.DV, a.Causal, a.Offset, a.Q.Type, a.GradQ.Type}
		for k, want := range [][]float64{y, dq, dk, dv} {
			typ, rows := results[k].Type, a.marksOf(k)
			rms := Floats(narrowed(want)).rms()
			for i, w := range want {
				got := float64(results[k].get(i))
				switch {
				case !rows[i]:
					if got != before[k][i] {
						t.Fatalf("%v: element %d of result %d lies between rows, and was overwritten", sizes, i, k)
					}
				case !(math.Abs(got-w) <= 2e-5+1e-4*rms+1.01*halfUlp(typ, w)):
					t.Fatalf("%v: element %d of result %d is %g, want %g; rms %g", sizes, i, k, got, w, rms)
				}
			}
		}
		for i, w := range lse {
			if got := float64(a.LSE[i]); got != w && !(math.Abs(got-w) <= 1e-3) {
				t.Fatalf("%v: LSE %d is %g, want %g", sizes, i, got, w)
			}
		}
	})
}

// marksOf marks the elements of result k, of y and the gradients of q, k and v, that are not between rows.
func (a *Attention) marksOf(k int) []bool {
	v := []*View{&a.Y, &a.GradQ, &a.GradK, &a.GradV}[k]
	heads, rows := a.Heads, a.S
	if k > 1 {
		heads, rows = a.KVHeads, a.T
	}
	width := []int{a.DV, a.D, a.D, a.DV}[k]
	marks := make([]bool, v.Len())
	for b := range a.Batch {
		for h := range heads {
			for r := range rows {
				for i := range width {
					marks[b*v.Stride[0]+h*v.Stride[1]+r*v.Stride[2]+i] = true
				}
			}
		}
	}
	return marks
}

func narrowed(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}
