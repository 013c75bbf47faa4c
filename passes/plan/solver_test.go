package plan

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomPlan has k free choices, as many tensors and some clusters.
func randomPlan(r *rand.Rand, k int) *Plan {
	p := New()
	choices := []Choice{F32, Low}
	for range k {
		choices = append(choices, p.Choose())
	}
	any := func() Choice { return choices[r.IntN(len(choices))] }
	p.Clusters = make([]Cluster, 1+r.IntN(5))
	for i := range p.Clusters {
		p.Clusters[i].Times = int64(1 + r.IntN(3))
	}
	p.Clusters[0].Outside = r.IntN(2) == 0
	p.Clusters[len(p.Clusters)-1].Inner = int64(r.IntN(3)) // that of an expansion, where it is above zero
	port := func(q Port) {
		c := &p.Clusters[r.IntN(len(p.Clusters))]
		if c.Inner > 0 {
			if slices.ContainsFunc(c.Ports, func(o Port) bool { return o.Tensor == q.Tensor && (o.Write || q.Write) }) {
				return
			}
			q.Moves, q.Second, q.Rounded = &Moves{int64(r.IntN(30)), int64(r.IntN(30))}, false, false
		} else if !q.Write && r.IntN(8) == 0 { // an operand that is not read
			q.Moves = &Moves{}
		}
		c.Ports = append(c.Ports, q)
	}
	for range k + 2 {
		t := Tensor{Stored: any(), Bytes: int64(2 * (1 + r.IntN(9))), CopyTimes: int64(1 + r.IntN(3))}
		switch r.IntN(16) {
		case 0, 1:
			t.Stored = AsStored
		case 2:
			t.Stored = Other
		}
		id := p.Tensor(t)
		if r.IntN(5) > 0 {
			port(Port{Tensor: id, Write: true, Second: r.IntN(2) == 0, Rounded: r.IntN(4) == 0, Always: r.IntN(4) == 0})
		}
		for range r.IntN(5) {
			q := Port{Tensor: id, Part: int32(r.IntN(2)), Bytes: t.Bytes, Takes: AsStored}
			if q.Part == 1 {
				q.Bytes = t.Bytes / 2
			}
			if r.IntN(2) == 0 && t.Stored != AsStored {
				q.Takes = any()
			}
			q.Narrowed = r.IntN(4) == 0 && t.Stored != AsStored
			if q.Narrowed && q.Takes == AsStored {
				q.Takes = Low
			}
			if r.IntN(12) == 0 && t.Stored != AsStored {
				q.Takes = Other
			}
			q.Register = r.IntN(6) == 0
			port(q)
		}
	}
	for range r.IntN(3) {
		p.Widen(any(), any())
		p.Splits = append(p.Splits, Split{any(), any(), int64(1 + r.IntN(20))})
		x := Join{Of: any(), F32: int64(r.IntN(20)), Low: int64(r.IntN(20))}
		for range 1 + r.IntN(3) {
			x.Alike = append(x.Alike, any())
		}
		p.Joins = append(p.Joins, x)
	}
	return p
}

// bytes adds up what the clusters of p move where choices have the given forms,
// port by port; ok is false where a constraint forbids them. It shares nothing
// with the Solver.
func (p *Plan) bytes(low func(Choice) bool) (sum int64, ok bool) {
	for _, w := range p.Widens {
		if !low(w.A) && low(w.B) {
			return 0, false
		}
	}
	for _, x := range p.Splits {
		if !low(x.A) && low(x.B) {
			sum += x.Bytes
		}
	}
	for _, x := range p.Joins {
		apart := slices.ContainsFunc(x.Alike, func(y Choice) bool { return low(y) != low(x.Of) })
		switch {
		case apart && low(x.Of):
			sum += x.Low
		case apart:
			sum += x.F32
		}
	}
	for _, c := range p.Clusters {
		sum += c.Inner * c.Times
	}
	for id, t := range p.Tensors {
		var write *Port
		var times int64
		asked, casts := map[form]bool{}, map[form]bool{}
		wide, again, widened, other, twice := false, false, false, false, false
		registers, reads := 0, 0
		for i := range p.Clusters {
			c := &p.Clusters[i]
			parts := map[form]map[int32]int64{inF32: {}, inLow: {}, inF32Again: {}, inOther: {}, inOtherAgain: {}}
			for k := range c.Ports {
				q := &c.Ports[k]
				switch form := q.form(t, low); {
				case q.Tensor != TensorID(id):
				case q.Write:
					write, times = q, c.Times
				default:
					reads++
					if q.Register {
						registers++
					} else if asked[form] = true; q.Moves == nil {
						parts[form][q.Part] = q.Bytes
					} else if !c.Outside {
						sum += q.Moves.of(form) * c.Times
					}
					casts[form] = casts[form] || q.Takes != AsStored
					casts[inLow] = casts[inLow] || form == inF32Again || form == inOtherAgain
					if q.Takes == Other {
						other, twice = other || !q.Narrowed, twice || q.Narrowed
					}
					if q.Takes != AsStored && q.Takes != Low && q.Takes != Other {
						wide, again = wide || !q.Narrowed, again || q.Narrowed
						widened = widened || !q.Narrowed && form == inF32
					}
				}
			}
			sum += c.reading(t, parts)
		}
		unstored := write != nil && !write.Always && reads > 0 && reads == registers
		if t.Stored == AsStored {
			switch {
			case write == nil || unstored:
			case write.Moves != nil:
				sum += write.Moves.F32 * times
			default:
				sum += t.Bytes * times
			}
			continue
		}
		size := map[form]int64{inF32: 2 * t.Bytes, inLow: t.Bytes, inF32Again: 2 * t.Bytes, inOther: t.Bytes, inOtherAgain: t.Bytes}
		own := inF32
		switch {
		case t.Stored == Other:
			own = inOther
		case low(t.Stored):
			own = inLow
		}
		if (wide && again || other && twice) && own == inLow && t.Stored != Low {
			return 0, false
		}
		if write != nil && write.Rounded && own == inLow && widened {
			return 0, false
		}
		switch second := write != nil && write.Second; {
		case unstored:
		case second && !write.Always && len(asked) > 0:
			for form := range asked {
				sum += size[form] * times
			}
		case write != nil && write.Moves != nil:
			sum += write.Moves.of(own) * times
		case write != nil:
			sum += size[own] * times
		}
		if write == nil || !write.Second {
			for form := range casts {
				if casts[form] && form != own {
					sum += castBytes(own, form) * t.Bytes * t.CopyTimes
				}
			}
		}
	}
	return sum, true
}

