package prove

import "ampc/ir"

// unrolled is the largest number of micro-batches for which predicates are evaluated: a first one,
// one between, and a last one. Only the index differs between micro-batches, so more of them show
// nothing new.
const unrolled = 3

// flow evaluates truth values and whole numbers, as functions of atoms, in a step with a given
// number of micro-batches. An instance is a time: 0 for prepare, 1 to micros for the micro-batches,
// micros+1 for update.
type flow struct {
	p      *proof
	g      *guard
	b      *bdd
	micros int
	atoms  []atom
	about  []int32         // by Value.ID: 1 + the last atom about it; 0: none
	bools  map[moment]pred // pred + 2; 1: being evaluated
	ints   map[moment]*whole
	passes map[passage][]pred
	drops  map[pred]values
}

// moment is a value at an instance.
type moment struct {
	v  *ir.Value
	at int
}

// atom is what a predicate may depend on: whether v is finite at an instance, the bit that a state
// had before the step, or a value that the checker does not follow.
type atom struct {
	v    *ir.Value
	at   int
	what about
	last int32 // 1 + the previous atom about v; 0: none
}

type about uint8

const (
	nonfinite about = iota // some element is Inf or NaN
	isNaN                  // of a scalar
	isInf
	held      // a truth value from before the step
	opaque    // a truth value computed from something else
	elsewhere // the flag of another rank
	nowhere   // a whole number that is summed over ranks is not above zero on any other rank
)

// whole is an integer as a function of atoms. Exactly one of its cases is true. nil is an integer
// that is not followed.
type whole struct {
	cases []wholeCase
}

type wholeCase struct {
	n    int64
	when pred
}

func newFlow(p *proof, g *guard, micros int) *flow {
	return &flow{p: p, g: g, b: newBDD(), micros: micros, about: make([]int32, g.values), bools: map[moment]pred{}, ints: map[moment]*whole{}, passes: map[passage][]pred{}, drops: map[pred]values{}}
}

func (f *flow) update() int { return f.micros + 1 }

// instance is the time at which v, read at instance at, was computed.
func (f *flow) instance(v *ir.Value, at int) int {
	if v.Def == nil {
		return at
	}
	switch f.p.sec[v.Def.ID] {
	case ir.Prepare:
		return 0
	case ir.Update:
		return f.update()
	}
	return min(at, f.micros)
}

// before is the value of variable v when an instance begins, and the instance in which it was
// computed; nil if it has the value from before the step.
func (f *flow) before(v *ir.Value, at int) (*ir.Value, int) {
	if w := f.g.next[v.ID]; w != nil && w.Def != nil {
		switch sec := f.p.sec[w.Def.ID]; {
		case sec == ir.Prepare && at > 0:
			return w, 0
		case sec != ir.Update && at > 1:
			return w, at - 1
		}
	}
	return nil, 0
}

func (f *flow) atomOf(v *ir.Value, at int, what about) pred {
	return f.b.atom(f.atomNumber(v, at, what))
}

func (f *flow) atomNumber(v *ir.Value, at int, what about) int32 {
	if v.Next != nil && at <= f.micros && at == f.instance(v, f.update()) && f.g.next[v.Next.ID] == v {
		v, at = v.Next, f.update() // the last value that the micro-batches wrote
	}
	last := f.about[v.ID]
	for i := last; i > 0; i = f.atoms[i-1].last {
		if a := &f.atoms[i-1]; a.at == at && a.what == what {
			return i - 1
		}
	}
	f.atoms = append(f.atoms, atom{v, at, what, last})
	f.about[v.ID] = int32(len(f.atoms))
	return int32(len(f.atoms)) - 1
}

// truth is the bool v, read at an instance.
func (f *flow) truth(v *ir.Value, at int) pred {
	if v.Def == nil {
		return f.variable(v, at)
	}
	at = f.instance(v, at)
	here := moment{v, at}
	switch memo := f.bools[here]; memo {
	case 0:
	case 1: // it depends on itself, which no order of nodes can compute
		return f.atomOf(v, at, opaque)
	default:
		return memo - 2
	}
	f.bools[here] = 1
	x := f.node(v.Def, v, at)
	f.bools[here] = x + 2
	return x
}

