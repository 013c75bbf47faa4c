package weights

import (
	"fmt"
	"io"
	"math"

	"ampc"
	"ampc/internal/fp"
	"ampc/internal/safetensors"
)

// Save writes the parameters and running statistics of m, of which a step must be
// compiled, to a safetensors file, and no training state: as f32, or as the dtype of
// As. Names and transpositions are those by which Load with the same options reads the
// file; with PyTorch, torch.nn modules do. The file appears as a whole or not at all.
func Save(m *ampc.Model, path string, opts ...Option) error {
	r, err := rulesOf(opts)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(m.Variables()) == 0 {
		return fmt.Errorf("%s: nothing to save: no step of the model is compiled yet", path)
	}
	var torch layout
	if r.torch {
		torch = torchLayout(m.Graph())
	}
	var tensors []safetensors.Tensor
	for _, v := range variables(m) {
		p := r.places(v.Name, torch)[0]
		shape := []int64{}
		for _, d := range v.Type.Shape.Dims() {
			shape = append(shape, int64(d))
		}
		turn := p.turn && len(shape) == 2
		d := ampc.DType(v.Type.DType)
		if d.Float() {
			d = r.dtype
		}
		tensors = append(tensors, safetensors.Tensor{
			Name: p.name, DType: safetensors.Named(d.String()), Shape: turned(shape, turn),
			Write: func(w io.Writer) error { return write(w, m, v.Name, shape, turn, d) },
		})
	}
	return safetensors.WriteFile(path, map[string]string{"format": "pt"}, tensors)
}

func turned(shape []int64, turn bool) []int64 {
	if turn {
		return []int64{shape[1], shape[0]}
	}
	return shape
}

// write writes what a variable holds.
func write(w io.Writer, m *ampc.Model, name string, shape []int64, turn bool, d ampc.DType) error {
	h, err := m.Variable(name)
	if err != nil {
		return err
	}
	t := &tensor{name: name, dtype: h.Type.DType(), shape: shape, data: h.Bytes}
	if turn {
		t = t.transposed()
	}
	b := t.dense(nil)
	if t.dtype != d {
		if b, err = narrowed(ampc.HostTensor{Type: t.Type(), Bytes: b}, d); err != nil {
			return err
		}
	}
	_, err = w.Write(b)
	return err
}

// narrowed are the elements of a float tensor as another float dtype.
func narrowed(h ampc.HostTensor, d ampc.DType) ([]byte, error) {
	x := h.Floats()
	if d == ampc.F16 {
		for i, v := range x {
			if y := fp.F16ToF32(fp.F16(v)); math.IsInf(float64(y), 0) && !math.IsInf(float64(v), 0) {
				return nil, fmt.Errorf("element %d is %g, beyond the range of f16: save as bf16 or f32", i, v)
			}
		}
	}
	n, err := ampc.NewHostTensor(h.Type.With(d), x)
	return n.Bytes, err
}
