package prove

import "slices"

// pred is a boolean function of atoms: an index into the nodes of a bdd. Equal
// functions have equal preds.
type pred int32

const (
	never  pred = 0
	always pred = 1
)

// branch is a node of a binary decision diagram: hi where the atom holds, else lo.
type branch struct {
	atom   int32
	lo, hi pred
}

// bdd holds reduced ordered binary decision diagrams over atoms 0, 1, ..., after
// Bryant, "Graph-based algorithms for boolean function manipulation" (1986).
type bdd struct {
	nodes []branch
	index map[branch]pred
	done  map[application]pred
}

type application struct {
	op   uint8 // the truth table of (false, false), (false, true), (true, false), (true, true), from bit 0 on
	a, b pred
}

const (
	opAnd uint8 = 0b1000
	opOr  uint8 = 0b1110
	opXor uint8 = 0b0110
)

const leafAtom = 1<<31 - 1

func newBDD() *bdd {
	leaf := branch{atom: leafAtom}
	return &bdd{nodes: []branch{leaf, leaf}, index: map[branch]pred{}, done: map[application]pred{}}
}

func (b *bdd) make(atom int32, lo, hi pred) pred {
	if lo == hi {
		return lo
	}
	n := branch{atom, lo, hi}
	p, ok := b.index[n]
	if !ok {
		p = pred(len(b.nodes))
		b.nodes = append(b.nodes, n)
		b.index[n] = p
	}
	return p
}

func (b *bdd) atom(i int32) pred { return b.make(i, never, always) }

func (b *bdd) and(x, y pred) pred { return b.apply(opAnd, x, y) }
func (b *bdd) or(x, y pred) pred  { return b.apply(opOr, x, y) }
func (b *bdd) xor(x, y pred) pred { return b.apply(opXor, x, y) }
func (b *bdd) not(x pred) pred    { return b.apply(opXor, x, always) }

// implies reports whether y holds wherever x does.
func (b *bdd) implies(x, y pred) bool { return x == y || b.and(x, b.not(y)) == never }

// choose is x where c holds, else y.
func (b *bdd) choose(c, x, y pred) pred { return b.or(b.and(c, x), b.and(b.not(c), y)) }

func (b *bdd) apply(op uint8, x, y pred) pred {
	if x <= always && y <= always {
		return pred(op >> (2*uint8(x) + uint8(y)) & 1)
	}
	switch { // the cases that need no walk
	case op == opAnd && (x == never || y == never):
		return never
	case op == opAnd && x == always || op != opAnd && x == never:
		return y
	case op == opAnd && y == always || op != opAnd && y == never:
		return x
	case op == opOr && (x == always || y == always):
		return always
	case x == y && op == opXor:
		return never
	case x == y:
		return x
	}
	k := application{op, min(x, y), max(x, y)}
	if p, ok := b.done[k]; ok {
		return p
	}
	m, n := b.nodes[x], b.nodes[y]
	xl, xh, yl, yh := m.lo, m.hi, n.lo, n.hi
	atom := min(m.atom, n.atom)
	if m.atom > atom {
		xl, xh = x, x
	}
	if n.atom > atom {
		yl, yh = y, y
	}
	p := b.make(atom, b.apply(op, xl, yl), b.apply(op, xh, yh))
	b.done[k] = p
	return p
}

// at is what f is where the atoms of which held says so hold, and no others.
func (b *bdd) at(f pred, held func(atom int32) bool) bool {
	for f > always {
		n := b.nodes[f]
		if f = n.lo; held(n.atom) {
			f = n.hi
		}
	}
	return f == always
}

// without is f where none of the atoms that out names holds.
func (b *bdd) without(f pred, out func(atom int32) bool) pred {
	memo := map[pred]pred{never: never, always: always}
	var walk func(f pred) pred
	walk = func(f pred) pred {
		if g, ok := memo[f]; ok {
			return g
		}
		n := b.nodes[f]
		g := walk(n.lo)
		if !out(n.atom) {
			g = b.make(n.atom, g, walk(n.hi))
		}
		memo[f] = g
		return g
	}
	return walk(f)
}

// support lists the atoms that f depends on.
func (b *bdd) support(f pred) []int32 {
	var atoms []int32
	seenNode, seenAtom := map[pred]bool{}, map[int32]bool{}
	var walk func(f pred)
	walk = func(f pred) {
		if f <= always || seenNode[f] {
			return
		}
		seenNode[f] = true
		n := b.nodes[f]
		if !seenAtom[n.atom] {
			seenAtom[n.atom] = true
			atoms = append(atoms, n.atom)
		}
		walk(n.lo)
		walk(n.hi)
	}
	walk(f)
	return atoms
}

// alone lists the atoms that make f hold by themselves, where f does not hold
// without any: those on the path on which no atom holds, whose other branch
// leads to truth without another.
func (b *bdd) alone(f pred) []int32 {
	var atoms []int32
	none := func(int32) bool { return false }
	for ; f > always; f = b.nodes[f].lo {
		if n := b.nodes[f]; n.hi == always || b.at(n.hi, none) {
			atoms = append(atoms, n.atom)
		}
	}
	return atoms
}

// any is the OR of atoms.
func (b *bdd) any(atoms []int32) pred {
	if !slices.IsSorted(atoms) {
		atoms = slices.Clone(atoms)
		slices.Sort(atoms)
	}
	f := never
	for i := len(atoms) - 1; i >= 0; i-- {
		if i == 0 || atoms[i] != atoms[i-1] {
			f = b.make(atoms[i], f, always)
		}
	}
	return f
}
