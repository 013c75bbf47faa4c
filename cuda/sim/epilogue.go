package sim

import (
	"math"

	"ampc/cuda"
)

// vector is a bias or a bias gradient.
func (p *plan) vector(o cuda.Operands, n int64) *matrix {
	return &matrix{typ: p.m.BiasType, at: o.Bias, rows: n, cols: 1, ld: n}
}

// epilogue applies what follows the product, and reads or writes bias and auxiliary.
func (p *plan) epilogue(out, a, b *matrix, o cuda.Operands, batch int64) ([]span, error) {
	switch e := p.m.Epilogue; e {
	case 0, cuda.EpilogueNone:
		return nil, nil
	case cuda.EpilogueBgradA, cuda.EpilogueBgradB:
		return p.inputSums(a, b, o)
	case cuda.EpilogueDRelu, cuda.EpilogueDReluBgrad, cuda.EpilogueDGelu, cuda.EpilogueDGeluBgrad:
		return p.backward(out, o, batch)
	}
	return p.forward(out, o, batch)
}

// forward adds the bias, keeps the auxiliary and activates.
func (p *plan) forward(out *matrix, o cuda.Operands, batch int64) ([]span, error) {
	m, d := p.m, p.b.d
	var uses []span
	if m.Epilogue.HasBias() {
		bias := p.vector(o, m.M)
		if err := d.read(bias); err != nil {
			return nil, err
		}
		uses = append(uses, bias.span(false))
		for k := range out.v {
			out.v[k] += bias.v[int64(k)%m.M]
		}
	}
	if m.Epilogue.HasAux() {
		used, err := p.keep(out, o, batch)
		if err != nil {
			return nil, err
		}
		uses = append(uses, used)
	}
	if m.Epilogue == cuda.EpilogueBias {
		return uses, nil
	}
	for k, v := range out.v {
		if rectifies(m.Epilogue) {
			out.v[k] = relu(v)
		} else {
			out.v[k] = gelu(v)
		}
	}
	return uses, nil
}

// rectifies reports whether the last operation of a forward epilogue is a ReLU.
func rectifies(e cuda.Epilogue) bool { return e&cuda.EpilogueRelu != 0 }

func relu(v float32) float32 {
	if v > 0 || v != v {
		return v
	}
	return 0
}

const geluSlope = 0.7978845608028654 // sqrt(2/pi)

// gelu is the tanh form, as the library has it.
func gelu(v float32) float32 {
	x := float64(v)
	return float32(0.5 * x * (1 + math.Tanh(geluSlope*(x+0.044715*x*x*x))))
}

// geluGrad is its derivative.
func geluGrad(v float32) float32 {
	x := float64(v)
	t := math.Tanh(geluSlope * (x + 0.044715*x*x*x))
	return float32(0.5*(1+t) + 0.5*x*(1-t*t)*geluSlope*(1+3*0.044715*x*x))
}

// keep stores what the backward epilogue needs: the values before a GELU; or for a ReLU one bit for
// each value, set if it is not negative, so that a gradient also passes where the value was exactly
// zero.
func (p *plan) keep(out *matrix, o cuda.Operands, batch int64) (span, error) {
	m, d := p.m, p.b.d
	if !m.Epilogue.MasksAux() {
		aux := p.aux(o, batch)
		aux.v = out.v
		return aux.span(true), d.write(aux)
	}
	at, bytes := p.mask(o, batch)
	buf := make([]byte, bytes)
	for k, v := range out.v {
		bit := int64(k)/m.M*m.AuxLd + int64(k)%m.M
		if v >= 0 {
			buf[bit/8] |= 1 << (bit % 8)
		}
	}
	return span{at, bytes, true}, d.memory("cublasLtMatmul", d.mem.Write(uint64(at), buf))
}

func (p *plan) aux(o cuda.Operands, batch int64) *matrix {
	m := p.m
	return &matrix{typ: m.AuxType, at: o.Aux + cuda.Ptr(batch*m.AuxStride*m.AuxType.Size()), rows: m.M, cols: m.N, ld: m.AuxLd}
}

// mask is where a batch's ReLU bits lie.
func (p *plan) mask(o cuda.Operands, batch int64) (cuda.Ptr, int64) {
	return o.Aux + cuda.Ptr(batch*p.m.AuxStride/8), p.m.N * p.m.AuxLd / 8
}

// backward multiplies by the derivative of the activation and, with BGRAD, sums each row.
func (p *plan) backward(out *matrix, o cuda.Operands, batch int64) ([]span, error) {
	m, d := p.m, p.b.d
	var uses []span
	if m.Epilogue.MasksAux() {
		at, bytes := p.mask(o, batch)
		buf := make([]byte, bytes)
		if err := d.mem.Read(buf, uint64(at)); err != nil {
			return nil, d.memory("cublasLtMatmul", err)
		}
		uses = append(uses, span{at, bytes, false})
		for k := range out.v {
			bit := int64(k)/m.M*m.AuxLd + int64(k)%m.M
			if buf[bit/8]>>(bit%8)&1 == 0 {
				out.v[k] = 0
			}
		}
	} else {
		aux := p.aux(o, batch)
		if err := d.read(aux); err != nil {
			return nil, err
		}
		uses = append(uses, aux.span(false))
		for k := range out.v {
			out.v[k] *= geluGrad(aux.v[k])
		}
	}
	if !m.Epilogue.HasBias() {
		return uses, nil
	}
	grad := p.vector(o, m.M)
	grad.v = rowSums(out.v, m.M)
	return append(uses, grad.span(true)), d.write(grad)
}

// rowSums adds the columns of a dense column-major matrix.
func rowSums(v []float32, rows int64) []float32 {
	add := newSums(int(rows), columnParts)
	for k, x := range v {
		add.add(k%int(rows), k/int(rows), float64(x), 1)
	}
	out := make([]float32, rows)
	for i := range out {
		out[i] = add.total(i)
	}
	return out
}

// inputSums writes the sums of op(A) or op(B) over the inner dimension: the bias gradient beside a
// weight gradient.
func (p *plan) inputSums(a, b *matrix, o cuda.Operands) ([]span, error) {
	m := p.m
	x, n, along := a, m.M, !m.TransA // sum over the stored columns when A is not transposed
	if m.Epilogue == cuda.EpilogueBgradB {
		x, n, along = b, m.N, m.TransB
	}
	add := newSums(int(n), columnParts)
	for k, v := range x.v {
		i, j := int64(k)/x.rows, int64(k)%x.rows
		if along {
			i, j = j, i
		}
		add.add(int(i), int(j), float64(v), 1)
	}
	grad := p.vector(o, n)
	grad.v = make([]float32, n)
	for i := range grad.v {
		grad.v[i] = add.total(i)
	}
	return []span{grad.span(true)}, p.b.d.write(grad)
}
