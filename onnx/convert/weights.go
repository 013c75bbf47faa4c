package convert

import (
	"encoding/binary"
	"io"
	"math"

	"ampc/internal/fp"
	"ampc/ir"
	"ampc/onnx"
)

// each calls f for the elements of a tensor of floats.
func (p *convertPlan) each(t *onnx.Tensor, f func(x float32)) error {
	b, err := p.m.Bytes(t)
	if err != nil {
		return err
	}
	for ; len(b) >= 4; b = b[4:] {
		f(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return nil
}

// largest is the largest finite magnitude.
func (p *convertPlan) largest(t *onnx.Tensor) (most float64, err error) {
	err = p.each(t, func(x float32) {
		if a := math.Abs(float64(x)); a > most && !math.IsInf(a, 0) {
			most = a
		}
	})
	return most, err
}

// narrowed is t in 16 bits. It is converted in pieces, as it is written.
func (p *convertPlan) narrowed(t *onnx.Tensor) (onnx.NewTensor, error) {
	b, err := p.m.Bytes(t)
	if err != nil {
		return onnx.NewTensor{}, err
	}
	round := fp.F16
	if p.low == ir.BF16 {
		round = fp.BF16
	}
	return onnx.NewTensor{DType: p.lowType(), Size: int64(len(b) / 2), Write: func(w io.Writer) error {
		out := make([]byte, 0, min(len(b)/2, chunk))
		for rest := b; len(rest) > 0; {
			out = out[:0]
			for ; len(rest) > 0 && len(out) < chunk; rest = rest[4:] {
				out = binary.LittleEndian.AppendUint16(out, round(math.Float32frombits(binary.LittleEndian.Uint32(rest))))
			}
			if _, err := w.Write(out); err != nil {
				return err
			}
		}
		return nil
	}}, nil
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
