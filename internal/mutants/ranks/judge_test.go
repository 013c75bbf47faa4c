package ranks

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes/prove"
)

// scene is what the ranks are fed. A poisoned one has an Inf in the rows of one rank.
type scene struct {
	steps  int
	poison int // the rank, -1: none
	value  float64
}

var scenes = []scene{{3, -1, 0}, {2, 0, math.Inf(1)}, {2, 1, math.NaN()}}

// outcome is what the ranks hold after the steps of a scene: by rank and name, accumulators
// left out; and the losses by rank and step. err says that they did not meet.
type outcome struct {
	state  []map[string]*eval.Tensor
	losses [][]float64
	err    error
}

// play runs a scene with the evaluator. graphs has the step of each rank.
func (s *subject) play(graphs []*ir.Graph, sc scene) (o outcome) {
	o.state, o.losses = make([]map[string]*eval.Tensor, s.ranks), make([][]float64, s.ranks)
	for r := range o.state {
		o.state[r] = map[string]*eval.Tensor{}
		for _, v := range graphs[r].Vars {
			if part := begun(v, r); part != nil {
				o.state[r][v.Name] = part
			}
		}
	}
	defer func() {
		if p := recover(); p != nil {
			o.err = fmt.Errorf("the evaluator panics: %v", p)
		}
	}()
	if o.err = disagree(graphs); o.err != nil {
		return o
	}
	for step := range sc.steps {
		feeds := make([][]map[string]*eval.Tensor, s.ranks)
		for r := range feeds {
			for m := range s.micro {
				feed := s.batch(step*s.micro+m, r*s.rows, s.rows)
				if x := feed["x"]; x != nil && r == sc.poison && step == 0 && m == s.micro-1 {
					x.F[1] = sc.value
				}
				feeds[r] = append(feeds[r], feed)
			}
		}
		results, err := eval.Ranks(graphs, o.state, feeds, eval.Options{Seed: 3})
		if err != nil {
			o.err = err
			return o
		}
		for r, res := range results {
			for name, v := range res.Next {
				if role, _ := graphs[r].Var(name).Attr.Get("role").(string); role != "acc" {
					o.state[r][name] = v
				}
			}
			loss := math.NaN()
			if x := res.Values[graphs[r].Return[0].Name]; x != nil && len(x.F) == 1 {
				loss = x.F[0]
			}
			o.losses[r] = append(o.losses[r], loss)
		}
	}
	return o
}

// disagree is what package world refuses when ranks send different messages: another op,
// dtype, number of elements, rounding or order.
func disagree(graphs []*ir.Graph) error {
	var first []string
	for r, g := range graphs {
		var sent []string
		for _, n := range g.Nodes {
			if n.Def().Is(ir.Collective) {
				elements := int64(0)
				for _, v := range n.In {
					elements += v.Type.Shape.Elements()
				}
				sent = append(sent, fmt.Sprint(n.Op, n.Name(), n.In[0].Type.DType, elements, n.Attrs.Without("seq")))
			}
		}
		if r == 0 {
			first = sent
		} else if !slices.Equal(sent, first) {
			return fmt.Errorf("rank %d sends other messages than rank 0", r)
		}
	}
	return nil
}

// effect is what a mutant does, by the evaluator alone; "" for nothing that shows. failed says that
// the ranks do not meet in the first scene, which every run notices.
func (s *subject) effect(want []outcome, graphs []*ir.Graph) (does string, failed bool) {
	for i, sc := range scenes {
		got := s.play(graphs, sc)
		if got.err != nil {
			return "fails: " + got.err.Error(), i == 0
		}
		for r := range s.ranks {
			for name, v := range want[i].state[r] {
				if !near(got.state[r][name], v) {
					return fmt.Sprintf("%s of rank %d after scene %d", name, r, i), false
				}
				part := graphs[r].Var(name).PartOf() != ""
				if !part && !same(got.state[r][name], got.state[0][name]) {
					return fmt.Sprintf("%s differs between ranks 0 and %d after scene %d", name, r, i), false
				}
			}
			for k, x := range want[i].losses[0] {
				if y := got.losses[r][k]; math.Abs(x-y) > 1e-3*(1+math.Abs(x)) || math.IsNaN(x) != math.IsNaN(y) {
					return fmt.Sprintf("the loss of rank %d in step %d of scene %d", r, k, i), false
				}
			}
		}
	}
	return "", false
}

// near reports whether v holds what w holds except for roundings.
func near(v, w *eval.Tensor) bool {
	if v == nil || v.Type != w.Type || !slices.Equal(v.I, w.I) {
		return false
	}
	for i, x := range w.F {
		if y := v.F[i]; math.IsNaN(x) != math.IsNaN(y) || math.Abs(x-y) > 1e-3*(math.Abs(x)+1e-3) {
			return false
		}
	}
	return true
}

func same(v, w *eval.Tensor) bool {
	return v != nil && w != nil && slices.Equal(v.I, w.I) && slices.EqualFunc(v.F, w.F, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// refused is what prove finds in the step of any rank whose step is not the subject's own, which has
// passed; "" for nothing.
func (s *subject) refused(graphs []*ir.Graph, by proof) string {
	for r, g := range graphs {
		if g == s.plain || slices.Contains(graphs[:r], g) {
			continue
		}
		if found := prove.Prove(by.training, g, by.rules); len(found) > 0 {
			return found[0].String()
		}
	}
	return ""
}
