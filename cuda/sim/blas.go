package sim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"ampc/cuda"
	"ampc/internal/fp"
)

// Blas simulates cuBLASLt. A product is accumulated in f32, in an order that depends on the algorithm;
// the epilogue is computed in f32, and its result is rounded to the output type.
type Blas struct {
	d *Device
}

var _ cuda.Blas = (*Blas)(nil)

// Blas opens the library of the device.
func (d *Device) Blas() *Blas { return &Blas{d} }

// OpenBlas opens the library as a device does that may fail to.
func (d *Device) OpenBlas() (cuda.Blas, error) {
	if err := d.fault("cublasLtCreate"); err != nil {
		return nil, err
	}
	return d.Blas(), nil
}

// Version is that of the library the rules were taken from.
func (b *Blas) Version() int { return 120405 }

// Close does nothing.
func (b *Blas) Close() error { return nil }

const (
	statusInvalid      = 7
	statusFailed       = 13
	statusNotSupported = 15
)

type plan struct {
	b *Blas
	m cuda.Matmul
}

// Plan checks a problem by the library's rules.
func (b *Blas) Plan(m cuda.Matmul) (cuda.BlasPlan, error) {
	const call = "cublasLtMatmulDescCreate"
	if m.M < 1 || m.N < 1 || m.K < 1 {
		return nil, blasError(call, statusInvalid, "M=%d N=%d K=%d", m.M, m.N, m.K)
	}
	for _, l := range []struct {
		name string
		rows int64
		mat  cuda.Matrix
	}{
		{"A", pick(m.TransA, m.K, m.M), m.A}, {"B", pick(m.TransB, m.N, m.K), m.B}, {"C", m.M, m.C}, {"D", m.M, m.D},
	} {
		if l.mat.Ld < l.rows {
			return nil, blasError(call, statusInvalid, "%s has %d rows and leading dimension %d", l.name, l.rows, l.mat.Ld)
		}
	}
	return &plan{b, m}, nil
}

func pick(c bool, a, b int64) int64 {
	if c {
		return a
	}
	return b
}

// Close does nothing.
func (p *plan) Close() error { return nil }

// tag identifies the problem in an algorithm's words.
func (p *plan) tag() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", p.m)
	return h.Sum64()
}

// algoTimes is what each algorithm takes, of the time of the device's model: the first guess is not the
// fastest.
var algoTimes = []float64{1.3, 1, 1.1}

// Algos returns algorithms for problems that no rule refuses.
func (p *plan) Algos(workspace int64, n int) ([]cuda.Algo, error) {
	const call = "cublasLtMatmulAlgoGetHeuristic"
	if err := p.b.d.fault(call); err != nil {
		return nil, err
	}
	for _, r := range blasRules {
		if wrong := r.broken(p.m, p.b.d.opt); wrong != "" {
			return nil, blasError(call, r.status, "%s: %s", r.name, wrong)
		}
	}
	var out []cuda.Algo
	for i := range n {
		a := cuda.Algo{Words: [8]uint64{p.tag(), uint64(i)}, Workspace: int64(i) << 16, Waves: 1}
		if a.Workspace <= workspace && i < len(algoTimes) {
			out = append(out, a)
		}
	}
	return out, nil
}

// Run issues the product.
func (p *plan) Run(algo cuda.Algo, alpha, beta float32, o cuda.Operands, s cuda.Stream) error {
	const call = "cublasLtMatmul"
	switch {
	case algo.Words[0] != p.tag():
		return blasError(call, statusInvalid, "the algorithm belongs to another problem")
	case algo.Workspace > o.WorkspaceBytes:
		return blasError(call, statusInvalid, "the algorithm needs %d bytes of workspace, %d given", algo.Workspace, o.WorkspaceBytes)
	}
	align := cmp.Or(p.m.Align, 256) // what the heuristics were told
	for _, ptr := range []struct {
		name  string
		at    cuda.Ptr
		used  bool
		align int64
	}{{"A", o.A, true, align}, {"B", o.B, true, align}, {"C", o.C, beta != 0, align}, {"D", o.D, true, align},
		{"bias", o.Bias, p.m.Epilogue.HasBias(), 16}, {"aux", o.Aux, p.m.Epilogue.HasAux(), 16}, {"the workspace", o.Workspace, algo.Workspace > 0, 256}} {
		if ptr.used && (ptr.at == 0 || int64(ptr.at)%ptr.align != 0) {
			return blasError(call, statusInvalid, "%s is at %#x, want an address that is a multiple of %d", ptr.name, uint64(ptr.at), ptr.align)
		}
	}
	if p.b.d.products++; p.b.d.products == p.b.d.opt.FailProduct {
		return blasError(call, statusFailed, "injected fault")
	}
	if err := p.b.d.fault(call); err != nil {
		return err
	}
	return p.b.d.issue(s, op{what: fmt.Sprintf("%s epilogue %d", call, p.m.Epilogue), run: func() ([]span, error) { return p.compute(alpha, beta, o, algo) }})
}

// matrix is an operand in memory, read as values.
type matrix struct {
	typ        cuda.DataType
	at         cuda.Ptr
	rows, cols int64
	ld         int64
	v          []float32 // column-major, dense
}

// span covers the matrix from its first element to its last.
func (m *matrix) span(write bool) span {
	return span{m.at, ((m.cols-1)*m.ld + m.rows) * m.typ.Size(), write}
}

