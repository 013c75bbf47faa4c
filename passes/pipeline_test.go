package passes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ampc/ir"
	"ampc/ir/eval"
)

// precisionPasses are those from group on, optional ones after amp last.
var precisionPasses = []string{"casts", "cluster", "amp", "masks", "castcache", "castelim", "castfold", "fuse", "launches", "dce", "order"}

func optionalPasses() []string {
	var names []string
	for _, p := range Pipeline() {
		if !p.Required {
			names = append(names, p.Name)
		}
	}
	return names
}

func mustRun(t testing.TB, g *ir.Graph, c Config) *ir.Graph {
	t.Helper()
	if err := Run(g, resolved(g, c)); err != nil {
		t.Fatalf("policy %s: %v\n%s", c.Policy.Name, err, g)
	}
	return g
}

func testModels() map[string]func() *ir.Graph {
	return map[string]func() *ir.Graph{
		"mlp": func() *ir.Graph { return mlpGraph(4, 12, 8, 5) },
		"gpt": func() *ir.Graph { return gptGraph(2, 2, 8, 16, 2, 32) },
	}
}

func eachPolicy(t *testing.T, f func(t *testing.T, model func() *ir.Graph, p Policy)) {
	for name, model := range testModels() {
		for _, policy := range PolicyNames() {
			t.Run(name+"/"+policy, func(t *testing.T) {
				p, err := PolicyNamed(policy)
				if err != nil {
					t.Fatal(err)
				}
				f(t, model, p)
			})
		}
	}
}

// inputs gives every input and state of g values; labels stay below n.
func inputs(g *ir.Graph, r *rand.Rand, n int64) map[string]*eval.Tensor {
	env := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		if v.Kind != ir.Input {
			continue
		}
		x := eval.New(v.Type)
		for i := range x.F {
			x.F[i] = float64(float32(r.NormFloat64()))
		}
		for i := range x.I {
			x.I[i] = r.Int64N(n)
			if v.Type.DType == ir.Bool {
				x.I[i] %= 2
			}
		}
		stored, err := eval.FromBytes(v.Type, x.Bytes()) // rounded to what v can hold
		if err != nil {
			panic(err)
		}
		env[v.Name] = stored
	}
	return env
}

// results evaluates one step and returns the returned values and what the
// variables hold afterwards.
func results(t testing.TB, g *ir.Graph, env map[string]*eval.Tensor) map[string]*eval.Tensor {
	t.Helper()
	r, err := eval.Run(g, env, eval.Options{Seed: 1})
	if err != nil {
		t.Fatalf("eval: %v\n%s", err, g)
	}
	out := map[string]*eval.Tensor{}
	for i, v := range g.Return {
		out[fmt.Sprintf("result %d", i)] = r.Value(v)
	}
	for name, x := range r.Next {
		out[name+"'"] = x
	}
	return out
}

// same reports the first difference between two sets of tensors; NaNs are equal.
func same(a, b map[string]*eval.Tensor) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d and %d results", len(a), len(b))
	}
	for name, x := range a {
		y := b[name]
		if y == nil || x.Type != y.Type {
			return fmt.Errorf("%s: %v and %v", name, x, y)
		}
		for i := range x.F {
			if math.Float64bits(x.F[i]) != math.Float64bits(y.F[i]) && !(x.F[i] != x.F[i] && y.F[i] != y.F[i]) {
				return fmt.Errorf("%s[%d]: %v and %v", name, i, x.F[i], y.F[i])
			}
		}
		if !slices.Equal(x.I, y.I) {
			return fmt.Errorf("%s: %v and %v", name, x.I, y.I)
		}
	}
	return nil
}

