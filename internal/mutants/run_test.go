package mutants

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// A step is evaluated with every float in float64, so that dtypes change no value. A run remembers what every
// node read and gave each time it ran. A run of a mutant beside a run of its subject computes only what follows
// from the mutation: a node that reads the very tensors its original read gives the tensors it gave.

// run is one evaluation of some steps.
type run struct {
	calls [][]call   // of every node of the subject, in order of time; of a mutant not kept
	state []snapshot // after each step
}

type call struct{ in, out []*eval.Tensor }

type snapshot struct{ vars, returns []*eval.Tensor }

// scene is what a run starts from and is disturbed by.
type scene struct {
	vars   map[*ir.Value]*eval.Tensor     // by variable of the subject
	feeds  [][]map[*ir.Value]*eval.Tensor // by step and micro-batch
	poison *poison
}

// poison makes elements of a value not finite, in one micro-batch of the first step, and of every value that is
// computed as it is: what overflows once overflows again.
type poison struct {
	value *ir.Value
	micro int
	x     float64
	all   bool
}

func (p *poison) String() string {
	return fmt.Sprintf("%g in %s of micro-batch %d", p.x, p.value, p.micro)
}

// program is a graph with places for its values, and the way from them to those of the subject.
type program struct {
	vars    []variable
	parts   [ir.NumSections][]step
	returns []int
	slots   int
	nodes   int // of the subject
}

type variable struct {
	*ir.Value
	slot   int
	origin *ir.Value // nil: the subject has none
}

type step struct {
	*ir.Node
	in, out, next []int       // places; -1: none
	from          []*ir.Value // of the results; what only hands on has none
	origin        int         // number of the node in the subject, -1 where it has none
	same          bool        // what it computes from the same operands is what its origin does
}

// program numbers a mutant's values. Variables of the subject keep their places.
func (m *mutant) program() *program {
	p, slot := &program{nodes: len(m.s.order)}, map[*ir.Value]int{}
	place := func(v *ir.Value) int {
		slot[v] = p.slots
		p.slots++
		return slot[v]
	}
	for _, v := range m.g.Vars {
		p.vars = append(p.vars, variable{v, place(v), m.fromValue[v]})
	}
	for sec, n := range m.g.Nodes {
		x := step{Node: n, origin: -1}
		for _, v := range n.In {
			if v == nil {
				x.in = append(x.in, -1)
			} else {
				x.in = append(x.in, slot[v])
			}
		}
		for _, v := range n.Out {
			next := -1
			if v.Next != nil {
				next = slot[v.Next]
			}
			x.out, x.next = append(x.out, place(v)), append(x.next, next)
			x.from = append(x.from, m.s.twins[m.fromValue[v]])
		}
		if o := m.fromNode[n]; o != nil {
			x.origin, x.same = m.s.order[o], alike(o, n)
		}
		p.parts[sec] = append(p.parts[sec], x)
	}
	for _, v := range m.g.Return {
		p.returns = append(p.returns, slot[v])
	}
	return p
}

// alike reports whether n computes what o does from the same operands.
func alike(o, n *ir.Node) bool {
	if o.Op != n.Op || !o.Attrs.Equal(n.Attrs) || len(o.Out) != len(n.Out) {
		return false
	}
	for i, v := range n.Out {
		if v.Type != o.Out[i].Type {
			return false
		}
	}
	return true
}

type machine struct {
	*program
	ref   *run // nil: nothing to compare with
	keep  bool
	scene *scene
	now   []*eval.Tensor
	run   *run
	count []int // calls of the subject's nodes so far
	in    []*eval.Tensor
}

