package convert

import (
	"encoding/binary"
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

// narrowed are the elements in 16 bits.
func (p *convertPlan) narrowed(t *onnx.Tensor) ([]byte, error) {
	round := fp.F16
	if p.low == ir.BF16 {
		round = fp.BF16
	}
	var out []byte
	err := p.each(t, func(x float32) { out = binary.LittleEndian.AppendUint16(out, round(x)) })
	return out, err
}
