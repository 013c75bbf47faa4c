package world

import (
	"encoding/binary"
	"math"
	"unsafe"

	"ampc/internal/fp"
	"ampc/ir"
)

// Segment is the range of elements, as they are packed, that rank r of size ranks adds up.
func (m *Message) Segment(r, size int) (from, to int) {
	n := m.Elements()
	return n/size*r + min(r, n%size), n/size*(r+1) + min(r+1, n%size)
}

// Pack writes the operands as they are sent to size ranks to dst, which has Bytes bytes: one
// after the other, or with Scatter the parts of the first rank, those of the second, and so on.
func (m *Message) Pack(dst []byte, size int) {
	rounds := 1
	if m.Scatter {
		rounds = size
	}
	at := 0
	for r := range rounds {
		for _, in := range m.In {
			n := len(in) / int(m.DType.Size()) / rounds
			part := len(in) / rounds
			m.pack(dst[at*m.unit():(at+n)*m.unit()], in[r*part:(r+1)*part])
			at += n
		}
	}
}

// Unpack writes the results that src holds, as they were sent, to Out: of a Scatter the
// segment of this rank alone, of a Gather the bytes of all ranks.
func (m *Message) Unpack(src []byte) {
	if m.Op == Gather {
		m.unpackParts(src)
		return
	}
	at := 0
	for _, out := range m.Out {
		n := len(out) / int(m.DType.Size())
		m.unpack(out, src[at*m.unit():(at+n)*m.unit()])
		at += n
	}
}

// unpackParts writes what was gathered of each tensor, in order of ranks.
func (m *Message) unpackParts(src []byte) {
	for r := 0; len(src) > 0; r++ {
		for i, in := range m.In {
			copy(m.Out[i][min(r*len(in), len(m.Out[i])):], src[:len(in)])
			src = src[len(in):]
		}
	}
}

var le = binary.LittleEndian

func (m *Message) pack(dst, src []byte) {
	down := float32(math.Ldexp(1, -m.Shift))
	switch d := m.DType; {
	case m.Plain():
		copy(dst, src)
	case !d.Float():
		for i := range len(dst) / 8 {
			le.PutUint64(dst[8*i:], uint64(loadInt(src, d, i)))
		}
	default:
		for i := range len(dst) / m.unit() {
			m.store(dst, i, loadFloat(src, d, i)*down)
		}
	}
}

func (m *Message) unpack(dst, src []byte) {
	up := float32(math.Ldexp(1, m.Shift))
	switch d := m.DType; {
	case m.Plain():
		copy(dst, src)
	case !d.Float():
		for i := range len(src) / 8 {
			storeInt(dst, d, i, int64(le.Uint64(src[8*i:])))
		}
	default:
		for i := range len(src) / m.unit() {
			storeFloat(dst, d, i, loadFloat(src, m.Wire, i)*up)
		}
	}
}

// Reduce makes one of the ranks' parts, in their order, as they were sent. The result
// lies in dst, which may be any of them. Gather has nothing to reduce: dst takes the
// parts one after the other and is none of them.
func (m *Message) Reduce(dst []byte, parts [][]byte) {
	switch {
	case m.Op == Gather:
		for i, p := range parts {
			copy(dst[i*len(p):], p)
		}
	case m.DType == ir.F64:
		for i := range len(dst) / 8 {
			y := reduced(m, len(parts), func(r int) float64 { return math.Float64frombits(le.Uint64(parts[r][8*i:])) })
			le.PutUint64(dst[8*i:], math.Float64bits(mean(m.Op, y, len(parts))))
		}
	case !m.DType.Float():
		for i := range len(dst) / 8 {
			y := int64(le.Uint64(parts[0][8*i:]))
			for _, p := range parts[1:] {
				x := int64(le.Uint64(p[8*i:]))
				if m.Op == Max {
					y = max(y, x)
				} else {
					y += x
				}
			}
			le.PutUint64(dst[8*i:], uint64(y))
		}
	case m.Wire == ir.F32 && m.Tree:
		tree32(dst, parts)
	case m.Wire == ir.F32 && m.Op == Sum:
		sum32(dst, parts)
	default:
		for i := range len(dst) / m.unit() {
			y := reduced(m, len(parts), func(r int) float32 { return loadFloat(parts[r], m.Wire, i) })
			if m.Op == Mean {
				y /= float32(len(parts))
			}
			m.store(dst, i, y)
		}
	}
}

