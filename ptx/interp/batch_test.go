package interp

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"ampc/internal/fp"
	"ampc/ptx"
)

// update is p' = p - rate·g with a bf16 copy of p', over tensors of these sizes.
func update(sizes ...int64) ptx.Batch {
	return ptx.Batch{Sizes: sizes, Group: ptx.Group{
		Name:  "k",
		Loads: []ptx.Access{walk("p", ptx.Float32), walk("g", ptx.Float16), {Name: "rate", DType: ptx.Float32, Stride: []int64{0}}},
		Code: []ptx.Instr{
			in(0), in(1), in(2), {Op: "mul", Type: ptx.Float32, A: 2, B: 1}, {Op: "sub", Type: ptx.Float32, A: 0, B: 3},
		},
		Stores: []ptx.Output{{Access: walk("p'", ptx.Float32), Value: 4}, {Access: walk("copy", ptx.BFloat16), Value: 4}},
	}}
}

// sums are of g² and of how many g are -4.
func sums(sizes ...int64) ptx.Batch {
	return ptx.Batch{Sizes: sizes, Group: ptx.Group{
		Name:  "k",
		Loads: []ptx.Access{walk("g", ptx.Float16)},
		Code: []ptx.Instr{
			in(0), {Op: "mul", Type: ptx.Float32},
			{Op: "const", Type: ptx.Float32, Imm: 1}, {Op: "const", Type: ptx.Float32}, {Op: "const", Type: ptx.Float32, Imm: -4},
			{Op: "eq", Type: ptx.Bool, A: 0, B: 4}, {Op: "select", Type: ptx.Float32, A: 5, B: 2, C: 3},
		},
	}}
}

func in(i int64) ptx.Instr { return ptx.Instr{Op: "in", Type: ptx.Float32, Int: i} }

func walk(name string, d ptx.DType) ptx.Access { return ptx.Access{Name: name, DType: d} }

const batchRate = 0.25

// batchTensor is the device memory of one tensor.
type batchTensor struct{ p, g, low uint64 }

// fillBatch allocates tensors with p = 1, 2, 3, … and small whole g.
func fillBatch(mem *Memory, sizes []int64) []batchTensor {
	var list []batchTensor
	for _, n := range sizes {
		t := batchTensor{mem.Alloc(int(4 * n)), mem.Alloc(int(2 * n)), mem.Alloc(int(2 * n))}
		p, g := make([]byte, 4*n), make([]byte, 2*n)
		for i := range n {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(float32(i+1)))
			binary.LittleEndian.PutUint16(g[2*i:], fp.F16(batchGrad(i)))
		}
		if mem.Write(t.p, p) != nil || mem.Write(t.g, g) != nil {
			panic("allocated memory is not there")
		}
		list = append(list, t)
	}
	return list
}

func batchGrad(i int64) float32 { return float32((i+i/8)%8) - 4 }

// runBatch writes the table as a runtime does and runs k, a kernel of t.
func runBatch(k *ptx.Kernel, l *ptx.Launch, t ptx.Batch, steps int64) (stats Stats, err error) {
	p, err := Compile(k)
	if err != nil {
		return stats, err
	}
	mem := NewMemory()
	tensors := fillBatch(mem, t.Sizes)
	var raw []byte
	for _, w := range t.Table() {
		v := uint64(w.Value)
		if w.Access >= 0 {
			v = tensors[w.Tensor].of(len(t.Stores) == 0, w.Access)
		}
		raw = binary.LittleEndian.AppendUint64(raw, v)
	}
	table, last := mem.Alloc(len(raw)), mem.Alloc(8*t.Blocks())
	if err := mem.Write(table, raw); err != nil {
		return stats, err
	}
	if len(t.Stores) > 0 { // the last parameter is the rate
		if err := mem.Write(last, binary.LittleEndian.AppendUint32(nil, math.Float32bits(batchRate))); err != nil {
			return stats, err
		}
	}
	stats, err = p.Run(mem, Config{Grid: l.Grid, Block: l.Block, Args: []uint64{table, last}}, Options{MaxSteps: steps})
	switch {
	case err != nil:
		return stats, err
	case len(t.Stores) > 0:
		return stats, checkUpdate(mem, tensors, t.Sizes)
	}
	return stats, checkSums(mem, last, t)
}

// of is the buffer that an access walks.
func (x batchTensor) of(sums bool, access int) uint64 {
	if sums {
		return x.g
	}
	return map[int]uint64{0: x.p, 1: x.g, 3: x.p, 4: x.low}[access]
}

