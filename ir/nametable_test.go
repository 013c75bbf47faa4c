package ir_test

import (
	"testing"

	"ampc/ir"
)

// TestRemovedNames removes one of two nodes of one name and the write of a variable: the builder then
// continues as a new one does.
func TestRemovedNames(t *testing.T) {
	b := ir.NewBuilder("g")
	x := b.Declare(ir.Input, "x", ir.T(ir.F32, 2), nil, nil)
	w := b.Declare(ir.State, "w", ir.T(ir.F32, 2), &ir.Init{Args: []float64{0}}, nil)
	never := b.Declare(ir.Input, "never", ir.T(ir.Bool), nil, nil)
	b.Named("y").Relu(x)
	b.Named("y").Relu(x) // %y_2
	b.Commit(w, b.Named("y").Relu(x), never)
	g := b.Graph()
	body := g.Body[ir.Forward]
	b.Removed(body[1], body[3])
	g.Body[ir.Forward] = []*ir.Node{body[0], body[2]}
	if b.Lookup("y_2") != nil || b.Lookup("w") != w || !b.Current() {
		t.Errorf("the builder knows %v and %v", b.Lookup("y_2"), b.Lookup("w"))
	}
	if y := b.Named("y").Relu(x); b.Err() != nil || y.Name != "y_2" {
		t.Errorf("the next node is %v, want %%y_2: %v", y, b.Err())
	}
}