// sum32 adds f32 parts element by element, in blocks that stay in the first cache: dst may be one of
// the parts that are added last.
func sum32(dst []byte, parts [][]byte) {
	if len(parts) == 2 {
		add32(floats(dst), floats(parts[0]), floats(parts[1]))
		return
	}
	var block [1024]float32
	for at, n := 0, len(dst)/4; at < n; at += len(block) {
		end := min(at+len(block), n)
		y := block[:end-at]
		copy(y, floats(parts[0])[at:end])
		for _, p := range parts[1:] {
			add32(y, y, floats(p)[at:end])
		}
		copy(floats(dst)[at:end], y)
	}
}

// add32 adds two parts.
func add32(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for len(y) >= 8 {
		y8, a8, b8 := (*[8]float32)(y), (*[8]float32)(a), (*[8]float32)(b)
		y8[0], y8[1], y8[2], y8[3] = a8[0]+b8[0], a8[1]+b8[1], a8[2]+b8[2], a8[3]+b8[3]
		y8[4], y8[5], y8[6], y8[7] = a8[4]+b8[4], a8[5]+b8[5], a8[6]+b8[6], a8[7]+b8[7]
		y, a, b = y[8:], a[8:], b[8:]
	}
	for i := range y {
		y[i] = a[i] + b[i]
	}
}

// floats is the memory of f32 elements.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// tree32 adds f32 parts element by element: neighbours first, then their sums.
func tree32(dst []byte, parts [][]byte) {
	x := make([]float32, len(parts))
	for i := 0; i+4 <= len(dst); i += 4 {
		for r, p := range parts {
			x[r] = math.Float32frombits(le.Uint32(p[i:]))
		}
		for apart := 1; apart < len(x); apart *= 2 {
			for r := 0; r+apart < len(x); r += 2 * apart {
				x[r] += x[r+apart]
			}
		}
		le.PutUint32(dst[i:], math.Float32bits(x[0]))
	}
}

// reduced joins one element of n ranks: in their order, or as a tree.
func reduced[T float32 | float64](m *Message, n int, x func(r int) T) T {
	if m.Tree && n > 1 {
		half := n / 2
		return reduced(m, half, x) + reduced(m, n-half, func(r int) T { return x(half + r) })
	}
	y := x(0)
	for r := 1; r < n; r++ {
		y = join(m.Op, y, x(r))
	}
	return y
}

func join[T float32 | float64](op Op, x, y T) T {
	if op != Max {
		return x + y
	}
	if y != y || y > x {
		return y
	}
	return x
}

func mean(op Op, y float64, n int) float64 {
	if op == Mean {
		return y / float64(n)
	}
	return y
}

func loadFloat(p []byte, d ir.DType, i int) float32 {
	switch d {
	case ir.F16:
		return fp.F16ToF32(le.Uint16(p[2*i:]))
	case ir.BF16:
		return fp.BF16ToF32(le.Uint16(p[2*i:]))
	}
	return math.Float32frombits(le.Uint32(p[4*i:]))
}

func storeFloat(p []byte, d ir.DType, i int, x float32) {
	switch d {
	case ir.F16:
		le.PutUint16(p[2*i:], fp.F16(x))
	case ir.BF16:
		le.PutUint16(p[2*i:], fp.BF16(x))
	default:
		le.PutUint32(p[4*i:], math.Float32bits(x))
	}
}

func (m *Message) store(p []byte, i int, x float32) { storeFloat(p, m.Wire, i, x) }

func loadInt(p []byte, d ir.DType, i int) int64 {
	switch d {
	case ir.I32:
		return int64(int32(le.Uint32(p[4*i:])))
	case ir.U32:
		return int64(le.Uint32(p[4*i:]))
	case ir.I16:
		return int64(int16(le.Uint16(p[2*i:])))
	case ir.U16:
		return int64(le.Uint16(p[2*i:]))
	case ir.I8:
		return int64(int8(p[i]))
	case ir.U8, ir.Bool:
		return int64(p[i])
	}
	return int64(le.Uint64(p[8*i:]))
}

func storeInt(p []byte, d ir.DType, i int, x int64) {
	switch d.Size() {
	case 1:
		p[i] = byte(x)
	case 2:
		le.PutUint16(p[2*i:], uint16(x))
	case 4:
		le.PutUint32(p[4*i:], uint32(x))
	default:
		le.PutUint64(p[8*i:], uint64(x))
	}
}
