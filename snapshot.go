package ampc

import (
	"fmt"

	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/lower"
)

// Snapshot is a checkpoint in memory: the model as it was when Model.Snapshot
// took it. It may be written while training continues.
type Snapshot struct {
	meta    map[string]string
	tensors []safetensors.Tensor
	vars    []lower.Var
	data    [][]byte

	elsewhere bool // another rank has it
}

// Snapshot copies what SaveFile writes. The copy needs as much memory as the file.
//
// With Parallel.Shard all ranks call it, and only that of rank 0 holds anything: WriteFile of
// the others does nothing.
func (m *Model) Snapshot() (*Snapshot, error) {
	defer m.gate.hold()()
	s := m.session
	if s == nil {
		return nil, fmt.Errorf("nothing to save: %w", m.idle())
	}
	group := s.group()
	snap := &Snapshot{meta: m.header(), elsewhere: group != nil && group.Rank() > 0}
	for _, v := range s.saved() {
		data, err := s.read(v)
		if err != nil {
			return nil, err
		}
		if snap.elsewhere {
			continue
		}
		snap.vars, snap.data = append(snap.vars, v), append(snap.data, data)
		snap.tensors = append(snap.tensors, stored(v, safetensors.Bytes(data)))
	}
	return snap, nil
}

// WriteFile writes the file that SaveFile would have written.
func (s *Snapshot) WriteFile(path string) error {
	if s.elsewhere {
		return nil
	}
	return safetensors.WriteFile(path, s.meta, s.tensors)
}

// NotFinite names a parameter that holds NaN or Inf, "" where none does: such a model has
// nothing left to save. With Parallel.Shard all ranks call it.
func (m *Model) NotFinite() (string, error) {
	defer m.gate.hold()()
	s := m.session
	if s == nil {
		return "", fmt.Errorf("nothing to check: %w", m.idle())
	}
	var bad []uint64 // number of the variable, from 1
	own, err := s.notFinite()
	if w := s.group(); w != nil {
		bad, err = agree(w, "NotFinite (a call of all ranks)", own, err)
	} else {
		bad = []uint64{own}
	}
	for _, n := range bad {
		if n > 0 {
			return s.vars[n-1].Name, nil
		}
	}
	return "", err
}

// notFinite is the number, from 1, of a parameter of which what this process has is not finite; 0:
// there is none.
func (s *session) notFinite() (uint64, error) {
	for i, v := range s.vars {
		if v.Kind != ir.Param || !v.Type.DType.Float() {
			continue
		}
		var data []byte
		var err error
		if p := s.parts[v.Name]; p != nil {
			data = make([]byte, p.part.Type.Bytes())
			err = s.store.Read(p.part.Name, data)
			v = p.part
		} else {
			data, err = s.read(v)
		}
		if err != nil {
			return 0, err
		}
		if !allFinite(HostTensor{Type{v.Type}, data}) {
			return uint64(i + 1), nil
		}
	}
	return 0, nil
}

func allFinite(h HostTensor) bool {
	for k := range h.Len() {
		if !finite(h.At(k)) {
			return false
		}
	}
	return true
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
		if !allFinite(HostTensor{Type{v.Type}, s.data[i]}) {
			return v.Name
		}
	}
	return ""
}
