package kern

import (
	"math"
	"slices"
	"testing"
)

func (d dice) view(t Type, batch, heads, rows, width int) View {
	// [batch, rows, heads, width], as a projection leaves it
	return View{d.buf(t, batch*heads*rows*width), [3]int{rows * heads * width, width, heads * width}}
}

func (v *View) elem(b, h, r, i int) float64 {
	return float64(v.get(b*v.Stride[0] + h*v.Stride[1] + r*v.Stride[2] + i))
}

// refProbs is one query's probabilities and their LSE in float64.
func refProbs(a *Attention, b, h, q int) ([]float64, float64) {
	p, kv := make([]float64, a.T), h*a.KVHeads/a.Heads
	top, sum := math.Inf(-1), 0.0
	for k := range p {
		for i := range a.D {
			p[k] += a.Q.elem(b, h, q, i) * a.K.elem(b, kv, k, i)
		}
		p[k] *= float64(a.Scale)
		if !a.Mask.absent() {
			p[k] += a.Mask.elem(b, h, q, k)
		}
		if a.Causal && k > q+a.Offset {
			p[k] = math.Inf(-1)
		}
		top = max(top, p[k])
	}
	for k := range p {
		if p[k] = math.Exp(p[k] - top); math.IsInf(top, -1) {
			p[k] = 0
		}
		sum += p[k]
	}
	for k := range p {
		if sum > 0 {
			p[k] /= sum
		}
	}
	return p, top + math.Log(sum)
}

// refAttention is y, LSE and the three gradients by the definition, indexed like the views.
func refAttention(a *Attention) (y, lse, dq, dk, dv []float64) {
	y, dq = make([]float64, a.Y.Len()), make([]float64, a.Q.Len())
	dk, dv = make([]float64, a.K.Len()), make([]float64, a.V.Len())
	at := func(v *View, b, h, r, i int) int { return b*v.Stride[0] + h*v.Stride[1] + r*v.Stride[2] + i }
	for b := range a.Batch {
		for h := range a.Heads {
			kv := h * a.KVHeads / a.Heads
			for q := range a.S {
				p, sum := refProbs(a, b, h, q)
				lse = append(lse, sum)
				dp, dot := make([]float64, a.T), 0.0
				for k := range a.T {
					for i := range a.DV {
						y[at(&a.Y, b, h, q, i)] += p[k] * a.V.elem(b, kv, k, i)
						dp[k] += a.DY.elem(b, h, q, i) * a.V.elem(b, kv, k, i)
						dv[at(&a.V, b, kv, k, i)] += p[k] * a.DY.elem(b, h, q, i)
					}
					dot += p[k] * dp[k]
				}
				for k := range a.T {
					ds := p[k] * (dp[k] - dot) * float64(a.Scale)
					for i := range a.D {
						dq[at(&a.Q, b, h, q, i)] += ds * a.K.elem(b, kv, k, i)
						dk[at(&a.K, b, kv, k, i)] += ds * a.Q.elem(b, h, q, i)
					}
				}
			}
		}
	}
	return y, lse, dq, dk, dv
}

