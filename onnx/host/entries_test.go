package host

import (
	"slices"
	"testing"

	"ampc/ir"
)

// Many entries that differ in the type of one operand are found by it, and others all together.
func TestEntriesAreIndexed(t *testing.T) {
	typ := func(n int) ir.Type { return ir.Type{DType: ir.F32, Shape: ir.MakeShape(1, ir.Dim(n))} }
	make1 := func(n int) *entry {
		return &entry{reads: []operand{{name: "w", typ: typ(8)}, {name: "past", typ: typ(n)}}}
	}
	at := func(n int) *frame {
		return &frame{scope: &scope{}, env: map[string]*Value{"past": NewTensor(typ(n), make([]byte, 4*n))}}
	}
	var l entries
	var all []*entry
	for n := range 2 * indexed {
		all = append(all, make1(n))
		l.add(all[n])
		if n < indexed-1 && len(l.candidates(at(n))) != n+1 {
			t.Errorf("%d candidates of %d entries", len(l.candidates(at(n))), n+1)
		}
	}
	again := make1(3)
	l.add(again)
	if got := l.candidates(at(3)); !slices.Equal(got, []*entry{all[3], again}) {
		t.Errorf("%d candidates, want the two of the type", len(got))
	}
	l.remove(all[3])
	if got := l.candidates(at(3)); !slices.Equal(got, []*entry{again}) || len(l.all) != len(all) {
		t.Errorf("%d candidates of %d after one was removed", len(got), len(l.all))
	}
	if got := l.candidates(at(99)); got != nil {
		t.Errorf("%d candidates for a type that no entry has", len(got))
	}
	l.add(&entry{reads: []operand{{name: "w", typ: typ(8)}}})
	if got := l.candidates(at(3)); len(got) != len(l.all) {
		t.Errorf("%d candidates where an entry does not read the operand, want all", len(got))
	}
}