// castBytes is what a cast moves, in units of a form of 16 bits.
func castBytes(from, to form) int64 {
	if to != inOtherAgain && from == inF32 || to == inF32 || to == inF32Again {
		return 3
	}
	return 2
}

// form is one in which a tensor is read.
type form int

const (
	inF32 form = iota
	inLow
	inOther
	inF32Again   // rounded to low, and in f32
	inOtherAgain // rounded to low, and to the other 16 bits
)

// of is what is moved for a form.
func (m *Moves) of(f form) int64 {
	if f == inF32 || f == inF32Again {
		return m.F32
	}
	return m.Low
}

// form is the one that q reads of t.
func (q *Port) form(t Tensor, low func(Choice) bool) form {
	switch {
	case t.Stored == AsStored:
		return inF32
	case q.Takes == Other && q.Narrowed && (t.Stored == Other || !low(t.Stored)):
		return inOtherAgain
	case q.Takes == Other, q.Takes == AsStored && t.Stored == Other:
		return inOther
	case q.Takes == AsStored && low(t.Stored), q.Takes != AsStored && low(q.Takes):
		return inLow
	case q.Narrowed && !low(t.Stored):
		return inF32Again
	}
	return inF32
}

// reading is what c reads of t: each form it takes, of parts each once; where it
// takes several, the parts of all are counted for each.
func (c *Cluster) reading(t Tensor, parts map[form]map[int32]int64) (sum int64) {
	if c.Outside {
		return 0
	}
	all := map[int32]int64{}
	first := int64(math.MaxInt64)
	key := int32(math.MaxInt32)
	for _, list := range parts {
		for part, b := range list {
			all[part] = b
			if part < key {
				key, first = part, b
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	if t.Stored == AsStored {
		return first * c.Times
	}
	touched := int64(0)
	for _, b := range all {
		touched += b
	}
	touched = min(touched, t.Bytes)
	for form, list := range parts {
		switch {
		case len(list) == 0:
		case form == inLow || form == inOther || form == inOtherAgain:
			sum += touched * c.Times
		default:
			sum += 2 * touched * c.Times
		}
	}
	return sum
}

// The Solver's answer moves the fewest bytes of all assignments, counted port by
// port, and is low only where all of the best are; what it reports is that
// count; constraints that cannot hold are a conflict.
func TestSolverAgainstAllAssignments(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	conflicts := 0
	for i := range 3000 {
		k := 1 + r.IntN(6)
		p := randomPlan(r, k)
		got := NewSolver(p).Solve()
		best, bestSet := int64(math.MaxInt64), 0
		for set := range 1 << k {
			low := func(c Choice) bool { return c == Low || c.Free() && set>>(c-firstFree)&1 == 1 }
			switch x, ok := p.bytes(low); {
			case !ok:
			case x < best:
				best, bestSet = x, set
			case x == best:
				bestSet &= set
			}
		}
		if conflict := got.Conflict[0] != AsStored; conflict || best == math.MaxInt64 {
			if conflicts++; conflict != (best == math.MaxInt64) {
				t.Fatalf("plan %d: conflict %t, least %d: %+v", i, conflict, best, p)
			}
			continue
		}
		set := 0
		for c := range k {
			if got.Low(firstFree + Choice(c)) {
				set |= 1 << c
			}
		}
		if got.Moved != best || set != bestSet {
			t.Fatalf("plan %d: %d bytes with %b low, want %d with %b: %+v", i, got.Moved, set, best, bestSet, p)
		}
	}
	t.Logf("%d plans have no answer", conflicts)
}