func (f *flow) variable(v *ir.Value, at int) pred {
	if w, when := f.before(v, at); w != nil {
		return f.truth(w, when)
	}
	if v.Kind == ir.Const && v.Init != nil && len(v.Init.Args) == 1 && v.Init.Func == "" {
		if v.Init.Args[0] != 0 {
			return always
		}
		return never
	}
	return f.atomOf(v, 0, held)
}

func (f *flow) node(n *ir.Node, v *ir.Value, at int) pred {
	switch d := n.Def(); {
	case n.Op == ir.OpAnyNonfinite:
		return f.checks(n, at)
	case d.Is(ir.Collective) && v.Type == ir.T(ir.Bool): // set on some rank
		return f.b.or(f.truth(n.In[v.Idx], at), f.atomOf(v, at, elsewhere))
	case v.Type.Shape.Elements() != 1:
	case n.Op == ir.OpIsNaN:
		return f.atomOf(n.In[0], f.instance(n.In[0], at), isNaN)
	case n.Op == ir.OpIsInf:
		return f.atomOf(n.In[0], f.instance(n.In[0], at), isInf)
	case d.Elem != nil:
		if r := f.run(n, v.Idx, at); r.followed {
			return r.truth
		}
	case d.Is(ir.Moves) && len(n.In) == 1 && n.In[0].Type.Shape.Elements() == 1:
		return f.truth(n.In[0], at)
	}
	return f.atomOf(v, at, opaque)
}

// checks is the OR over the operands of a finiteness check.
func (f *flow) checks(n *ir.Node, at int) pred {
	var atoms []int32
	for _, v := range n.In {
		if v.Type.DType.Float() && v.Type.Shape.Elements() != 0 {
			atoms = append(atoms, f.atomNumber(v, f.instance(v, at), nonfinite))
		}
	}
	return f.b.any(atoms)
}

// integer is the scalar v, a whole number, read at an instance; nil if it is not followed. For a
// sum over ranks it says whether it is above zero.
func (f *flow) integer(v *ir.Value, at int) *whole {
	if v.Type.Shape.Elements() != 1 {
		return nil
	}
	if v.Def == nil {
		switch w, when := f.before(v, at); {
		case w != nil:
			return f.integer(w, when)
		case v.Kind == ir.Const && v.Init != nil && v.Init.Func == "" && len(v.Init.Args) == 1 && v.Init.Args[0] == float64(int64(v.Init.Args[0])):
			return fixed(int64(v.Init.Args[0]))
		case v.Kind == ir.Input && v.Attr.Get("role") == "micro" && at >= 1 && at <= f.micros:
			return fixed(int64(at - 1))
		}
		return nil
	}
	at = f.instance(v, at)
	here := moment{v, at}
	if x, ok := f.ints[here]; ok {
		return x
	}
	x := (*whole)(nil)
	switch d := v.Def.Def(); {
	case d.Elem != nil:
		x = f.run(v.Def, v.Idx, at).number
	case d.Is(ir.Collective):
		if here := f.integer(v.Def.In[v.Idx], at); here != nil {
			x = f.zeroOne(f.b.or(f.counted(ir.PLt, fixed(0), here).truth, f.b.not(f.atomOf(v, at, nowhere))))
		}
	}
	f.ints[here] = x
	return x
}

func fixed(n int64) *whole { return &whole{[]wholeCase{{n, always}}} }

// either is x if c is true, otherwise y. An operand that is never selected need not be known.
func (f *flow) either(c pred, x, y *whole) *whole {
	switch {
	case c == always:
		return x
	case c == never:
		return y
	case x == nil || y == nil:
		return nil
	}
	var w whole
	for _, a := range x.cases {
		w.add(f.b, a.n, f.b.and(a.when, c))
	}
	for _, a := range y.cases {
		w.add(f.b, a.n, f.b.and(a.when, f.b.not(c)))
	}
	return &w
}

func (w *whole) add(b *bdd, n int64, when pred) {
	if when == never {
		return
	}
	for i := range w.cases {
		if w.cases[i].n == n {
			w.cases[i].when = b.or(w.cases[i].when, when)
			return
		}
	}
	w.cases = append(w.cases, wholeCase{n, when})
}
