package ampc

import (
	"fmt"
	"io"
	"math"

	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/lower"
)

// Snapshot is a checkpoint in memory: the model as it was when Model.Snapshot
// took it. It may be written while training goes on.
type Snapshot struct {
	meta    map[string]string
	tensors []safetensors.Tensor
	vars    []lower.Var
	data    [][]byte
}

// Snapshot copies what SaveFile writes. It takes as much memory as the file.
func (m *Model) Snapshot() (*Snapshot, error) {
	defer m.gate.hold()()
	s := m.session
	if s == nil {
		return nil, fmt.Errorf("nothing to save: %w", m.idle())
	}
	snap := &Snapshot{meta: m.header()}
	for _, v := range s.vars {
		if !lasting(v) {
			continue
		}
		data, err := s.read(v)
		if err != nil {
			return nil, err
		}
		snap.vars, snap.data = append(snap.vars, v), append(snap.data, data)
		snap.tensors = append(snap.tensors, stored(v, safetensors.Bytes(data)))
	}
	return snap, nil
}

// WriteFile writes the file that SaveFile would have written.
func (s *Snapshot) WriteFile(path string) error {
	return safetensors.WriteFile(path, s.meta, s.tensors)
}

// Bytes is the size of the tensors in bytes; the file is a little larger.
func (s *Snapshot) Bytes() (n int64) {
	for _, d := range s.data {
		n += int64(len(d))
	}
	return n
}

// NotFinite names a parameter that holds NaN or Inf, "" where none does: such a
// model has nothing left to save.
func (s *Snapshot) NotFinite() string {
	for i, v := range s.vars {
		if v.Kind != ir.Param || !v.Type.DType.Float() {
			continue
		}
		h := Host{Type{v.Type}, s.data[i]}
		for k := range h.Len() {
			if x := h.At(k); math.IsNaN(x) || math.IsInf(x, 0) {
				return v.Name
			}
		}
	}
	return ""
}

// header is the metadata of a checkpoint.
func (m *Model) header() map[string]string {
	meta := map[string]string{metaFormat: format, metaModel: m.Graph().Name, metaPolicy: m.session.policyList()}
	for k, v := range m.session.meta {
		meta[userPrefix+k] = v
	}
	return meta
}

// stored is how a variable lies in a checkpoint.
func stored(v lower.Var, write func(io.Writer) error) safetensors.Tensor {
	return safetensors.Tensor{Name: v.Name, DType: safetensors.Named(v.Type.DType.String()), Shape: sizes(v.Type.Shape), Write: write}
}
