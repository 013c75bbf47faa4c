package lower

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
)

// Neighbours in a set of places are those that a search of all members finds.
func TestPlaces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, n := range []int{1, 2, 63, 64, 65, 5000} {
		set, has := newPlaces(n), make([]bool, n)
		for range 300 {
			i := r.IntN(n)
			if has[i] = !has[i]; has[i] {
				set.add(i)
			} else {
				set.remove(i)
			}
			at := r.IntN(n)
			before, after := at-1, at+1
			for before >= 0 && !has[before] {
				before--
			}
			for after < n && !has[after] {
				after++
			}
			if after == n {
				after = -1
			}
			if set.before(at) != before || set.after(at) != after {
				t.Fatalf("of %d: next to %d are %d and %d, want %d and %d", n, at, set.before(at), set.after(at), before, after)
			}
		}
	}
}

// Overlapping buffers are found if and only if a comparison of all pairs finds some.
func TestOverlapsAreThoseOfPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	found, none := 0, 0
	for range 300 {
		data := make([]byte, 4*(2+r.IntN(60)))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		p := randomProgram(data)
		(&Lowerer{p: p}).plan()
		p.Buffers[r.IntN(len(p.Buffers))].Offset = p.Buffers[r.IntN(len(p.Buffers))].Offset + Align*int64(r.IntN(3))
		v := newChecker(p)
		if err := v.walk(); err != nil {
			t.Fatal(err)
		}
		if err := v.lifetimes(); err != nil {
			t.Fatal(err)
		}
		want := overlappingPair(v)
		if got := v.overlaps(); (got != nil) != (want != "") {
			t.Fatalf("found %v, comparing all pairs %q\n%s", got, want, p)
		} else if got != nil {
			found++
		} else {
			none++
		}
	}
	if found < 50 || none < 50 {
		t.Errorf("%d programs with overlaps, %d without", found, none)
	}
}

func overlappingPair(v *checker) string {
	for i := range v.p.Buffers {
		for j := range v.p.Buffers {
			a, b := &v.p.Buffers[i], &v.p.Buffers[j]
			later := v.first[j] > v.first[i] || v.first[j] == v.first[i] && j > i
			if later && v.last[i] >= v.first[j] && a.Size > 0 && b.Size > 0 && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size && !v.inPlace(BufferID(i), BufferID(j)) {
				return a.Name + " and " + b.Name
			}
		}
	}
	return ""
}

// A step collides with the earlier steps that a comparison of all pairs finds.
func TestHistoryIsThatOfPairs(t *testing.T) {
	const streams = 3
	r := rand.New(rand.NewPCG(2, 9))
	collisions, none := 0, 0
	for range 60 {
		p := &Program{}
		for i := range 24 {
			id := p.NewBuffer(fmt.Sprint("b", i), ir.T(ir.F32, ir.Dim(r.IntN(40))), Arena(r.IntN(int(NumArenas))))
			p.Buffers[id].Offset = int64(r.IntN(12)) * 32
		}
		h, last := newHistory(p, streams), [streams]int{-1, -1, -1}
		var steps []*Step
		for i := range 40 {
			s := &Step{Stream: uint8(r.IntN(streams)), In: []BufferID{BufferID(r.IntN(24)), None}, Out: []BufferID{BufferID(r.IntN(24))}}
			own := make([]int, streams) // what s has waited for
			for t := range own {
				own[t] = max(-1, last[t]-r.IntN(6))
			}
			own[s.Stream] = i
			want := -1
			for j, o := range steps {
				if j > own[o.Stream] && collide(p.spans(s), p.spans(o)) {
					want = j
				}
			}
			switch j := h.collision(s, own); {
			case (j < 0) != (want < 0) || j >= 0 && (j <= own[steps[j].Stream] || !collide(p.spans(s), p.spans(steps[j]))):
				t.Fatalf("step %d collides with %d, by pairs with %d", i, j, want)
			case j < 0:
				none++
			default:
				collisions++
			}
			h.append(s, i)
			steps, last[s.Stream] = append(steps, s), i
		}
	}
	if collisions < 200 || none < 200 {
		t.Errorf("%d steps collide, %d do not", collisions, none)
	}
}

