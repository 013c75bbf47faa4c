package mutants

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
)

// The judge says whether a mutant counts, without the checker: it evaluates. A mutant counts by value, where two
// steps from any of three states store or return other numbers; by control, where a value that is not finite, put
// in place of a gradient, a loss or what a check reads, leads to another state; by precision, where the table below
// forbids a rounding that the subject does not have.

type effect string

const (
	invalid    effect = "invalid"    // no graph: ir.Verify refuses it
	equivalent effect = "equivalent" // nothing that anyone can see
	freedom    effect = "free"       // other roundings, which the policy allows or leaves open
	byValue    effect = "value"
	byControl  effect = "control"
	byRounding effect = "precision"
)

func (e effect) counts() bool { return e == byValue || e == byControl || e == byRounding }

// judge holds the runs of a subject that mutants are compared with.
type judge struct {
	s      *subject
	scenes []*scene
	runs   []*run
}

func newJudge(s *subject) (*judge, error) {
	j := &judge{s: s}
	fresh, worn, floor, limit := s.scene(0, 2), s.scene(1, 2), s.scene(2, 1), s.scene(3, 1)
	j.scenes = []*scene{fresh, worn, limit}
	for i, v := range s.poisonable() {
		for _, p := range s.poisons(v) {
			sc := *worn
			sc.feeds, sc.poison = worn.feeds[:1], p
			j.scenes = append(j.scenes, &sc)
		}
		if i%4 == 0 {
			for _, base := range []*scene{floor, limit} {
				sc := *base
				sc.poison = &poison{v, 0, math.NaN(), false}
				j.scenes = append(j.scenes, &sc)
			}
		}
	}
	same := s.copy().program()
	var clean *run
	for i, sc := range j.scenes {
		r, err := same.evaluate(clean, true, sc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if i == 1 {
			clean = r
		}
		j.runs = append(j.runs, r)
	}
	return j, nil
}

// scene makes a state and inputs: 0 as declared, 1 in the middle of training, 2 with scales at their floor, 3 with
// scales at their cap and about to grow.
func (s *subject) scene(kind, steps int) *scene {
	sc := &scene{vars: map[*ir.Value]*eval.Tensor{}}
	for _, v := range s.final.Vars {
		if v.Kind != ir.Input {
			sc.vars[v] = s.initial(v, kind)
		}
	}
	for k := range steps {
		var micros []map[*ir.Value]*eval.Tensor
		for i := range s.micro {
			feed := map[*ir.Value]*eval.Tensor{}
			for _, v := range s.final.Vars {
				if v.Kind == ir.Input {
					feed[v] = s.input(v, kind, k, i)
				}
			}
			micros = append(micros, feed)
		}
		sc.feeds = append(sc.feeds, micros)
	}
	return sc
}

func (s *subject) rand(parts ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, s.name, parts)
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

func (s *subject) input(v *ir.Value, kind, k, micro int) *eval.Tensor {
	t, r := eval.New(v.Type), s.rand(v.Name, kind, k, micro)
	if v.Attr.Get("role") == "micro" {
		t.I[0] = int64(micro)
		return t
	}
	for i := range t.F {
		t.F[i] = r.NormFloat64()
	}
	for i := range t.I {
		t.I[i] = r.Int64N(2)
	}
	return t
}

func (s *subject) initial(v *ir.Value, kind int) *eval.Tensor {
	if of, _ := v.Attr.Get("of").(string); v.Attr.Get("role") == ir.RoleCopy && s.final.Var(of) != nil {
		t := s.initial(s.final.Var(of), kind).Clone()
		t.Type = v.Type
		return t
	}
	t, err := eval.InitVar(v, 1)
	if err != nil {
		panic(err)
	}
	t = t.Clone()
	role, _ := v.Attr.Get("role").(string)
	r := s.rand(v.Name, kind)
	switch {
	case v.Kind != ir.State && v.Kind != ir.Param || kind == 0:
	case v.Kind == ir.Param && len(t.F) > 0:
		for i := range t.F { // biases that start at zero hide what they do
			t.F[i] += 0.2 * r.NormFloat64()
		}
	case role == "scale":
		t.F[0] = [...]float64{0, 1024, 1, 1 << 24}[kind]
	case role == "lr" || role == "seed":
	case strings.Contains(v.Name, ".good"):
		t.I[0] = 1999
		if kind == 1 {
			t.I[0] = 1998 // grows at the second step
		}
	case strings.Contains(v.Name, ".left"):
		t.I[0] = 1
	default:
		for i := range t.F {
			t.F[i] = 0.05 + 0.4*r.Float64()
		}
		for i := range t.I {
			if t.I[i] = 2 + r.Int64N(5); v.Type.DType == ir.Bool {
				t.I[i] = 0
			}
		}
	}
	return t
}

// poisonable lists gradients, losses, running statistics and what checks read.
func (s *subject) poisonable() []*ir.Value {
	var first, rest []*ir.Value
	seen := map[*ir.Value]bool{}
	add := func(v *ir.Value, must bool) {
		if v == nil || !v.Type.DType.Float() {
			return
		}
		_, v = rounded(v) // what casts and moves hand on was computed elsewhere
		if v = s.twins[v]; v == nil || seen[v] {
			return
		}
		seen[v] = true
		if must {
			first = append(first, v)
		} else {
			rest = append(rest, v)
		}
	}
	for sec, n := range s.final.Nodes {
		switch {
		case n.Op == ir.OpAnyNonfinite:
			for _, v := range n.In {
				add(v, true)
			}
		case n.Op == ir.OpCommit:
			add(n.In[1], true)
		case n.Def().Family == "loss" && sec == ir.Forward:
			add(n.Out[0], true)
		}
		for _, v := range n.Out {
			if sec == ir.Backward {
				add(v, v.GradOf != nil && v.GradOf.IsVar() || v.Next != nil)
			} else if sec == ir.Update && v.Next == nil {
				add(v, false)
			}
		}
	}
	r := s.rand("poison")
	r.Shuffle(len(rest), func(i, k int) { rest[i], rest[k] = rest[k], rest[i] })
	const most = 12
	return append(first, rest[:min(most, len(rest))]...)
}

func (s *subject) poisons(v *ir.Value) []*poison {
	last := s.micro - 1
	if s.sec[v.Def] == ir.Update {
		return []*poison{{v, last, math.Inf(1), false}, {v, last, math.Inf(-1), true}, {v, last, math.NaN(), false}}
	}
	return []*poison{{v, 0, math.Inf(1), false}, {v, last / 2, math.Inf(-1), true}, {v, last, math.NaN(), false}}
}

// judge says what a mutant does, and where that was seen.
func (j *judge) judge(m *mutant) (effect, string) {
	p := m.program()
	for i, sc := range j.scenes {
		got, err := p.evaluate(j.runs[i], false, sc)
		if err != nil {
			return byValue, "cannot be evaluated: " + err.Error()
		}
		if where := j.differs(got, j.runs[i], sc.poison == nil); where != "" {
			if sc.poison == nil {
				return byValue, where
			}
			return byControl, fmt.Sprintf("%s, with %s", where, sc.poison)
		}
	}
	return j.rounding(m)
}

// differs names the first variable or return that differs after a step. Variables of a mutant stand where the
// subject's do; more may follow.
func (j *judge) differs(got, want *run, returns bool) string {
	for k, a := range want.state {
		b := got.state[k]
		for i, v := range j.s.final.Vars {
			if v.Kind == ir.Input || v.Kind == ir.Const || v.Attr.Get("role") == "acc" {
				continue // accumulators begin anew with the next step
			}
			if !closeTo(a.vars[i], b.vars[i]) {
				return fmt.Sprintf("%s after step %d", v, k+1)
			}
		}
		if len(a.returns) != len(b.returns) {
			return "another number of returns"
		}
		for i := range a.returns {
			if returns && !closeTo(a.returns[i], b.returns[i]) {
				return fmt.Sprintf("return %d of step %d", i, k+1)
			}
		}
	}
	return ""
}