// read fetches a matrix column by column.
func (d *Device) read(m *matrix) error {
	m.v = make([]float32, m.rows*m.cols)
	size := m.typ.Size()
	buf := make([]byte, m.rows*size)
	for c := range m.cols {
		if err := d.mem.Read(buf, uint64(m.at)+uint64(c*m.ld*size)); err != nil {
			return d.memory("cublasLtMatmul", err)
		}
		for r := range m.rows {
			m.v[c*m.rows+r] = decode(m.typ, buf[r*size:])
		}
	}
	return nil
}

// write rounds and stores a matrix column by column.
func (d *Device) write(m *matrix) error {
	size := m.typ.Size()
	buf := make([]byte, m.rows*size)
	for c := range m.cols {
		for r := range m.rows {
			encode(m.typ, buf[r*size:], m.v[c*m.rows+r])
		}
		if err := d.mem.Write(uint64(m.at)+uint64(c*m.ld*size), buf); err != nil {
			return d.memory("cublasLtMatmul", err)
		}
	}
	return nil
}

func decode(t cuda.DataType, b []byte) float32 {
	switch t {
	case cuda.R16F:
		return fp.F16ToF32(binary.LittleEndian.Uint16(b))
	case cuda.R16BF:
		return fp.BF16ToF32(binary.LittleEndian.Uint16(b))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

func encode(t cuda.DataType, b []byte, x float32) {
	switch t {
	case cuda.R16F:
		binary.LittleEndian.PutUint16(b, fp.F16(x))
	case cuda.R16BF:
		binary.LittleEndian.PutUint16(b, fp.BF16(x))
	default:
		binary.LittleEndian.PutUint32(b, math.Float32bits(x))
	}
}

// compute does every product of the batch.
func (p *plan) compute(alpha, beta float32, o cuda.Operands, algo cuda.Algo) ([]span, error) {
	p.b.d.Stats.Products++
	var uses []span
	rate := flopRates[p.m.A.Type]
	if p.m.Compute == cuda.ComputeTF32 {
		rate = tf32Rate
	}
	times := algoTimes[algo.Words[1]%uint64(len(algoTimes))]
	defer func() {
		p.b.d.done.seconds = times * 2 * float64(p.m.M*p.m.N*p.m.K*int64(max(p.m.Batch, 1))) / rate
		for _, u := range uses {
			p.b.d.done.bytes += int64(times * float64(u.bytes))
		}
	}()
	for i := range int64(max(p.m.Batch, 1)) {
		used, err := p.one(alpha, beta, o, i, p.b.d.orders()<<algo.Words[1])
		uses = append(uses, used...)
		if err != nil {
			return uses, err
		}
	}
	if algo.Workspace > 0 {
		uses = append(uses, span{o.Workspace, algo.Workspace, true})
	}
	if r, w, ok := overlap(uses); ok && (r.at != w.at || r.at != o.C || beta == 0) {
		return nil, blasError("cublasLtMatmul", statusInvalid, "writes %d bytes at %#x and reads %d at %#x", w.bytes, uint64(w.at), r.bytes, uint64(r.at))
	}
	return uses, nil
}

func (p *plan) one(alpha, beta float32, o cuda.Operands, i int64, parts int) ([]span, error) {
	m, d := p.m, p.b.d
	operand := func(at cuda.Ptr, l cuda.Matrix, rows, cols int64, trans bool) *matrix {
		if trans {
			rows, cols = cols, rows
		}
		return &matrix{typ: l.Type, at: at + cuda.Ptr(i*l.Stride*l.Type.Size()), rows: rows, cols: cols, ld: l.Ld}
	}
	a, b := operand(o.A, m.A, m.M, m.K, m.TransA), operand(o.B, m.B, m.K, m.N, m.TransB)
	out := operand(o.D, m.D, m.M, m.N, false)
	uses := []span{a.span(false), b.span(false), out.span(true)}
	for _, x := range []*matrix{a, b} {
		if err := d.read(x); err != nil {
			return nil, err
		}
		if m.Compute == cuda.ComputeTF32 && x.typ == cuda.R32F {
			for k, v := range x.v {
				x.v[k] = fp.TF32(v)
			}
		}
	}
	out.v = p.product(a, b, alpha, parts)
	if beta != 0 {
		c := operand(o.C, m.C, m.M, m.N, false)
		uses = append(uses, c.span(false))
		if err := d.read(c); err != nil {
			return nil, err
		}
		for k := range out.v {
			out.v[k] += float32(beta * c.v[k])
		}
	}
	more, err := p.epilogue(out, a, b, o, i)
	if err != nil {
		return nil, err
	}
	return append(uses, more...), d.write(out)
}

// product is alpha·op(A)·op(B), each sum in parts.
func (p *plan) product(a, b *matrix, alpha float32, parts int) []float32 {
	m := p.m
	ar, ac := int64(1), a.rows // strides of op(A) over rows and the inner dimension
	if m.TransA {
		ar, ac = a.rows, 1
	}
	br, bc := int64(1), b.rows
	if m.TransB {
		br, bc = b.rows, 1
	}
	out := make([]float32, m.M*m.N)
	col := newSums(int(m.M), parts)
	for j := range m.N {
		clear(col.v)
		for k := range m.K {
			w := float64(b.v[k*br+j*bc])
			for r := range m.M {
				col.add(int(r), int(k), float64(a.v[r*ar+k*ac]), w)
			}
		}
		for r := range m.M {
			out[j*m.M+r] = alpha * col.total(int(r))
		}
	}
	return out
}
