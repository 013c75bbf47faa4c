package convert

import (
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"ampc/internal/fp"
	"ampc/ir"
	"ampc/onnx"
)

// largest is the largest finite magnitude.
func (p *convertPlan) largest(t *onnx.Tensor) (float64, error) {
	b, err := p.m.Bytes(t)
	if err != nil {
		return 0, err
	}
	parts := split(b)
	found := make([]uint32, len(parts))
	err = p.m.Guard(func() error {
		together(len(parts), func(i int) { found[i] = largest(parts[i]) })
		return nil
	})
	return float64(math.Float32frombits(slices.Max(append(found, 0)))), err
}

// largest are the bits of the largest finite magnitude, which are in the order of the
// magnitudes.
func largest(b []byte) (most uint32) {
	for ; len(b) >= 4; b = b[4:] {
		if a := binary.LittleEndian.Uint32(b) &^ (1 << 31); a > most && a < 0x7f800000 {
			most = a
		}
	}
	return most
}

// split cuts floats into parts of a chunk.
func split(b []byte) (parts [][]byte) {
	for len(b) > chunk {
		parts, b = append(parts, b[:chunk]), b[chunk:]
	}
	return append(parts, b)
}

// together runs f for all i on all processors. A panic of any is the caller's: of a
// mapped file that became shorter.
func together(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	var fault atomic.Pointer[any]
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if r := recover(); r != nil {
					fault.Store(&r)
				}
			}()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
	if r := fault.Load(); r != nil {
		panic(*r)
	}
}

// narrowed is t in 16 bits. It is converted in pieces, as it is written.
func (p *convertPlan) narrowed(t *onnx.Tensor) (onnx.NewTensor, error) {
	b, err := p.m.Bytes(t)
	if err != nil {
		return onnx.NewTensor{}, err
	}
	round := roundF16
	if p.low == ir.BF16 {
		round = roundBF16
	}
	return onnx.NewTensor{DType: p.lowType(), Size: int64(len(b) / 2), Write: func(w io.Writer) error {
		parts := split(b)
		out := make([]byte, min(len(b)/2, ahead*chunk/2))
		for len(parts) > 0 {
			now := parts[:min(ahead, len(parts))]
			size := 0
			for _, x := range now {
				size += len(x) / 2
			}
			together(len(now), func(i int) { round(out[i*chunk/2:], now[i]) })
			if _, err := w.Write(out[:size]); err != nil {
				return err
			}
			parts = parts[len(now):]
		}
		return nil
	}}, nil
}

// roundF16 and roundBF16 round the floats of from to 16 bits.
func roundF16(to, from []byte) {
	for ; len(from) >= 4 && len(to) >= 2; from, to = from[4:], to[2:] {
		binary.LittleEndian.PutUint16(to, fp.F16(math.Float32frombits(binary.LittleEndian.Uint32(from))))
	}
}

func roundBF16(to, from []byte) {
	for ; len(from) >= 4 && len(to) >= 2; from, to = from[4:], to[2:] {
		binary.LittleEndian.PutUint16(to, fp.BF16(math.Float32frombits(binary.LittleEndian.Uint32(from))))
	}
}

// chunk is how many bytes are converted at a time, on one processor; ahead is how many
// of them are written at once.
const (
	chunk = 1 << 20
	ahead = 8
)

func elements(t *onnx.Tensor) int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}
