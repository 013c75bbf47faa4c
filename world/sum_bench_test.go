package world

import (
	"testing"

	"ampc/ir"
)

func BenchmarkReduce(b *testing.B) {
	n := 1 << 20
	x, y := make([]byte, 4*n), make([]byte, 4*n)
	m := &Message{DType: ir.F32, Wire: ir.F32}
	b.SetBytes(int64(4 * n))
	for b.Loop() {
		m.Reduce(x, [][]byte{x, y})
	}
}