func TestAttention(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(8)
		for round := range rounds(18) {
			kv := 1 + d.IntN(2)
			a := &Attention{Batch: 1 + d.IntN(2), KVHeads: kv, Heads: kv * (1 + d.IntN(2)), S: 1 + d.IntN(80), T: 1 + d.IntN(100),
				D: 1 + d.IntN(20), DV: 1 + d.IntN(20), Scale: 0.3, Causal: round%2 == 0, Offset: d.IntN(5) - 2}
			switch round {
			case 0: // keys in blocks
				a.S, a.T, a.Offset = 70, 600, 400
			case 1: // rows wider than a panel
				a.Batch, a.S, a.D, a.DV = 1, 150, 70, 40
			case 2: // queries in blocks, the first of which see no key
				a.Batch, a.Heads, a.S, a.T, a.D, a.DV, a.Offset = 1, kv, 270, 170, 33, 16, -90
			case 4, 6: // the same, and results are computed as rows
				a.Batch, a.Heads, a.S, a.T, a.D, a.DV, a.Offset = 1, kv, 200, 170, 64, 32, -37
			}
			typ := Type(round % 3)
			if round%6 == 5 { // widths that tile registers take
				a.S, a.T, a.D, a.DV = 70+d.IntN(80), 100+d.IntN(100), 32*(1+d.IntN(2)), 32*(1+d.IntN(2))
				a.Causal, a.Offset = round%4 == 1, a.T-a.S
			}
			a.Q, a.K, a.V = d.view(typ, a.Batch, a.Heads, a.S, a.D), d.view(typ, a.Batch, kv, a.T, a.D), d.view(typ, a.Batch, kv, a.T, a.DV)
			a.Y, a.DY = d.view(F32, a.Batch, a.Heads, a.S, a.DV), d.view(typ, a.Batch, a.Heads, a.S, a.DV)
			a.GradQ, a.GradK, a.GradV = a.Q, a.K, a.V
			for _, g := range []*View{&a.GradQ, &a.GradK, &a.GradV} {
				g.Buf = zeros(F32, g.Len())
			}
			if round%4 < 2 {
				a.Mask = View{d.buf(F32, a.S*a.T), [3]int{0, 0, a.T}}
				a.Mask.set(0, float32(math.Inf(-1)))
			}
			a.LSE = make([]float32, a.Batch*a.Heads*a.S)
			y, lse, dq, dk, dv := refAttention(a)
			m.Attention(a)
			m.AttentionGrad(a)
			for _, e := range []struct {
				what string
				got  Buf
				want []float64
			}{{"y", a.Y.Buf, y}, {"lse", Floats(a.LSE), lse}, {"dq", a.GradQ.Buf, dq}, {"dk", a.GradK.Buf, dk}, {"dv", a.GradV.Buf, dv}} {
				for i, want := range e.want {
					if !near(t, e.what, F32, i, e.got.get(i), want, 2e-5) {
						t.Fatalf("%+v", [...]any{a.Batch, a.Heads, a.KVHeads, a.S, a.T, a.D, a.DV, a.Causal, a.Offset, typ})
					}
				}
			}
		}
	})
}

// TestAttentionVNNI: rows with a subnormal element are not multiplied in the VNNI layout, whose instruction takes it for zero.
func TestAttentionVNNI(t *testing.T) {
	for _, p := range tested() {
		if p.vnni == nil {
			continue
		}
		m := New(p, 1)
		defer m.Close()
		d := newDice(9)
		a := &Attention{Batch: 1, Heads: 2, KVHeads: 2, S: 70, T: 70, D: 96, DV: 96, Q: d.view(BF16, 1, 2, 70, 96), K: d.view(BF16, 1, 2, 70, 96)}
		x := &attnHead{t: m.attention(a), w: m.worker[0], p: p, mem: &m.worker[0].attn, head: 1}
		usesVNNI := func() bool { return x.usesVNNI(&a.Q, 0, 70, &a.K, 1, 0, 70, 96) }
		if !usesVNNI() {
			t.Errorf("%s: no VNNI layout for bf16", p.Name())
		}
		for _, v := range []*View{&a.Q, &a.K} {
			last := v.Len() - 1
			old := v.get(last)
			v.set(last, 0x1p-130)
			if usesVNNI() {
				t.Errorf("%s: VNNI layout although one element is subnormal", p.Name())
			}
			v.set(last, old)
			v.set(0, 0x1p-130) // of the other head
			for _, end := range []float32{0x1p-130, float32(math.Inf(1)), float32(math.NaN())} {
				v.set(last, end)
				if x.usesTiles(v, 1, 0, 70, 96) {
					t.Errorf("%s: tiles although one element is %g", p.Name(), end)
				}
			}
			if v.set(last, old); x.usesTiles(v, 1, 0, 70, 96) != (p.amx != nil) {
				t.Errorf("%s: tiles %t", p.Name(), p.amx == nil)
			}
		}
		if !usesVNNI() {
			t.Errorf("%s: no VNNI layout because of another head", p.Name())
		}
	}
}

