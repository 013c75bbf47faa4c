//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Attribute numbers of cublasLt.
const (
	descTransA, descTransB, descEpilogue     = 3, 4, 7
	descBias, descAux, descAuxLd             = 8, 11, 12
	descAuxStride, descAuxType, descBiasType = 13, 22, 26
	layoutBatch, layoutStride                = 5, 6
	prefWorkspace, prefReduction, prefAlign  = 1, 3, 5 // the alignments of A, B, C and D follow each other
	opTranspose                              = 1
	reduceInCompute                          = 2 // no partial sums rounded to the output type, as those in place are
	heuristicBytes                           = 96
)

// blasLt is cuBLASLt. It implements Blas.
type blasLt struct {
	lib    *library
	handle uintptr
}

var _ Blas = (*blasLt)(nil)

// OpenBlas opens cuBLASLt for the bound device. The error wraps ErrUnavailable when it is missing.
func OpenBlas() (Blas, error) {
	b, err := openBlas(realFamily().blas)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func openBlas(lib *library) (*blasLt, error) {
	if !lib.loaded() {
		return nil, fmt.Errorf("%w: no cuBLASLt; tried %s; install CUDA's libraries or set AMPC_LIBCUBLASLT", ErrUnavailable, summary(lib.tried))
	}
	b := &blasLt{lib: lib}
	return b, lib.status("cublasLtCreate", uintptr(unsafe.Pointer(&b.handle)))
}

// Version is the library's number.
func (b *blasLt) Version() int { return int(b.lib.call("cublasLtGetVersion")) }

// Close destroys the handle.
func (b *blasLt) Close() error { return b.lib.status("cublasLtDestroy", b.handle) }

type blasPlan struct {
	b           *blasLt
	m           Matmul
	desc        uintptr
	a, bb, c, d uintptr // layouts
}

// Plan makes the descriptors of a problem.
func (b *blasLt) Plan(m Matmul) (BlasPlan, error) {
	p := &blasPlan{b: b, m: m}
	err := b.lib.status("cublasLtMatmulDescCreate", uintptr(unsafe.Pointer(&p.desc)), uintptr(m.Compute), uintptr(R32F))
	if err == nil {
		err = p.describe()
	}
	for _, l := range []struct {
		to         *uintptr
		rows, cols int64
		trans      bool
		mat        Matrix
	}{
		{&p.a, m.M, m.K, m.TransA, m.A}, {&p.bb, m.K, m.N, m.TransB, m.B}, {&p.c, m.M, m.N, false, m.C}, {&p.d, m.M, m.N, false, m.D},
	} {
		if err != nil {
			break
		}
		if l.trans {
			l.rows, l.cols = l.cols, l.rows
		}
		err = p.layout(l.to, l.rows, l.cols, l.mat)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// unset is the address of the bias and the auxiliary matrix before Run sets them. The heuristics
// derive the alignment from these addresses, and refuse an epilogue without them.
const unset = 256

// describe sets the attributes that do not change from run to run. It sets only types that differ
// from the result's: the library requires the others to be left at their defaults.
func (p *blasPlan) describe() error {
	op := func(t bool) int32 {
		if t {
			return opTranspose
		}
		return 0
	}
	err := errors.Join(p.set32(descTransA, op(p.m.TransA)), p.set32(descTransB, op(p.m.TransB)), p.set32(descEpilogue, int32(p.m.Epilogue)))
	if p.m.Epilogue.HasBias() {
		err = errors.Join(err, p.set64(descBias, unset))
		if p.m.BiasType != p.m.D.Type {
			err = errors.Join(err, p.set32(descBiasType, int32(p.m.BiasType)))
		}
	}
	if p.m.Epilogue.HasAux() {
		err = errors.Join(err, p.set64(descAux, unset), p.set64(descAuxLd, p.m.AuxLd))
		if !p.m.Epilogue.MasksAux() && p.m.AuxType != p.m.D.Type {
			err = errors.Join(err, p.set32(descAuxType, int32(p.m.AuxType)))
		}
		if p.m.Batch > 1 {
			err = errors.Join(err, p.set64(descAuxStride, p.m.AuxStride))
		}
	}
	return err
}

func (p *blasPlan) set32(attr int, v int32) error {
	return p.b.lib.status("cublasLtMatmulDescSetAttribute", p.desc, uintptr(attr), uintptr(unsafe.Pointer(&v)), 4)
}

func (p *blasPlan) set64(attr int, v int64) error {
	return p.b.lib.status("cublasLtMatmulDescSetAttribute", p.desc, uintptr(attr), uintptr(unsafe.Pointer(&v)), 8)
}

func (p *blasPlan) layout(to *uintptr, rows, cols int64, m Matrix) error {
	lib := p.b.lib
	err := lib.status("cublasLtMatrixLayoutCreate", uintptr(unsafe.Pointer(to)), uintptr(m.Type), uintptr(rows), uintptr(cols), uintptr(m.Ld))
	if err != nil || p.m.Batch <= 1 {
		return err
	}
	count, stride := int32(p.m.Batch), m.Stride
	return errors.Join(
		lib.status("cublasLtMatrixLayoutSetAttribute", *to, layoutBatch, uintptr(unsafe.Pointer(&count)), 4),
		lib.status("cublasLtMatrixLayoutSetAttribute", *to, layoutStride, uintptr(unsafe.Pointer(&stride)), 8))
}

// Close destroys the descriptors.
func (p *blasPlan) Close() error {
	var err error
	for _, l := range []uintptr{p.a, p.bb, p.c, p.d} {
		if l != 0 {
			err = errors.Join(err, p.b.lib.status("cublasLtMatrixLayoutDestroy", l))
		}
	}
	if p.desc != 0 {
		err = errors.Join(err, p.b.lib.status("cublasLtMatmulDescDestroy", p.desc))
	}
	return err
}

// heuristic is cublasLtMatmulHeuristicResult_t.
type heuristic struct {
	algo      [8]uint64
	workspace uint64
	state     int32
	waves     float32
	_         [4]int32
}

// Algos asks the heuristics.
func (p *blasPlan) Algos(workspace int64, n int) ([]Algo, error) {
	lib := p.b.lib
	var pref uintptr
	if err := lib.status("cublasLtMatmulPreferenceCreate", uintptr(unsafe.Pointer(&pref))); err != nil {
		return nil, err
	}
	defer lib.call("cublasLtMatmulPreferenceDestroy", pref)
	ws := uint64(workspace)
	if err := lib.status("cublasLtMatmulPreferenceSetAttribute", pref, prefWorkspace, uintptr(unsafe.Pointer(&ws)), 8); err != nil {
		return nil, err
	}
	if p.m.D.Type != R32F { // partial sums in f16 could overflow, in bf16 they lose bits
		mask := uint32(reduceInCompute)
		if err := lib.status("cublasLtMatmulPreferenceSetAttribute", pref, prefReduction, uintptr(unsafe.Pointer(&mask)), 4); err != nil {
			return nil, err
		}
	}
	if align := uint32(p.m.Align); align != 0 {
		for i := range 4 {
			if err := lib.status("cublasLtMatmulPreferenceSetAttribute", pref, uintptr(prefAlign+i), uintptr(unsafe.Pointer(&align)), 4); err != nil {
				return nil, err
			}
		}
	}
	results := make([]heuristic, n)
	var got int32
	err := lib.status("cublasLtMatmulAlgoGetHeuristic", p.b.handle, p.desc, p.a, p.bb, p.c, p.d, pref,
		uintptr(n), uintptr(unsafe.Pointer(&results[0])), uintptr(unsafe.Pointer(&got)))
	var out []Algo
	for _, r := range results[:min(max(int(got), 0), n)] {
		if r.state == 0 {
			out = append(out, Algo{Words: r.algo, Workspace: int64(r.workspace), Waves: r.waves})
		}
	}
	if err == nil && len(out) == 0 {
		err = &Error{Lib: libBlas, Call: "cublasLtMatmulAlgoGetHeuristic", Code: blasNotSupported, Name: "no algorithm"}
	}
	return out, err
}

// Run starts the product.
func (p *blasPlan) Run(algo Algo, alpha, beta float32, o Operands, s Stream) error {
	if p.m.Epilogue.HasBias() {
		if err := p.set64(descBias, int64(o.Bias)); err != nil {
			return err
		}
	}
	if p.m.Epilogue.HasAux() {
		if err := p.set64(descAux, int64(o.Aux)); err != nil {
			return err
		}
	}
	err := p.b.lib.status("cublasLtMatmul", p.b.handle, p.desc, uintptr(unsafe.Pointer(&alpha)),
		uintptr(o.A), p.a, uintptr(o.B), p.bb, uintptr(unsafe.Pointer(&beta)), uintptr(o.C), p.c, uintptr(o.D), p.d,
		uintptr(unsafe.Pointer(&algo.Words[0])), uintptr(o.Workspace), uintptr(o.WorkspaceBytes), uintptr(s))
	runtime.KeepAlive(&algo)
	return err
}
