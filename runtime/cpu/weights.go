package cpu

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// weights is memory of a store that programs read as the weights of products and convolutions, with its packed forms.
// They are there as long as a program that reads them is loaded.
type weights struct {
	source  *kern.Source // of the memory; nil: it stays as it is
	packed  *kern.Weights
	readers int // loaded programs that read the forms
}

// of returns the forms, for one more program.
func (w *weights) of(s *store) *kern.Weights {
	if w.packed == nil {
		w.packed = kern.NewWeights(w.source, s.spareless)
	}
	w.readers++
	return w.packed
}

// release takes a program away.
func (w *weights) release() {
	if w.readers--; w.readers == 0 {
		w.packed.Drop()
	}
}

// changed makes the forms stale.
func (w *weights) changed() {
	if w.packed != nil {
		w.packed.Stale()
	}
}

// spareless is memory for a packed form, nil where there is not enough: kernels then pack in every call.
func (s *store) spareless(n int64) []byte {
	if tight(n) != nil {
		return nil
	}
	return kern.Alloc(n)
}

// bindWeights notes which buffers are weights whose packed forms the program reads: variables and copies of them, where
// it writes none. A store for a single step packs nothing ahead.
func (e *exec) bindWeights(s *store) {
	if len(e.written)+len(e.early) > 0 || s.spares != nil {
		return
	}
	e.weights = map[lower.BufferID]*weights{}
	for i := range e.p.Vars {
		v := &e.p.Vars[i]
		if x := s.vars[v.Name]; x != nil {
			e.weights[v.Buffer] = &x.weights
		}
	}
	for _, c := range e.p.WeightCopies {
		if v := s.vars[c.Var]; v != nil {
			e.weights[c.Buffer] = &v.low[c.DType].weights
		}
	}
}

// fixed is what a kernel needs to read packed forms of a buffer.
func (e *exec) fixed(id lower.BufferID) kern.Fixed {
	if id == lower.None {
		return kern.Fixed{}
	}
	b := &e.p.Buffers[id]
	w := e.weights[b.Root]
	if w == nil {
		return kern.Fixed{}
	}
	forms, known := e.forms[w]
	if !known {
		forms = w.of(e.of.store)
		e.forms[w] = forms
	}
	return kern.Fixed{Weights: forms, At: int((b.Offset - e.p.Buffers[b.Root].Offset) / int64(b.Type.DType.Size()))}
}

// releaseWeights ends the program's use of packed forms.
func (e *exec) releaseWeights() {
	for w := range e.forms {
		w.release()
	}
	e.forms = nil
}

// keepRead has in memory whatever the program reads of variables as it lies, that is not packed ahead.
func (e *exec) keepRead(s *store, refreshes map[int]*refresh) error {
	kept := map[lower.BufferID]bool{}
	for part := range lower.NumParts {
		for i := range e.p.Parts[part] {
			st := &e.p.Parts[part][i]
			if part == lower.Prepare && refreshes[i] != nil {
				continue // it has the variable in memory while it casts
			}
			for k, id := range st.In {
				if id != lower.None && !e.packsAhead(st, k) {
					kept[e.p.Buffers[id].Root] = true
				}
			}
		}
	}
	for _, o := range e.p.Outputs {
		kept[e.p.Buffers[o.Buffer].Root] = true
	}
	for i := range e.p.Vars {
		v := &e.p.Vars[i]
		x := s.vars[v.Name]
		if x == nil || x.weights.source == nil || !kept[v.Buffer] && e.weights != nil {
			continue
		}
		if err := x.weights.source.Keep(); err != nil {
			return err
		}
	}
	return nil
}

// packsAhead reports whether kernels read operand k of a step in a form that is packed ahead, or say so when they do not.
func (e *exec) packsAhead(s *lower.Step, k int) bool {
	if e.p.Buffers[s.In[k]].Type.DType != ir.F32 {
		return false
	}
	switch s.Kind {
	case lower.KindGemm:
		return k < 2 && len(s.Gemm.Batch) <= 2
	case lower.KindConv:
		w := &s.Conv.Window
		return k == 1 && s.Conv.Dir == lower.ConvForward && (w.Groups == 1 || w.Groups < w.C)
	}
	return false
}
