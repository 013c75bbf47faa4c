package doctor

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"ampc/ir"
	"ampc/runtime/cpu"
)

// flaw says why a tensor is not finite; a greater one is worse.
type flaw uint8

const (
	fine       flaw = iota
	onlyNegInf      // as masks have it
	hasInf          // +Inf among others, no NaN
	hasNaN
)

func (r Range) flaw() flaw {
	switch {
	case r.NaN > 0:
		return hasNaN
	case r.masked():
		return onlyNegInf
	case r.Inf > 0:
		return hasInf
	}
	return fine
}

// flawOf is scan without the range: it counts nothing in finite data and ends at the first NaN.
func (h *workers) flawOf(d ir.DType, data []byte) flaw {
	if len(data) == 0 {
		return fine
	}
	var nan atomic.Bool
	if head := data[:min(piece, len(data))]; h.flawIn(d, head, &nan) == hasNaN { // most that have one have many
		return hasNaN
	}
	parts := make([]flaw, chunks(data))
	h.inChunks(data, func(i int, chunk []byte) { parts[i] = h.flawIn(d, chunk, &nan) })
	return slices.Max(parts)
}

// piece is how many bytes are scanned at a time, at most cpu.ScanBlock elements.
const piece = 2 * cpu.ScanBlock

// flawIn is flawOf of a chunk. It ends early where nan says that there is a NaN,
// here or in another chunk.
func (h *workers) flawIn(d ir.DType, data []byte, nan *atomic.Bool) flaw {
	worst := fine
	for ; len(data) > 0 && !nan.Load(); data = data[min(piece, len(data)):] {
		head := data[:min(piece, len(data))]
		if finite(d, head) {
			continue
		}
		switch c := h.b.Count(d, head); {
		case c.NaN > 0:
			nan.Store(true)
			return hasNaN
		case c.Inf > c.NegInf:
			worst = hasInf
		default:
			worst = max(worst, onlyNegInf)
		}
	}
	return worst
}

// finite reports whether every element is finite. It adds 1 to the exponents of eight bytes at a
// time: only an exponent of ones carries into the sign bit.
func finite(d ir.DType, data []byte) bool {
	var exponents, one, signs uint64
	switch d {
	case ir.F16:
		exponents, one, signs = 0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400, 0x8000_8000_8000_8000
	case ir.BF16:
		exponents, one, signs = 0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000
	case ir.F32:
		exponents, one, signs = 0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000, 0x8000_0000_8000_0000
	default:
		return true
	}
	seen := uint64(0)
	for ; len(data) >= 32; data = data[32:] {
		seen |= binary.LittleEndian.Uint64(data)&exponents + one
		seen |= binary.LittleEndian.Uint64(data[8:])&exponents + one
		seen |= binary.LittleEndian.Uint64(data[16:])&exponents + one
		seen |= binary.LittleEndian.Uint64(data[24:])&exponents + one
	}
	for ; len(data) >= 8; data = data[8:] {
		seen |= binary.LittleEndian.Uint64(data)&exponents + one
	}
	var last [8]byte
	copy(last[:], data)
	seen |= binary.LittleEndian.Uint64(last[:])&exponents + one
	return seen&signs == 0
}
