package cpu_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// viewed is self attention over [2,6,16] in one of many spellings.
type viewed struct {
	name          string
	heads, kv     int64
	spell         func(b *ir.Builder, v viewed, x, all *ir.Value) *ir.Value // all: the product of q, k and v
	copies, plain int                                                       // steps that copy, with views and without
	bare          bool                                                      // no product behind attention
	undone        bool                                                      // casts meet and go, as the cut could not know
}

const (
	viewBatch, viewLen, viewDim = 2, 6, 16
)

// headsOf turns [B,S,h·w] into [B,h,S,w].
func headsOf(b *ir.Builder, x *ir.Value, h int64) *ir.Value {
	return b.Transpose(b.Reshape(x, 0, 0, h, int64(x.Type.Shape.Dim(2))/h), 0, 2, 1, 3)
}

// fusedParts cuts the product into q, k and v.
func fusedParts(b *ir.Builder, v viewed, all *ir.Value) (q, k, u *ir.Value) {
	w := viewDim / v.heads
	p := b.Split(all, -1, viewDim, v.kv*w, v.kv*w)
	return headsOf(b, p[0], v.heads), headsOf(b, p[1], v.kv), headsOf(b, p[2], v.kv)
}

var causal = ir.A("causal", true)

func merged(b *ir.Builder, y *ir.Value) *ir.Value {
	return b.Reshape(b.Transpose(y, 0, 2, 1, 3), 0, 0, -1)
}

func fused(b *ir.Builder, v viewed, _, all *ir.Value) *ir.Value {
	q, k, u := fusedParts(b, v, all)
	return merged(b, b.Attention(q, k, u, nil, causal))
}

func viewedCases() []viewed {
	return []viewed{
		{name: "fused", heads: 2, kv: 2, spell: fused, plain: 10},
		{name: "fewer keys", heads: 4, kv: 2, spell: fused, plain: 10},
		{name: "no product behind", heads: 2, kv: 2, spell: fused, plain: 10, bare: true},
		{name: "sliced", heads: 2, kv: 2, plain: 14, copies: 3, spell: func(b *ir.Builder, v viewed, _, all *ir.Value) *ir.Value {
			part := func(i int64) *ir.Value {
				return headsOf(b, b.Slice(all, []int64{2}, []int64{i * viewDim}, []int64{(i + 1) * viewDim}), 2)
			}
			return merged(b, b.Attention(part(0), part(1), part(2), nil, causal))
		}},
		{name: "one for all", heads: 2, kv: 2, plain: 4, copies: 1, spell: func(b *ir.Builder, v viewed, x, _ *ir.Value) *ir.Value {
			h := headsOf(b, b.Linear(x, param(b, "own.w", viewDim, viewDim), nil, false), 2)
			return merged(b, b.Attention(h, h, h, nil, causal))
		}},
		{name: "three products, wide values, a mask", heads: 2, kv: 2, plain: 8, spell: func(b *ir.Builder, v viewed, x, _ *ir.Value) *ir.Value {
			own := func(name string, wide ir.Dim) *ir.Value {
				return headsOf(b, b.Named(name).Linear(x, param(b, name+".w", viewDim, wide), nil, false), 2)
			}
			mask := b.Declare(ir.Const, "mask", ir.T(ir.F32, 1, 2, viewLen, 1), &ir.Init{Func: "normal", Args: []float64{0, 1}}, nil)
			y := b.Attention(own("q", 24), own("k", 24), own("v", viewDim), mask, nil)
			return merged(b, y)
		}},
		// Near misses: what may not be shown where it lies is copied.
		{name: "rope between", heads: 2, kv: 2, undone: true, plain: 10, copies: 6, spell: func(b *ir.Builder, v viewed, _, all *ir.Value) *ir.Value {
			q, k, u := fusedParts(b, v, all)
			return merged(b, b.Attention(b.Rope(q, nil, nil), b.Rope(k, nil, nil), u, nil, causal))
		}},
		{name: "rows that lie apart", heads: 2, kv: 2, plain: 10, copies: 4, spell: func(b *ir.Builder, v viewed, _, all *ir.Value) *ir.Value {
			p := b.Split(all, -1, viewDim, viewDim, viewDim)
			apart := b.Transpose(b.Reshape(p[0], 0, 0, viewDim/v.heads, v.heads), 0, 3, 1, 2)
			return merged(b, b.Attention(apart, headsOf(b, p[1], 2), headsOf(b, p[2], 2), nil, causal))
		}},
		{name: "read elsewhere", heads: 2, kv: 2, plain: 10, copies: 6, spell: func(b *ir.Builder, v viewed, _, all *ir.Value) *ir.Value {
			q, k, u := fusedParts(b, v, all)
			y := b.Attention(q, k, u, nil, causal)
			return merged(b, b.Add(y, b.Softmax(q, -1)))
		}},
	}
}

func param(b *ir.Builder, name string, d ...ir.Dim) *ir.Value {
	return b.Declare(ir.Param, name, ir.T(ir.F32, d...), &ir.Init{Func: "normal", Args: []float64{0, 0.3}}, nil)
}