// The update of many parameters is one step, whose lists are indexed. Its results may be stored over
// the operands over which a search of the lists allows it, and its faults are found.
func TestUpdateOfManyParameters(t *testing.T) {
	const count = longList + 4
	var declared, summed, updated strings.Builder
	for i := range count {
		fmt.Fprintf(&declared, "  param %%w%d : f32[8] = 0.5\n  state %%m%d : f32[8]\n", i, i)
		fmt.Fprintf(&summed, "  %%d%d = square %%x : f32[8]\n", i)
		fmt.Fprintf(&updated, "  %%m%d' = add %%m%d, %%d%d {cluster=%d}\n  %%w%d' = sub %%w%d, %%m%d' {cluster=%d}\n", i, i, i, i+1, i, i, i, i+1)
	}
	source := "graph @u {\n  input %x : f32[8]\n" + declared.String() + "backward:\n" + summed.String() + "update:\n" + updated.String() + "}\n"
	p := lowered(t, source)
	s := &p.Parts[Update][0]
	if len(s.Clusters()) != count {
		t.Fatalf("the update has %d clusters, want %d\n%s", len(s.Clusters()), count, p)
	}
	indexed, searched := p.overlay(s), overlay{p: p, s: s, in: grouped[BufferID, BufferID]{list: s.In}, out: grouped[BufferID, BufferID]{list: s.Out}}
	for _, in := range s.In {
		for _, out := range s.Out {
			if indexed.may(in, out) != searched.may(in, out) {
				t.Errorf("%s over %s: %t, searched: %t", p.BufferName(out), p.BufferName(in), indexed.may(in, out), searched.may(in, out))
			}
		}
	}
	for name, damage := range map[string]func(s *Step){
		"loads of two clusters exchanged": func(s *Step) { a, b := s.More[2], s.More[7]; a.Loads[0], b.Loads[0] = b.Loads[0], a.Loads[0] },
		"stores of two clusters exchanged": func(s *Step) {
			a, b := s.More[2], s.More[7]
			a.Stores[0].Buffer, b.Stores[0].Buffer = b.Stores[0].Buffer, a.Stores[0].Buffer
		},
		"another register": func(s *Step) {
			s.More[3].Stores[0].Reg, s.More[3].Stores[1].Reg = s.More[3].Stores[1].Reg, s.More[3].Stores[0].Reg
		},
		"an operand is missing": func(s *Step) { s.In = slices.Delete(s.In, 5, 6) },
		"a cluster is missing":  func(s *Step) { s.More = s.More[:len(s.More)-1] },
		"other code":            func(s *Step) { s.More[4].Code = slices.Clone(s.More[4].Code); s.More[4].Code[2].Op = ir.PMul },
	} {
		p := lowered(t, source)
		damage(&p.Parts[Update][0])
		if Verify(p) == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

// Two custom ops are two rows, each with its own code, although they have one op and one type.
func TestCustomRowsHaveTheirCode(t *testing.T) {
	x, typ := exprs{}, ir.T(ir.F32, 4)
	x.reset()
	of := func(name string, p ir.Prim) expr {
		elem := func(c *ir.Code, n *ir.Node) []ir.Reg {
			return []ir.Reg{c.Emit(ir.Instr{Op: p, Type: ir.F32, A: c.In(0)})}
		}
		n := &ir.Node{Op: ir.OpCustom, Custom: &ir.Def{Name: name, Elem: elem}, In: []*ir.Value{{Type: typ}}, Out: []*ir.Value{{Type: typ}}}
		return x.node(n, func(int) expr { return x.id(exprKey{op: ir.PIn, typ: ir.F32}) })[0]
	}
	if of("negative", ir.PNeg) == of("absolute", ir.PAbs) {
		t.Error("two custom ops compute the same")
	}
}
