package e2e_test

import (
	"ampc"
	"ampc/ir"
	"bytes"
	"testing"
)

// Everything a model says reads back and trains to the same bits.
func TestWrittenModelIsTheSameModel(t *testing.T) {
	m, loss := small(8)
	m.IR().Return(loss.IR())
	var b bytes.Buffer
	if err := m.WriteIR(&b); err != nil {
		t.Fatal(err)
	}
	g, err := ir.Parse("small.ir", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	read := ampc.FromGraph(g)
	s1, s2 := train(t, m, loss, adam()), train(t, read, read.FromIR(g.Return[0]), adam())
	for i := range uint64(3) {
		run(t, s1, points(i, 8))
		run(t, s2, points(i, 8))
	}
	same(t, m, read)
}
