package host

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// call is a node that the host runs.
type call struct {
	run   *run
	f     *frame
	n     *onnx.Node
	in    []*Value // nil where absent
	opset int64
}

// operator is what the host runs beside what it has the evaluator compute.
type operator struct {
	run func(c *call) ([]*Value, error)
	why string // it has no static form
}

// operators is the table of them by name.
func operators() map[string]operator {
	const (
		count = "the size of its result depends on data"
		trips = "how often its body runs depends on data"
		list  = "a sequence has no static form"
		maybe = "an optional has no static form"
		plain = "no kernel computes it: the host does, in f64"
		trees = "an operator of ai.onnx.ml, which have no kernels"
	)
	return map[string]operator{
		"If":                 {ifElse, "its condition depends on data"},
		"Loop":               {loop, trips},
		"Scan":               {scan, "its body runs for each slice"},
		"NonZero":            {nonZero, count},
		"Compress":           {compress, count},
		"Unique":             {unique, count},
		"NonMaxSuppression":  {nonMaxSuppression, count},
		"SequenceEmpty":      {sequenceEmpty, list},
		"SequenceConstruct":  {sequenceConstruct, list},
		"SequenceAt":         {sequenceAt, list},
		"SequenceInsert":     {sequenceInsert, list},
		"SequenceErase":      {sequenceErase, list},
		"SequenceLength":     {sequenceLength, list},
		"SequenceMap":        {sequenceMap, list},
		"SplitToSequence":    {splitToSequence, list},
		"ConcatFromSequence": {concatFromSequence, list},
		"Optional":           {optional, maybe},
		"OptionalHasElement": {optionalHasElement, maybe},
		"OptionalGetElement": {optionalGetElement, maybe},
		"Identity":           {identity, list},
		"GridSample":         {gridSample, plain},
		"DFT":                {dft, plain},
		"STFT":               {stft, plain},
		"Col2Im":             {col2Im, plain},
		"DeformConv":         {deformConv, plain},
		"RoiAlign":           {roiAlign, plain},
		"MaxUnpool":          {maxUnpool, plain},
		"Det":                {det, plain},
		"TensorScatter":      {tensorScatter, plain},
		"ImageDecoder":       {imageDecoder, count},
		"TfIdfVectorizer":    {tfIdf, "no kernel counts sequences"},
		"MelWeightMatrix":    {melWeights, plain},

		"ai.onnx.ml.ArrayFeatureExtractor": {arrayFeatureExtractor, trees},
		"ai.onnx.ml.Binarizer":             {binarizer, trees},
		"ai.onnx.ml.TreeEnsemble":          {treeEnsemble, trees},
	}
}

// Doc is an operator that the host runs, and why it has no static form.
type Doc struct{ Op, Why string }

// Docs lists them by name.
func Docs() []Doc {
	var out []Doc
	for op, o := range operators() {
		out = append(out, Doc{op, o.why})
	}
	slices.SortFunc(out, func(a, b Doc) int { return strings.Compare(a.Op, b.Op) })
	return out
}

// Why is why the host runs a node, "" for one that it does not run.
func Why(n *onnx.Node) string { return operators()[opName(n)].why }

// inRegions are those of them that a region takes where it can.
var inRegions = map[string]bool{"If": true, "Identity": true}

func (c *call) has(i int) bool { return i < len(c.in) && c.in[i] != nil }

// tensor is operand i, decoded.
func (c *call) tensor(i int) (*eval.Tensor, error) {
	if !c.has(i) {
		return nil, fmt.Errorf("operand %d is missing, and the operator requires it", i)
	}
	t, err := c.in[i].Elements()
	if err != nil {
		return nil, fmt.Errorf("operand %d %w", i, err)
	}
	return t, nil
}

// sequence is operand i, a sequence.
func (c *call) sequence(i int) ([]*Value, error) {
	if !c.has(i) || c.in[i].Kind != Sequence {
		return nil, fmt.Errorf("operand %d is not a sequence, as the operator requires", i)
	}
	return c.in[i].Seq, nil
}

// number is the one element of operand i.
func (c *call) number(i int) (float64, error) {
	t, err := c.tensor(i)
	if err != nil {
		return 0, err
	}
	if t.Len() != 1 {
		return 0, fmt.Errorf("operand %d is %s, want one element", i, t.Type)
	}
	return t.At(0), nil
}

