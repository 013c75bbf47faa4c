package passes

import (
	"runtime/debug"

	"ampc/ir"
)

// spareOfNode is the bytes of spare heap for a node of the source.
const spareOfNode = 5 << 10

// spareHeap is unused memory while a large graph is compiled. The collector starts when
// the heap is twice what lived before. A graph that grows from the source to the step would be marked
// a dozen times, although it lives to the end; with the spare memory it is marked once or twice. The
// system provides no pages for it. It is at most an eighth of the process's memory limit.
func spareHeap(g *ir.Graph) []byte {
	if g.Small() {
		return nil
	}
	return make([]byte, min(int64(g.NumNodes())*spareOfNode, debug.SetMemoryLimit(-1)/8))
}