// Under f32 no optional pass changes a bit.
func TestF32PipelineChangesNoBit(t *testing.T) {
	for name, model := range testModels() {
		t.Run(name, func(t *testing.T) {
			plain, full := trainConfig(F32()), trainConfig(F32())
			plain.Disable = optionalPasses()
			full.Check = true
			a, b := mustRun(t, model(), plain), mustRun(t, model(), full)
			env := inputs(a, rand.New(rand.NewPCG(1, 2)), 5)
			if err := same(results(t, a, env), results(t, b, env)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Under every policy the passes after amp change no bit: amp alone decides.
func TestPassesAfterAmpChangeNoBit(t *testing.T) {
	eachPolicy(t, func(t *testing.T, model func() *ir.Graph, p Policy) {
		plain, full := trainConfig(p), trainConfig(p)
		plain.Disable = []string{"masks", "castcache", "castelim", "castfold", "fuse", "dce", "order"}
		full.Check = true
		a, b := mustRun(t, model(), plain), mustRun(t, model(), full)
		env := inputs(a, rand.New(rand.NewPCG(1, 2)), 5)
		if err := same(results(t, a, env), results(t, b, env)); err != nil {
			t.Error(err)
		}
	})
}

// The order in which nodes stand before any pass has no influence on the result.
func TestShuffleInvariance(t *testing.T) {
	eachPolicy(t, func(t *testing.T, model func() *ir.Graph, p Policy) {
		a := mustRun(t, model(), trainConfig(p))
		shuffled := trainConfig(p)
		shuffled.Check = true
		b := mustRun(t, model(), shuffled)
		if diff := cmp.Diff(strings.Split(a.String(), "\n"), strings.Split(b.String(), "\n")); diff != "" {
			t.Errorf("plain (-), shuffled (+):\n%s", diff)
		}
	})
}

// Each weight copy of a parameter is made once, in prepare.
func TestOneWeightCopyPerParam(t *testing.T) {
	eachPolicy(t, func(t *testing.T, model func() *ir.Graph, p Policy) {
		g := mustRun(t, model(), trainConfig(p))
		seen := map[castKey]bool{}
		for s, n := range g.Nodes {
			if n.Op != ir.OpCast || n.In[0].Kind != ir.Param {
				continue
			}
			k := castKey{n.In[0], n.Out[0].Type.DType}
			if seen[k] || s != ir.Prepare {
				t.Errorf("%s: cast of %s in %s, seen before: %t", n.Name(), n.In[0], s, seen[k])
			}
			seen[k] = true
		}
	})
}

// castelim keeps every bit of every half through every pair of casts.
func TestCastPairsOverAllHalves(t *testing.T) {
	dtypes := []ir.DType{ir.F32, ir.F16, ir.BF16}
	for _, a := range dtypes[1:] {
		for _, m := range dtypes {
			for _, c := range dtypes {
				plain, opt := castPair(a, m, c), castPair(a, m, c)
				mustRun(t, opt, Config{Policy: Manual(), Debugging: Debugging{Only: []string{"castelim", "castfold"}}})
				x := allHalves(a)
				env := map[string]*eval.Tensor{"x": x}
				if err := same(results(t, plain, env), results(t, opt, env)); err != nil {
					t.Errorf("%s to %s to %s: %v\n%s", a, m, c, err, opt)
				}
				if a == c && m == ir.F32 && opt.NumNodes() != 1 {
					t.Errorf("%s to f32 and back is still there:\n%s", a, opt)
				}
			}
		}
	}
}

func castPair(a, m, c ir.DType) *ir.Graph {
	b := ir.NewBuilder("pair")
	x := b.Declare(ir.Input, "x", ir.T(a, 1<<16), nil, nil)
	b.Return(b.Neg(b.Emit(ir.OpCast, []*ir.Value{b.Emit(ir.OpCast, []*ir.Value{x}, ir.A("to", m))[0]}, ir.A("to", c))[0]))
	return b.Graph()
}

func allHalves(d ir.DType) *eval.Tensor {
	raw := make([]byte, 2<<16)
	for i := range 1 << 16 {
		raw[2*i], raw[2*i+1] = byte(i), byte(i>>8)
	}
	x, err := eval.FromBytes(ir.T(d, 1<<16), raw)
	if err != nil {
		panic(err)
	}
	return x
}

// No row without a class can exist.
func TestEveryRowHasAClass(t *testing.T) {
	for _, op := range ir.Ops() {
		if d := op.Def(); d.Class == ir.NoClass || d.Why == "" {
			t.Errorf("%s: class %s, reason %q", d.Name, d.Class, d.Why)
		}
	}
}

// An evaluation that inherits a training step's assignment has its loss, bit by bit.
func TestEvaluationInheritsAssignment(t *testing.T) {
	eachPolicy(t, func(t *testing.T, model func() *ir.Graph, p Policy) {
		var kept Assignment
		c := trainConfig(p)
		c.Record = &kept
		a := mustRun(t, model(), c)
		b := mustRun(t, model(), Config{Policy: p, Inference: Inference{Inherit: &kept}})
		env := inputs(a, rand.New(rand.NewPCG(3, 4)), 5)
		x, y := results(t, a, env)["result 0"], results(t, b, env)["result 0"]
		if x.F[0] != y.F[0] {
			t.Errorf("training %v, evaluation %v\n%s\n%s", x.F[0], y.F[0], a, b)
		}
	})
}
