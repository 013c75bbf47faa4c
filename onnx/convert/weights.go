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

// Kernels are the loops over the elements of weights. Any number of goroutines may
// call them.
type Kernels interface {
	// AbsMax is the largest magnitude among f32 elements, +Inf where one is not finite.
	AbsMax(data []byte) float64
	// Narrow rounds f32 elements to the 16-bit dtype d.
	Narrow(to []byte, d ir.DType, from []byte)
}

// largest is the largest finite magnitude.
func (p *convertPlan) largest(t *onnx.Tensor) (float64, error) {
	b, err := p.m.Bytes(t)
	if err != nil {
		return 0, err
	}
	parts := split(b)
	found := make([]float64, len(parts))
	err = p.m.Guard(func() error {
		together(len(parts), func(i int) {
			aligned(parts[i], func(_ int, x []byte) { found[i] = max(found[i], p.absMax(x)) })
		})
		return nil
	})
	return slices.Max(append(found, 0)), err
}

// absMax is the largest finite magnitude of some floats.
func (p *convertPlan) absMax(b []byte) float64 {
	if p.kernels != nil {
		if top := p.kernels.AbsMax(b); !math.IsInf(top, 1) {
			return top
		}
	}
	most := uint32(0) // the order of the bits is that of the magnitudes
	for ; len(b) >= 4; b = b[4:] {
		if a := binary.LittleEndian.Uint32(b) &^ (1 << 31); a > most && a < 0x7f800000 {
			most = a
		}
	}
	return float64(math.Float32frombits(most))
}

// block is how many floats a kernel takes at once: they stay in the first cache.
const block = 2048

// aligned passes the floats of b to f in blocks, with their positions. A file may have them at any
// address, while kernels read aligned ones. Only this function reads memory of a file.
func aligned(b []byte, f func(at int, x []byte)) {
	buffer := make([]byte, 4*block)
	for at := 0; at < len(b); at += len(buffer) {
		f(at, buffer[:copy(buffer, b[at:])])
	}
}

// split cuts floats into parts of a chunk.
func split(b []byte) (parts [][]byte) {
	for len(b) > chunk {
		parts, b = append(parts, b[:chunk]), b[chunk:]
	}
	return append(parts, b)
}

// together runs f for all i on all processors. A panic of any f is raised in the caller; it may
// come from a mapped file that became shorter.
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

// narrowed is t in 16 bits. It is converted in pieces: while one is written, the next is
// converted.
func (p *convertPlan) narrowed(t *onnx.Tensor) (onnx.NewTensor, error) {
	b, err := p.m.Bytes(t)
	if err != nil {
		return onnx.NewTensor{}, err
	}
	return onnx.NewTensor{DType: p.lowType(), Size: int64(len(b) / 2), Write: func(w io.Writer) error {
		var room [2][]byte
		var failed error
		var writing sync.WaitGroup
		defer writing.Wait() // also when a fault of the file ends this
		for parts, k := split(b), 0; len(parts) > 0; k++ {
			now := parts[:min(ahead, len(parts))]
			parts = parts[len(now):]
			if room[k%2] == nil {
				room[k%2] = make([]byte, min(len(b)/2, ahead*chunk/2))
			}
			out, size := room[k%2], 0
			for _, x := range now {
				size += len(x) / 2
			}
			together(len(now), func(i int) { p.narrow(out[i*chunk/2:], now[i]) })
			if writing.Wait(); failed != nil {
				return failed
			}
			writing.Go(func() { _, failed = w.Write(out[:size]) })
		}
		writing.Wait()
		return failed
	}}, nil
}

// narrow rounds the floats of from to 16 bits.
func (p *convertPlan) narrow(to, from []byte) {
	if p.kernels != nil {
		aligned(from, func(at int, x []byte) { p.kernels.Narrow(to[at/2:at/2+len(x)/2], p.low, x) })
		return
	}
	round := fp.F16
	if p.low == ir.BF16 {
		round = fp.BF16
	}
	for ; len(from) >= 4 && len(to) >= 2; from, to = from[4:], to[2:] {
		binary.LittleEndian.PutUint16(to, round(math.Float32frombits(binary.LittleEndian.Uint32(from))))
	}
}

// chunk is how many bytes are converted at a time, on one processor; ahead is how many
// of them are written at once.
const (
	chunk = 1 << 20
	ahead = 4
)

func elements(t *onnx.Tensor) int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}
