package prove

import "slices"

// pred is a boolean function of atoms: an index into the nodes of a bdd. Equal functions have the
// same index.
type pred int32

const (
	never  pred = 0
	always pred = 1
)

// branch is a node of a binary decision diagram: hi if the atom is true, otherwise lo.
type branch struct {
	atom   int32
	lo, hi pred
}

// bdd holds reduced ordered binary decision diagrams over atoms 0, 1, ..., after
// Bryant, "Graph-based algorithms for boolean function manipulation" (1986).
type bdd struct {
	nodes []branch
	slots []pred // hash table of nodes with open addressing, of a size that is a power of two; 0: free
	done  map[application]pred
	seen  []bool // by node: marks of a walk, all false between walks
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
	return &bdd{nodes: []branch{leaf, leaf}, slots: make([]pred, 256), done: map[application]pred{}}
}

func (b *bdd) make(atom int32, lo, hi pred) pred {
	if lo == hi {
		return lo
	}
	n := branch{atom, lo, hi}
	slot := b.slot(n)
	if p := b.slots[slot]; p != 0 {
		return p
	}
	p := pred(len(b.nodes))
	b.nodes, b.slots[slot] = append(b.nodes, n), p
	if 2*len(b.nodes) > len(b.slots) {
		b.slots = make([]pred, 2*len(b.slots))
		for i := range b.nodes[2:] {
			b.slots[b.slot(b.nodes[2+i])] = pred(2 + i)
		}
	}
	return p
}

// slot is the slot of n, or the one where it would be stored.
func (b *bdd) slot(n branch) int {
	h := (uint64(n.atom)<<32 | uint64(n.lo)) * 0x9E3779B97F4A7C15
	h = (h ^ h>>29 ^ uint64(n.hi)) * 0x9E3779B97F4A7C15
	i := int(h >> 32)
	for ; ; i++ {
		i &= len(b.slots) - 1
		if p := b.slots[i]; p == 0 || b.nodes[p] == n {
			return i
		}
	}
}

func (b *bdd) atom(i int32) pred { return b.make(i, never, always) }

func (b *bdd) and(x, y pred) pred { return b.apply(opAnd, x, y) }
func (b *bdd) or(x, y pred) pred  { return b.apply(opOr, x, y) }
func (b *bdd) xor(x, y pred) pred { return b.apply(opXor, x, y) }
func (b *bdd) not(x pred) pred    { return b.apply(opXor, x, always) }

// implies reports whether y is true whenever x is.
func (b *bdd) implies(x, y pred) bool { return x == y || b.and(x, b.not(y)) == never }

// choose is x if c is true, otherwise y.
func (b *bdd) choose(c, x, y pred) pred { return b.or(b.and(c, x), b.and(b.not(c), y)) }

func (b *bdd) apply(op uint8, x, y pred) pred {
	if x <= always && y <= always {
		return pred(op >> (2*uint8(x) + uint8(y)) & 1)
	}
	switch { // cases without a walk
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

// at is the value of f if exactly the atoms for which held is true are true.
func (b *bdd) at(f pred, held func(atom int32) bool) bool {
	for f > always {
		n := b.nodes[f]
		if f = n.lo; held(n.atom) {
			f = n.hi
		}
	}
	return f == always
}

// without is f if all atoms that out names are false.
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
	if len(b.seen) < len(b.nodes) {
		b.seen = make([]bool, cap(b.nodes))
	}
	var atoms []int32
	walked := b.below(f, nil)
	for _, f := range walked {
		b.seen[f] = false
		atoms = append(atoms, b.nodes[f].atom)
	}
	slices.Sort(atoms)
	return slices.Compact(atoms)
}

// below appends to walked the nodes of f that are not marked, and marks them.
func (b *bdd) below(f pred, walked []pred) []pred {
	for ; f > always && !b.seen[f]; f = b.nodes[f].lo {
		b.seen[f] = true
		walked = b.below(b.nodes[f].hi, append(walked, f))
	}
	return walked
}

// alone lists the atoms each of which makes f true when all others are false, if f is false without
// any: those on the path of false atoms whose other branch leads to true without another atom.
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