// integer is the one element of operand i, or of an absent one.
func (c *call) integer(i int, absent int64) (int64, error) {
	if !c.has(i) {
		return absent, nil
	}
	x, err := c.number(i)
	return int64(x), err
}

func (c *call) int(name string, absent int64) int64 {
	if a := c.n.Attr(name); a != nil {
		return a.I
	}
	return absent
}

func (c *call) ints(name string) []int64 {
	if a := c.n.Attr(name); a != nil {
		return a.Ints
	}
	return nil
}

// axis counts an axis from the front.
func axis(a int64, rank int) (int, error) {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		return 0, fmt.Errorf("axis %d is out of range for a tensor of rank %d", a, rank)
	}
	return int(a), nil
}

func integers(d ir.DType, shape ir.Shape, x []int64) *Value {
	t := eval.New(ir.Type{DType: d, Shape: shape})
	copy(t.I, x)
	return decoded(t)
}

func scalar(x int64) *Value { return integers(ir.I64, ir.MakeShape(), []int64{x}) }

func truth(x bool) *Value {
	t := eval.New(ir.T(ir.Bool))
	if x {
		t.I[0] = 1
	}
	return decoded(t)
}

func one(v *Value, err error) ([]*Value, error) {
	if err != nil {
		return nil, err
	}
	return []*Value{v}, nil
}

// blocks views a tensor as outer × n × inner bytes around an axis.
func blocks(t ir.Type, axis int) (outer, n, inner int64) {
	outer, inner = 1, t.DType.Size()
	for i, d := range ir.Sizes(t.Shape) {
		switch {
		case i < axis:
			outer *= d
		case i == axis:
			n = d
		default:
			inner *= d
		}
	}
	return outer, n, inner
}

// slice copies a range of an axis.
func (v *Value) slice(axis int, from, to int64) *Value {
	outer, n, inner := blocks(v.Type, axis)
	b, out := v.Bytes(), make([]byte, 0, outer*(to-from)*inner)
	for o := range outer {
		out = append(out, b[(o*n+from)*inner:(o*n+to)*inner]...)
	}
	d := ir.Sizes(v.Type.Shape)
	d[axis] = to - from
	return NewTensor(ir.Type{DType: v.Type.DType, Shape: shapeOf(d...)}, out)
}

// concat joins tensors along an axis.
func concat(list []*Value, axis int) (*Value, error) {
	total := int64(0)
	shape := ir.Sizes(list[0].Type.Shape)
	for i, v := range list {
		d := ir.Sizes(v.Type.Shape)
		if len(d) != len(shape) || v.Type.DType != list[0].Type.DType {
			return nil, fmt.Errorf("elements %s and %s cannot be concatenated: their dtypes or ranks differ", list[0].Type, v.Type)
		}
		for k := range d {
			if k != axis && d[k] != shape[k] {
				return nil, fmt.Errorf("elements 0 and %d, which are %s and %s, cannot be concatenated along axis %d", i, list[0].Type, v.Type, axis)
			}
		}
		total += d[axis]
	}
	outer, _, _ := blocks(list[0].Type, axis)
	shape[axis] = total
	t := ir.Type{DType: list[0].Type.DType, Shape: shapeOf(shape...)}
	out := make([]byte, 0, t.Bytes())
	for o := range outer {
		for _, v := range list {
			_, n, inner := blocks(v.Type, axis)
			out = append(out, v.Bytes()[o*n*inner:(o+1)*n*inner]...)
		}
	}
	return NewTensor(t, out), nil
}

// stack joins tensors of one shape along a new axis.
func stack(list []*Value, axis int) (*Value, error) {
	wide := make([]*Value, len(list))
	for i, v := range list {
		if v.Type != list[0].Type {
			return nil, fmt.Errorf("elements 0 and %d are %s and %s, want one type", i, list[0].Type, v.Type)
		}
		d := ir.Sizes(v.Type.Shape)
		if len(d) == ir.MaxRank {
			return nil, fmt.Errorf("elements of rank %d cannot be stacked: the rank would be too large", len(d))
		}
		d = append(d[:axis:axis], append([]int64{1}, d[axis:]...)...)
		wide[i] = v.reshaped(shapeOf(d...))
	}
	return concat(wide, axis)
}
