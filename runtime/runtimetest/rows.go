package runtimetest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
)

// sample is one case in one dtype: a graph of one node and what it is fed.
type sample struct {
	name string
	g    *ir.Graph
	node *ir.Node
	feed map[string]*eval.Tensor

	*answers
}

// operandSpec is an operand of a case: what kind of numbers, below which bound, and dims.
type operandSpec struct {
	kind byte
	top  int64
	dims []ir.Dim
}

// newSample builds the graph of a case. It returns nil where the row does not
// take operands of dtype d (or results stored as out): that is the row's choice.
func newSample(c string, d, out ir.DType, special bool) (*sample, error) {
	opName, operands, attrs, err := splitCase(c)
	if err != nil {
		return nil, fmt.Errorf("case %q: %w", c, err)
	}
	op, ok := ir.OpNamed(opName)
	if !ok {
		return nil, fmt.Errorf("case %q: no op %s", c, opName)
	}
	a, err := parseAttrs(op, attrs)
	if err != nil {
		return nil, fmt.Errorf("case %q: %w", c, err)
	}
	s := &sample{name: fmt.Sprintf("%s/%s", c, d), feed: map[string]*eval.Tensor{}}
	if out != ir.Invalid {
		s.name += "->" + out.String()
		a = a.With("out", out)
	}
	h := fnv.New64a()
	h.Write([]byte(s.name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	b := ir.NewBuilder("case")
	in := make([]*ir.Value, 0, len(operands))
	low := false
	for i, o := range operands {
		if o.kind == '_' {
			in = append(in, nil)
			continue
		}
		x := o.fill(r, d, special, specialsOf(op))
		low = low || strings.IndexByte("xnpq", o.kind) >= 0
		name := fmt.Sprintf("in%d", i)
		s.feed[name] = x
		in = append(in, b.Declare(ir.Input, name, x.Type, nil, nil))
	}
	for len(in) > 0 && in[len(in)-1] == nil && !op.Def().In[min(len(in), len(op.Def().In))-1].Named {
		in = in[:len(in)-1]
	}
	if d != ir.F32 && !low {
		return nil, nil
	}
	res := b.Emit(op, in, a)
	if b.Err() != nil {
		if d != ir.F32 || out != ir.Invalid {
			return nil, nil // the row does not take this dtype
		}
		return nil, fmt.Errorf("case %q: %w", c, b.Err())
	}
	b.Return(res...)
	s.g, s.node = b.Graph(), res[0].Def
	s.answers = s.answered(special)
	return s, nil
}

func splitCase(c string) (op string, operands []operandSpec, attrs string, err error) {
	if i := strings.IndexByte(c, '{'); i >= 0 {
		attrs = strings.TrimSuffix(strings.TrimSpace(c[i+1:]), "}")
		c = c[:i]
	}
	f := strings.Fields(c)
	for _, w := range f[1:] {
		o := operandSpec{kind: w[0]}
		if o.kind != '_' {
			open := strings.IndexByte(w, '[')
			if open < 0 {
				return "", nil, "", fmt.Errorf("operand %s", w)
			}
			if strings.IndexByte("kKU", o.kind) >= 0 {
				if o.top, err = strconv.ParseInt(w[1:open], 10, 64); err != nil {
					return "", nil, "", err
				}
			}
			for _, n := range strings.Split(strings.Trim(w[open:], "[]"), ",") {
				if n == "" {
					continue
				}
				k, err := strconv.Atoi(n)
				if err != nil {
					return "", nil, "", err
				}
				o.dims = append(o.dims, ir.Dim(k))
			}
		}
		operands = append(operands, o)
	}
	return f[0], operands, attrs, nil
}

// parseAttrs reads "a=1 b=[2,3] c" by the kinds of the row.
func parseAttrs(op ir.Op, text string) (ir.Attrs, error) {
	var a ir.Attrs
	for _, w := range strings.Fields(text) {
		name, value, _ := strings.Cut(w, "=")
		v, err := attrValue(op, name, value)
		if err != nil {
			return nil, err
		}
		a = a.With(name, v)
	}
	return a, nil
}

func attrValue(op ir.Op, name, value string) (any, error) {
	if name == "math" {
		return value, nil
	}
	for _, d := range op.Def().Attrs {
		if d.Name != name {
			continue
		}
		switch d.Kind {
		case ir.AttrInt:
			return strconv.ParseInt(value, 10, 64)
		case ir.AttrFloat:
			return strconv.ParseFloat(value, 64)
		case ir.AttrBool:
			return true, nil
		case ir.AttrDType:
			t, ok := ir.DTypeOf(value)
			if !ok {
				return nil, fmt.Errorf("no dtype %s", value)
			}
			return t, nil
		case ir.AttrInts:
			var list []int64
			for _, n := range strings.Split(strings.Trim(value, "[]"), ",") {
				k, err := strconv.ParseInt(n, 10, 64)
				if err != nil {
					return nil, err
				}
				list = append(list, k)
			}
			return list, nil
		}
		return value, nil
	}
	return nil, fmt.Errorf("%s has no attribute %s", op, name)
}

// specials stand among the elements of special samples: both zeros, NaN, both
// infinities, subnormals of f16 and f32, the largest half, and just above it.
var specials = []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 6e-8, -3e-5, 1e-40, 65504, -65520}

// specialsOf leaves NaN and Inf out where a kernel may multiply them by a zero
// that stands for nothing: the padding of a window, a key that is not seen.
func specialsOf(op ir.Op) []float64 {
	if name := op.String(); !strings.HasPrefix(name, "conv") && !strings.HasPrefix(name, "attention") {
		return specials
	}
	var finite []float64
	for _, x := range specials {
		if math.Abs(x) < 65504 {
			finite = append(finite, x)
		}
	}
	return finite
}

// fill draws the operand's elements.
func (o *operandSpec) fill(r *rand.Rand, d ir.DType, special bool, specials []float64) *eval.Tensor {
	t := map[byte]ir.DType{'x': d, 'n': d, 'p': d, 'q': d, 'f': ir.F32, 's': ir.F32, 'k': ir.I32, 'K': ir.I64, 'U': ir.U8, 'u': ir.U8, 'b': ir.Bool}[o.kind]
	x := eval.New(ir.T(t, o.dims...))
	for i := range x.I {
		switch o.kind {
		case 'b':
			x.I[i] = r.Int64N(2)
		case 'u':
			x.I[i] = r.Int64N(256)
		default:
			x.I[i] = r.Int64N(o.top)
		}
	}
	for i := range x.F {
		v := r.NormFloat64()
		switch o.kind {
		case 'n':
			v = -math.Abs(v)
		case 'p', 's':
			v = 0.25 + math.Abs(v)
		case 'q':
			v = 0.02 + 0.96*r.Float64()
		}
		if special && o.kind == 'x' && r.IntN(6) == 0 {
			v = specials[r.IntN(len(specials))]
		}
		x.F[i] = eval.Round(v, t)
	}
	return x
}

// ulpOf is the distance of neighbours in dtype d around x.
func ulpOf(x float64, d ir.DType) float64 {
	bits, least := 23, -149
	switch d {
	case ir.F16:
		bits, least = 10, -24
	case ir.BF16:
		bits, least = 7, -133
	case ir.F64:
		bits, least = 52, -1074
	}
	if x == 0 || math.IsInf(x, 0) || x != x {
		return math.Ldexp(1, least)
	}
	_, e := math.Frexp(math.Abs(x))
	return math.Ldexp(1, max(e-1-bits, least))
}

// boundOf is the error that a node may have; zero for one that is exact.
func boundOf(n *ir.Node) ir.Bound {
	d := n.Def()
	if d.Elem != nil {
		code, _ := ir.NodeCode(n)
		exact, ulp := code.Exact()
		switch {
		case exact:
			return ir.Bound{}
		case d.Bound != nil:
			return d.Bound(n)
		}
		return ir.Bound{ULP: ulp}
	}
	if d.Bound == nil {
		return ir.Bound{}
	}
	return d.Bound(n)
}

// Exact reports whether every backend must compute n to the same bits.
func Exact(n *ir.Node) bool { return boundOf(n) == (ir.Bound{}) }

// allowed is the tolerance of result k of a sample: none for exact rows, else
// the row's bound. Its magnitude Σ|a·b| is what the evaluator gives for the
// operands' absolute values; rows whose gradient subtracts means have nothing
// to cancel there, so the largest element of the result counts with it. inside
// says that the target's matrix units round inside a row (ir.Caps.RoundsInside).
func (s *sample) allowed(k int, want []*eval.Tensor, inside bool) (tolerance, error) {
	bound := boundOf(s.node)
	if bound == (ir.Bound{}) {
		return nil, nil
	}
	mag, err := s.magnitudes(k, want)
	if err != nil {
		return nil, err
	}
	t := want[k].Type.DType
	inner := 0.0
	if x := s.node.In[0]; inside && x != nil && x.Type.DType.Low() {
		inner = float64(bound.Inner) * ulpOf(1, x.Type.DType) / 2
	}
	return func(i int, w float64) float64 {
		e := bound.ULP * ulpOf(w, ir.F32)
		if inner > 0 {
			e += inner * mag(i)
		}
		if bound.K > 0 {
			e += float64(bound.K) * 0x1p-23 * mag(i)
		}
		if t == ir.F32 {
			return e + ulpOf(w, ir.F32)/2
		}
		return e + ulpOf(math.Abs(w)+e, t)
	}, nil
}

// strict families sum products of operands, so absolute operands give the
// magnitude element by element.
var strict = map[string]bool{"linear": true, "shape": true, "reduce": true, "pool": true}

func (s *sample) magnitudes(k int, want []*eval.Tensor) (func(i int) float64, error) {
	abs, err := s.absolute()
	if err != nil {
		return nil, err
	}
	if strict[s.node.Def().Family] {
		return func(i int) float64 { return math.Abs(abs[k].F[i]) }, nil
	}
	top := 0.0
	for _, v := range want[k].F {
		if a := math.Abs(v); a-a == 0 {
			top = math.Max(top, a)
		}
	}
	return func(i int) float64 {
		if a := math.Abs(abs[k].F[i]); a > top && a-a == 0 {
			return a
		}
		return top
	}, nil
}
