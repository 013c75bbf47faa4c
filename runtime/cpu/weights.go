package cpu

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// weights is memory of a store that programs read as weights of products and convolutions, with its
// packed forms. The packed forms exist as long as a program that reads them is loaded.
type weights struct {
	source  *kern.Source // source of the content; nil: the memory stays allocated
	packed  *kern.Weights
	readers int // number of loaded programs that read the packed forms
}

// of returns the packed forms and counts one more reader.
func (w *weights) of(s *store) *kern.Weights {
	if w.packed == nil {
		w.packed = kern.NewWeights(w.source, s.tryAlloc)
	}
	w.readers++
	return w.packed
}

// release counts one reader less.
func (w *weights) release() {
	if w.readers--; w.readers == 0 {
		w.packed.Drop()
	}
}

// changed marks the packed forms as stale.
func (w *weights) changed() {
	if w.packed != nil {
		w.packed.Stale()
	}
}

// tryAlloc allocates memory for a packed form. It returns nil if there is not enough; kernels then
// pack in every call.
func (s *store) tryAlloc(n int64) *kern.Block {
	if exceeded(n) != nil {
		return nil
	}
	b := s.b.newBlock(n)
	s.place(s.b.m, b, nil)
	return b
}

// bindWeights finds the buffers that are weights whose packed forms the program may read:
// variables, and copies of them, that it does not write. A store for a single step packs nothing in
// advance.
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
	for i := range e.derived {
		e.weights[e.p.Derived[i].Buffer] = &e.derived[i].weights
	}
	for _, c := range e.p.WeightCopies {
		if v := s.vars[c.Var]; v != nil {
			e.weights[c.Buffer] = &v.low[c.DType].weights
		}
	}
}

// fixed returns what a kernel needs to read packed forms of a buffer.
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

// keepUnpacked keeps in memory the variables that the program reads in any form other than one
// packed in advance.
func (e *exec) keepUnpacked(s *store, refreshes map[int]*refresh) error {
	kept := map[lower.BufferID]bool{}
	for part := range lower.NumParts {
		for i := range e.p.Parts[part] {
			st := &e.p.Parts[part][i]
			if part == lower.Prepare && (refreshes[i] != nil || len(e.derived) > 0 && e.derivedSteps[i]) {
				continue // the step loads the variable while it runs
			}
			for k, id := range st.In {
				if id != lower.None && !e.packsInAdvance(st, k) {
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

// packsInAdvance reports whether kernels take operand k of a step in a form that is packed in
// advance. A kernel that then needs the plain memory asks for it when it runs.
func (e *exec) packsInAdvance(s *lower.Step, k int) bool {
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