// TestAttentionDivided: results and gradients have the same bits whether tasks are heads, or large or small blocks of keys and of
// queries, also beside elements that are not finite and subnormal ones.
func TestAttentionDivided(t *testing.T) {
	for _, p := range tested() {
		one, machines := New(p, 1), []*Machine{New(p, 2), New(p, 24), New(p, 100)}
		d, apart, some, smaller := newDice(14), 0, 0, [3]int{}
		for round := range rounds(8) {
			kv := 3 - round%2
			a := &Attention{Batch: 1, KVHeads: kv, Heads: kv * (1 + round/2%2), S: 200 + d.IntN(200), T: 300 + d.IntN(200), D: 32, DV: 64, Scale: 0.3, Causal: round%4 < 3}
			a.Offset = a.T - a.S
			typ := Type(round % 3)
			a.Q, a.K, a.V = d.view(typ, 1, a.Heads, a.S, a.D), d.view(typ, 1, kv, a.T, a.D), d.view(typ, 1, kv, a.T, a.DV)
			a.Y, a.DY = d.view(F32, 1, a.Heads, a.S, a.DV), d.view(typ, 1, a.Heads, a.S, a.DV)
			a.GradQ, a.GradK, a.GradV = a.Q, a.K, a.V
			a.LSE = make([]float32, a.Heads*a.S)
			if round%3 > 0 {
				row := 100 + d.IntN(100)
				a.K.Buf.set(row*a.D, 1e-39)
				a.DY.Buf.set(row*a.DV, []float32{float32(math.Inf(1)), 1e-40}[round/3%2])
			}
			run := func(m *Machine) (all []byte) {
				for _, g := range []*View{&a.GradQ, &a.GradK, &a.GradV, &a.Y} {
					g.Buf = zeros(F32, g.Len())
				}
				m.Attention(a)
				smaller[0] += flag(m.attn.block < p.blockOf(attnQueries))
				m.AttentionGrad(a)
				return slices.Concat(a.Y.Data, Floats(a.LSE).Data, a.GradQ.Data, a.GradK.Data, a.GradV.Data)
			}
			want := run(one)
			for _, m := range machines {
				if !slices.Equal(run(m), want) {
					t.Errorf("%s: round %d: the bits depend on the workers", p.Name(), round)
				}
				apart += flag(m.attn.mode == attnGradQueries)
				smaller[1] += flag(m.attn.mode == attnGradQueries && m.attn.block < p.blockOf(gradQueries))
				smaller[2] += flag(m.attn.plan(attnGradKeys, 0, a.Batch*a.KVHeads).block < attnKeys)
				some += flag(m.attn.mode == attnGradQueries && m.attn.first > 0)
			}
		}
		one.Close()
		for _, m := range machines {
			m.Close()
		}
		finer := attnKeys%(2*roundUp(leastKeys, p.stairRows)) == 0 // blocks of keys may be smaller
		if apart == 0 || finer && some == 0 {
			t.Errorf("%s: gradients of queries and keys were apart %d times, of some heads only %d times", p.Name(), apart, some)
		}
		if smaller[0] == 0 || p.blockOf(gradQueries) > p.queries && smaller[1] == 0 || finer && smaller[2] == 0 {
			t.Errorf("%s: blocks of queries, of their gradients and of keys were smaller %v times", p.Name(), smaller)
		}
	}
}

// TestAttentionEmpty: no keys give zeros, no width of q and k gives every key the same weight.
func TestAttentionEmpty(t *testing.T) {
	for _, p := range tested() {
		m := New(p, 1)
		defer m.Close()
		for _, size := range [][4]int{{0, 5, 4, 3}, {5, 0, 4, 3}, {5, 6, 0, 3}, {5, 6, 4, 0}} {
			d := newDice(10)
			a := &Attention{Batch: 1, Heads: 2, KVHeads: 1, S: size[0], T: size[1], D: size[2], DV: size[3], Scale: 1}
			q, kv := func(width int) View { return d.view(F32, 1, 2, a.S, width) }, func(width int) View { return d.view(F32, 1, 1, a.T, width) }
			a.Q, a.K, a.V, a.Y, a.DY = q(a.D), kv(a.D), kv(a.DV), q(a.DV), q(a.DV)
			a.GradQ, a.GradK, a.GradV = q(a.D), kv(a.D), kv(a.DV)
			a.LSE = make([]float32, 2*a.S)
			y, _, dq, dk, dv := refAttention(a)
			m.Attention(a)
			m.AttentionGrad(a)
			for i, want := range [][]float64{y, dq, dk, dv} {
				for j, w := range want {
					near(t, p.Name(), F32, j, [...]View{a.Y, a.GradQ, a.GradK, a.GradV}[i].get(j), w, 2e-5)
				}
			}
		}
	}
}