// checkUpdate compares every element of every tensor.
func checkUpdate(mem *Memory, tensors []batchTensor, sizes []int64) error {
	for k, n := range sizes {
		p, low := make([]byte, 4*n), make([]byte, 2*n)
		if err := mem.Read(p, tensors[k].p); err != nil {
			return err
		}
		if err := mem.Read(low, tensors[k].low); err != nil {
			return err
		}
		for i := range n {
			want := float32(i+1) - float32(batchRate*batchGrad(i))
			got := math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
			if got != want || binary.LittleEndian.Uint16(low[2*i:]) != fp.BF16(want) {
				return fmt.Errorf("tensor %d element %d is %g, want %g", k, i, got, want)
			}
		}
	}
	return nil
}

// checkSums adds the partial sums of both values.
func checkSums(mem *Memory, sums uint64, t ptx.Batch) error {
	raw := make([]byte, 8*t.Blocks())
	if err := mem.Read(raw, sums); err != nil {
		return err
	}
	var got [2]float32
	for i := range 2 * t.Blocks() {
		got[i/t.Blocks()] += math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	var squares, fours float32
	for _, n := range t.Sizes {
		for i := range n {
			g := batchGrad(i)
			squares += float32(g * g)
			if g == -4 {
				fours++
			}
		}
	}
	if got[0] != squares || got[1] != fours {
		return fmt.Errorf("the sums are %g and %g, want %g and %g", got[0], got[1], squares, fours)
	}
	return nil
}

// build makes the kernel of a batch for a flavour.
func build(t *testing.T, b ptx.Batch, fl ptx.Flavour) *ptx.Launch {
	t.Helper()
	var l *ptx.Launch
	var err error
	if len(b.Stores) > 0 {
		l, err = b.Build(fl)
	} else {
		l, err = b.Sum(fl, 1, 6)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBatch runs one launch over tensors of odd sizes, some of them longer
// than a block's chunk.
func TestBatch(t *testing.T) {
	for _, b := range []ptx.Batch{update(1, 31, 4097, 33, 1023, 32768, 33000), sums(1, 31, 4097, 33, 1023, 32768, 33000)} {
		for _, fl := range []ptx.Flavour{ptx.SM70, ptx.SM90} {
			l := build(t, b, fl)
			if _, err := runBatch(l.Kernel, l, b, 0); err != nil {
				t.Errorf("%v: %v", fl, err)
			}
		}
	}
}

// TestBatchStreams counts what one launch over large tensors moves.
func TestBatchStreams(t *testing.T) {
	for per, b := range map[int64]ptx.Batch{12: update(32768, 65536), 2: sums(32768, 65536)} {
		l := build(t, b, ptx.SM90)
		st, err := runBatch(l.Kernel, l, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		least := per * (32768 + 65536)
		if per == 12 && float64(st.LoadBytes+st.StoreBytes) > 1.05*float64(least) {
			t.Errorf("moves %d bytes, the least is %d", st.LoadBytes+st.StoreBytes, least)
		}
		if wide := 16 * (st.LoadWidths[16] + st.StoreWidths[16]); float64(wide) < 0.9*float64(least) {
			t.Errorf("moves %d of %d bytes in 16-byte accesses", wide, least)
		}
	}
}

// TestBatchDeletions removes each instruction in turn: something must object.
func TestBatchDeletions(t *testing.T) {
	for _, b := range []ptx.Batch{update(33, 32775), sums(33, 32775)} {
		l := build(t, b, ptx.SM80)
		whole, err := runBatch(l.Kernel, l, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		body := l.Kernel.Body
		for i := range body {
			if body[i].Op == nil {
				continue
			}
			k := *l.Kernel
			k.Body = append(append([]ptx.Inst(nil), body[:i]...), body[i+1:]...)
			if ptx.Verify(&ptx.Module{Flavour: ptx.SM80, Kernels: []*ptx.Kernel{&k}}) != nil {
				continue
			}
			if _, err := runBatch(&k, l, b, 2*whole.Steps); err == nil {
				t.Errorf("nothing notices the loss of `%s`", trimSpace(&body[i]))
			}
		}
	}
}

// TestBatchRefuses code that depends on the place, and accesses that are neither.
func TestBatchRefuses(t *testing.T) {
	for what, change := range map[string]func(*ptx.Batch){
		"index":  func(b *ptx.Batch) { b.Code[3] = ptx.Instr{Op: "index", Type: ptx.Int64} },
		"stride": func(b *ptx.Batch) { b.Loads[0].Stride = []int64{2} },
		"offset": func(b *ptx.Batch) { b.Loads[0].Offset = 1 },
		"empty":  func(b *ptx.Batch) { b.Sizes[0] = 0 },
		"store":  func(b *ptx.Batch) { b.Stores[0].Stride = []int64{0} },
	} {
		b := update(8)
		change(&b)
		if _, err := b.Build(ptx.SM90); err == nil {
			t.Errorf("%s: built", what)
		}
	}
}
