package ampc

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// StoredRange is what a 16-bit value held when a step stored it.
type StoredRange struct {
	Value  string  // its name in the compiled graph
	DType  DType   // F16 or BF16
	AbsMax float64 // the largest finite magnitude
	Finite bool    // all elements are
	High   float64 // AbsMax over the largest number of the dtype
	Low    float64 // AbsMax over the smallest number of the dtype
}

// Watch makes later steps call f with the range of each 16-bit value that is computed, as soon as it
// is stored; values that stay in registers of a cluster are not. Such a step runs alone and reads
// once more what it writes. nil ends it. Watch returns false where the backend cannot: on GPUs.
func (s *Step) Watch(f func(StoredRange)) bool {
	defer s.model.gate.hold()()
	exec, ok := s.exec.(runtime.Traceable)
	b, counts := s.model.session.backend.(counter)
	if !ok || !counts {
		return false
	}
	if f == nil {
		exec.Trace(runtime.Tracer{})
		return true
	}
	exec.Trace(runtime.Tracer{Step: func(part lower.Part, i int) bool {
		for _, id := range s.program.Parts[part][i].Out {
			if id == lower.None || !s.program.Buffers[id].Type.DType.Low() {
				continue
			}
			buf := &s.program.Buffers[id]
			shown := exec.Buffer(id)
			f(storedRange(b, buf.Name, buf.Type.DType, shown.Bytes()))
			shown.Release()
		}
		return true
	}})
	return true
}

// counter is a backend whose values are in this process's memory, and that finds their range.
type counter interface {
	Count(d ir.DType, data []byte) cpu.Counts
}

func storedRange(b counter, name string, d ir.DType, data []byte) StoredRange {
	c := b.Count(d, data)
	most := max(float64(c.Hi), -float64(c.Lo), 0)
	return StoredRange{name, DType(d), most, c.NaN+c.Inf == 0, most / d.Max(), most / d.SmallestSubnormal()}
}