func (v viewed) graph() *ir.Graph {
	b := ir.NewBuilder("views")
	x := b.Declare(ir.Input, "x", ir.T(ir.F32, viewBatch, viewLen, viewDim), nil, nil)
	wide := ir.Dim(viewDim + 2*v.kv*viewDim/v.heads)
	all := b.Named("all").Linear(x, param(b, "all.w", viewDim, wide), param(b, "all.b", wide), false)
	y := v.spell(b, v, x, all)
	if !v.bare {
		y = b.Named("out").Linear(y, param(b, "out.w", viewDim, viewDim), nil, false)
	}
	y = b.Add(y, x)
	b.Return(b.Named("loss").ReduceMean(b.Mul(y, y), false))
	if b.Err() != nil {
		panic(b.Err())
	}
	return b.Graph()
}

// lowered takes the case through the passes; it returns the bytes the cut counts.
func (v viewed) lowered(t *testing.T, policy string, disable ...string) (p *lower.Program, cut int64) {
	t.Helper()
	c := passes.Config{
		Train:     true,
		Compiling: passes.Compiling{Disable: disable},
		Training:  passes.Training{Groups: []passes.Group{{Optimizer: passes.AdamW(0.1), LR: passes.Constant(1e-3)}}},
	}
	if policy == "local" {
		c.Policy = passes.MixedF16()
		c.Policy.Algorithm = policy
	} else {
		var err error
		if c.Policy, err = passes.PolicyNamed(policy); err != nil {
			t.Fatal(err)
		}
	}
	c.After = func(e passes.Event) { cut += int64(e.Counters["cut_bytes"]) }
	g := v.graph()
	if err := passes.Run(g, c); err != nil {
		t.Fatal(err)
	}
	return lowered(t, g), cut
}

// copySteps counts the steps of micro that move elements, and the bytes of all steps.
func copySteps(p *lower.Program) (n int, bytes int64) {
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			bytes += s.Bytes
			if part == lower.Micro && s.Kind == lower.KindCopy && p.Buffers[s.In[0]].Size > 4 { // not of the loss's gradient
				n++
			}
		}
	}
	return n, bytes
}

// Attention that reads and writes where products left and want their operands
// has the bits of attention between copies, under every policy; what may not be
// a view is copied as before; and the cut prices what is left to the byte.
func TestViews(t *testing.T) {
	for _, v := range viewedCases() {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16", "local", "torch-f16"} {
			t.Run(fmt.Sprint(v.name, "/", policy), func(t *testing.T) {
				p, cut := v.lowered(t, policy)
				plain, plainCut := v.lowered(t, policy, "views")
				n, bytes := copySteps(p)
				was, plainBytes := copySteps(plain)
				if n != v.copies || was != v.plain {
					t.Errorf("%d copies, %d without views, want %d and %d\n%s", n, was, v.copies, v.plain, p)
				}
				if cut != 0 && (plainCut-cut != plainBytes-bytes || cut != bytes && !v.undone) {
					t.Errorf("the cut says %d bytes, the program moves %d; without views %d and %d", cut, bytes, plainCut, plainBytes)
				}
				a, b := state(t, p, 2), state(t, plain, 1)
				for name := range b {
					if a[name] != b[name] {
						t.Errorf("%s differs from what attention between copies leaves", name)
					}
				}
			})
		}
	}
}

const castViews = `graph @cast {
  input %x : f32[2,6,4,8]
forward:
  %a = add %x, %x : f32[2,6,4,8]
  %q = transpose %a {perm=[0,2,1,3] MARK} : f32[2,4,6,8]
  %q.f16 = cast %q {to=f16} : f16[2,4,6,8]
  %y, %lse = attention %q.f16, %q.f16, %q.f16 {causal} : f16[2,4,6,8], f32[2,4,6]
  %y.f32 = cast %y {to=f32} : f32[2,4,6,8]
  %t = transpose %y.f32 {perm=[0,2,1,3] MARK} : f32[2,6,4,8]
  %s = softmax %t : f32[2,6,4,8]
  return %s
}
`

// A cast between attention and a view reads the tensor that is viewed and
// stores where the view puts it, whatever rows lie between.
func TestCastsWalkViews(t *testing.T) {
	var want [2][]byte
	for i, mark := range []string{"", "view"} {
		p := lowered(t, mustParse(t, strings.ReplaceAll(castViews, "MARK", mark)))
		if n, _ := copySteps(p); n != 2-2*i {
			t.Errorf("%q: %d copies\n%s", mark, n, p)
		}
		want[i] = firstResult(t, p)
	}
	if !bytes.Equal(want[0], want[1]) {
		t.Error("results differ")
	}
}

func mustParse(t *testing.T, text string) *ir.Graph {
	t.Helper()
	g, err := ir.Parse("views.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// firstResult runs a program without variables once.
func firstResult(t *testing.T, p *lower.Program) []byte {
	t.Helper()
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	return results(t, b, p)[0]
}