// evaluate runs the steps of a scene beside a run of the subject over the same scene, nil for none; keep what
// nodes did for later runs to be compared with.
func (p *program) evaluate(ref *run, keep bool, sc *scene) (r *run, err error) {
	m := &machine{program: p, ref: ref, keep: keep, scene: sc, now: make([]*eval.Tensor, p.slots), run: &run{}, count: make([]int, p.nodes)}
	if keep {
		m.run.calls = make([][]call, p.nodes)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	for _, v := range p.vars {
		if v.Kind == ir.Input {
			continue
		}
		if err := m.start(v); err != nil {
			return nil, err
		}
	}
	for k, micros := range sc.feeds {
		if err := m.step(k, micros); err != nil {
			return nil, err
		}
	}
	return m.run, nil
}

// start sets a variable: as its original starts, unless the mutation gave it another initial value.
func (m *machine) start(v variable) error {
	o := v.origin
	if o != nil && m.scene.vars[o] != nil && (v.Init == o.Init || v.Init.String() == o.Init.String()) && o.Type.Shape == v.Type.Shape {
		m.now[v.slot] = m.scene.vars[o]
		return nil
	}
	t, err := eval.InitVar(v.Value, 1)
	m.now[v.slot] = t
	return err
}

func (m *machine) step(k int, micros []map[*ir.Value]*eval.Tensor) error {
	if err := m.part(k, 0, ir.Prepare); err != nil {
		return err
	}
	for i, feed := range micros {
		for _, v := range m.vars {
			if v.Kind == ir.Input {
				if m.now[v.slot] = feed[v.origin]; m.now[v.slot] == nil {
					return fmt.Errorf("no input %s", v)
				}
			}
		}
		if err := m.part(k, i, ir.Forward, ir.Backward); err != nil {
			return err
		}
	}
	if err := m.part(k, len(micros)-1, ir.Update); err != nil {
		return err
	}
	s := snapshot{vars: slices.Clone(m.now[:len(m.vars)])}
	for _, i := range m.returns {
		s.returns = append(s.returns, m.now[i])
	}
	m.run.state = append(m.run.state, s)
	return nil
}

func (m *machine) part(k, micro int, sections ...ir.Section) error {
	next := map[int]*eval.Tensor{}
	for _, sec := range sections {
		for i := range m.parts[sec] {
			s := &m.parts[sec][i]
			if err := m.node(s); err != nil {
				return err
			}
			for i, slot := range s.out {
				if p := m.scene.poison; p != nil && k == 0 && micro == p.micro && s.from[i] == p.value {
					m.now[slot] = p.spoil(m.now[slot])
				}
				if s.next[i] >= 0 {
					next[s.next[i]] = m.now[slot]
				}
			}
		}
	}
	for slot, t := range next {
		m.now[slot] = t
	}
	return nil
}

func (p *poison) spoil(t *eval.Tensor) *eval.Tensor {
	t = t.Clone()
	for i := range t.F {
		if p.all || i == len(t.F)-1 {
			t.F[i] = p.x
		}
	}
	return t
}

// node evaluates one node, or takes over what its original gave for the same operands.
func (m *machine) node(s *step) error {
	in := m.in[:0]
	for i, slot := range s.in {
		var t *eval.Tensor
		if slot >= 0 {
			if t = m.now[slot]; t == nil {
				return fmt.Errorf("%s has no value yet", s.In[i])
			}
		}
		in = append(in, t)
	}
	m.in = in
	var out []*eval.Tensor
	old := m.old(s)
	if old != nil && s.same && slices.Equal(old.in, in) {
		out = old.out
	} else {
		var err error
		in = slices.Clone(in)
		if out, err = eval.Node(s.Node, in, eval.Options{Float64: true, Seed: 1}); err != nil {
			return err
		}
		if old != nil && sameBits(old.out, out) {
			out = old.out
		}
	}
	if m.keep {
		m.run.calls[s.origin] = append(m.run.calls[s.origin], call{slices.Clone(in), out})
	}
	for i, slot := range s.out {
		m.now[slot] = out[i]
	}
	return nil
}

// old is what the original of a node did this time.
func (m *machine) old(s *step) *call {
	if m.ref == nil || s.origin < 0 {
		return nil
	}
	calls, i := m.ref.calls[s.origin], m.count[s.origin]
	m.count[s.origin]++
	if i >= len(calls) {
		return nil
	}
	return &calls[i]
}

func sameBits(a, b []*eval.Tensor) bool {
	if len(a) != len(b) {
		return false
	}
	for i, x := range a {
		y := b[i]
		if x == y {
			continue
		}
		if x.Type != y.Type {
			return false
		}
		for k, e := range x.F {
			if math.Float64bits(e) != math.Float64bits(y.F[k]) {
				return false
			}
		}
		for k, e := range x.I {
			if e != y.I[k] {
				return false
			}
		}
	}
	return true
}

// close reports whether two tensors hold the same numbers, except for the order of sums.
func closeTo(a, b *eval.Tensor) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || a.Type.Shape != b.Type.Shape || len(a.F) != len(b.F) || len(a.I) != len(b.I) {
		return false
	}
	most := 0.0
	for i := range a.F {
		if x := math.Abs(a.F[i]); x > most && !math.IsInf(x, 0) {
			most = x
		}
	}
	for i, x := range a.F {
		y := b.F[i]
		if x != y && !(x != x && y != y) && !(math.Abs(x-y) <= 1e-10*most) {
			return false
		}
	}
	for i, x := range a.I {
		if x != b.I[i] {
			return false
		}
	}
	return true
}
