package interp

import (
	"encoding/binary"
	"testing"

	"ampc/ptx"
)

// TestElementsBeyond32Bits runs the last block of copies of more than 2^32 elements, by as many threads
// and by fewer, and with a rest: each reads and writes where its elements are. Only these are in
// memory.
func TestElementsBeyond32Bits(t *testing.T) {
	const last = 256 // elements of which memory is allocated
	for name, shape := range map[string][]int64{"vectors": {1<<36 + 8}, "rest": {1<<36 + 3}, "one by one": {1<<13 + 1, 1 << 20}} {
		g := ptx.Elementwise{Name: "k", Shape: shape, Code: []ptx.Instr{{Op: "in", Type: ptx.Float32}},
			Loads: []ptx.Access{{Name: "x", DType: ptx.Float16}}, Stores: []ptx.Output{{Access: ptx.Access{Name: "y", DType: ptx.Float16}}}}
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		if len(shape) > 1 { // every second element
			g.Loads[0].Stride = []int64{2 * shape[1], 2}
		}
		l, err := g.Build(ptx.SM80)
		if err != nil {
			t.Fatal(err)
		}
		p, mem := compile(t, l, ptx.SM80), NewMemory()
		apart := (l.Args[0].Elems + n) / n // of elements in x
		if l.Args[0].Elems == n {
			apart = 1
		}
		from, to := mem.Alloc(int(2*last*apart)), mem.Alloc(2*last)
		x := make([]byte, 2*last*apart)
		for i := range last {
			binary.LittleEndian.PutUint16(x[2*int64(i)*apart:], uint16(0x3c00+i))
		}
		if err := mem.Write(from, x); err != nil {
			t.Fatal(err)
		}
		first := n - last
		args := []uint64{from - uint64(2*apart*first), to - uint64(2*first)}
		cfg := Config{Grid: l.Grid, Block: l.Block, Args: args}
		stats := Stats{LoadWidths: map[int]int64{}, StoreWidths: map[int]int64{}}
		r := &run{p: p, mem: mem, cfg: cfg, opt: Options{NoRaces: true}, stats: &stats, left: 1 << 20}
		r.smem = mem.sharedOf(p.nshared)
		mem.launch++
		block := [3]int{l.Grid[0] - 1, 0, 0}
		err = r.block(block)
		var y [2 * last]byte
		if read := mem.Read(y[2*(last-3):], to+2*(last-3)); err != nil || read != nil {
			t.Errorf("%s, block %v: %v, %v", name, block, err, read)
			continue
		}
		for i := last - 3; i < last; i++ {
			if got, want := binary.LittleEndian.Uint16(y[2*i:]), uint16(0x3c00+i); got != want {
				t.Errorf("%s: element %d is %#x, want %#x", name, n-last+int64(i), got, want)
			}
		}
	}
}
