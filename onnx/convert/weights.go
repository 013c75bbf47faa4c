package convert

import (
	"encoding/binary"
	"io"
	"math"

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
	most := uint32(0) // magnitudes are in the order of their bits
	for ; len(b) >= 4; b = b[4:] {
		if a := binary.LittleEndian.Uint32(b) &^ (1 << 31); a > most && a < 0x7f800000 {
			most = a
		}
	}
	return float64(math.Float32frombits(most)), nil
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
		out := make([]byte, min(len(b)/2, chunk))
		for rest := b; len(rest) > 0; {
			n := min(len(rest), 2*chunk)
			round(out, rest[:n])
			if _, err := w.Write(out[:n/2]); err != nil {
				return err
			}
			rest = rest[n:]
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

// chunk is how many bytes are converted at a time.
const chunk = 1 << 20

func elements(t *onnx.Tensor) int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}
