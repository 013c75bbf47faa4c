package ir

import (
	"fmt"
	"math"
	"strings"
)

// Recurrent rows compute only the recurrence. The products of all inputs with the input weights are
// one linear before them, and the gradient of the recurrent weights is one matmul after them.
// Layout: steps S, batch B, directions D, features. The second direction, or the only one if
// reverse is set, runs from the last step to the first. The recurrent product reads h in the dtype
// of r.
var recurrentRows = map[Op]Def{
	OpLSTM: {
		Name: "lstm", Doc: "Long short-term memory over xp[S,B,D,4H], the inputs' products, with r[D,H,4H]: i, f, o = σ, g = tanh of xp + h·r in the order i, f, g, o; c = f·c + i·g; h = o·tanh c. Yields h and c of every step and saves the gates.",
		In:  in(preIn, weightIn, startIn("h0", NoClass), startIn("c0", Fixed)),
		Out: out(Result{Name: "y", StoresF32: true}, Result{Name: "c", Class: Fixed}, Result{Name: "gates"}), Attrs: []AttrDef{reverseAttr},
		Class: Low, Why: "tensor cores", Steps: true, Infer: inferLSTM, Bound: boundRecurrent, Cost: costRecurrent(1), Expand: expandLSTM,
		Grad: gradLSTM, Range: rangeLSTM,
	},
	OpLSTMGrad: {
		Name: "lstm_grad", Doc: "The gradients of lstm in xp, h0 and c0, from its saved gates and c, and the gradients of its three results.",
		In: in(weightIn, savedIn("gates"), Operand{Name: "c", Class: Fixed}, startIn("c0", Fixed),
			flowIn("dy"), flowIn("dc"), flowIn("dgates")),
		Out: out(Result{Name: "dxp", StoresF32: true}, Result{Name: "dh0", Class: Fixed}, Result{Name: "dc0", Class: Fixed}), Attrs: []AttrDef{reverseAttr},
		Class: Low, Why: "tensor cores", Unit: unitFlow, GradOf: OpLSTM, Infer: inferLSTMGrad, Bound: boundRecurrent, Cost: costRecurrent(0), Expand: expandLSTMGrad,
	},
	OpGRU: {
		Name: "gru", Doc: "Gated recurrent unit over xp[S,B,D,3H], the inputs' products, with r[D,H,3H] in the order r, z, n: r, z = σ(xp + h·r); q = h·rₙ + bn; n = tanh(xp + r·q); h = (1−z)·n + z·h. Yields h of every step and saves r, z, n and q.",
		In:  in(preIn, weightIn, startIn("bn", Fixed), startIn("h0", NoClass)),
		Out: out(Result{Name: "y", StoresF32: true}, Result{Name: "gates"}), Attrs: []AttrDef{reverseAttr},
		Class: Low, Why: "tensor cores", Steps: true, Infer: inferGRU, Bound: boundRecurrent, Cost: costRecurrent(1), Expand: expandGRU,
		Grad: gradGRU, Range: func(n *Node, in []Interval) []Interval {
			m := 1.0 // h is between n and the previous h
			if n.operand(3) != nil {
				m = max(m, in[3].magnitude())
			}
			return []Interval{around(m, true), around(math.Inf(1), true)}
		},
	},
	OpGRUGrad: {
		Name: "gru_grad", Doc: "The gradients of gru in xp, q and h0, from its saved gates and y, and the gradients of its two results.",
		In:  in(weightIn, savedIn("gates"), savedIn("y"), startIn("h0", Keep), flowIn("dy"), flowIn("dgates")),
		Out: out(Result{Name: "dxp", StoresF32: true}, Result{Name: "dq"}, Result{Name: "dh0", Class: Fixed}), Attrs: []AttrDef{reverseAttr},
		Class: Low, Why: "tensor cores", Unit: unitFlow, GradOf: OpGRU, Infer: inferGRUGrad, Bound: boundRecurrent, Cost: costRecurrent(0), Expand: expandGRUGrad,
	},
	OpRNN: {
		Name: "rnn", Doc: "Plain recurrence over xp[S,B,D,H], the inputs' products, with r[D,H,H]: h = activation(xp + h·r). Yields h of every step.",
		In:  in(preIn, weightIn, startIn("h0", NoClass)),
		Out: out(Result{Name: "y", StoresF32: true}), Attrs: []AttrDef{reverseAttr, activationAttr},
		Class: Low, Why: "tensor cores", Steps: true, Infer: inferRNN, Bound: boundRecurrent, Cost: costRecurrent(1), Expand: expandRNN,
		Grad: gradRNN, Range: func(n *Node, _ []Interval) []Interval {
			if n.Str("activation") == "relu" {
				return []Interval{{Lo: 0, Hi: math.Inf(1), NaN: true}}
			}
			return []Interval{around(1, true)}
		},
	},
	OpRNNGrad: {
		Name: "rnn_grad", Doc: "The gradients of rnn in xp and h0, from its y and the gradient of that.",
		In:  in(weightIn, savedIn("y"), savedIn("dy")),
		Out: out(Result{Name: "dxp", StoresF32: true}, Result{Name: "dh0", Class: Fixed}), Attrs: []AttrDef{reverseAttr, activationAttr},
		Class: Low, Why: "tensor cores", Unit: unitFlow, GradOf: OpRNN, Infer: inferRNNGrad, Bound: boundRecurrent, Cost: costRecurrent(0), Expand: expandRNNGrad,
	},
}

var (
	preIn          = Operand{Name: "xp", Class: Keep, ReadsLow: true}
	weightIn       = Operand{Name: "r", AsStored: true}
	reverseAttr    = AttrDef{Name: "reverse", Kind: AttrBool, Doc: "the only direction runs from the last step to the first"}
	activationAttr = AttrDef{Name: "activation", Kind: AttrString, Default: "tanh", Doc: "tanh or relu"}
)

func startIn(name string, c Class) Operand { return Operand{Name: name, Class: c, Optional: true} }
func savedIn(name string) Operand          { return Operand{Name: name, Class: Keep, ReadsLow: true} }
func flowIn(name string) Operand {
	return Operand{Name: name, Class: Keep, ReadsLow: true, Optional: true}
}

// unitFlow is the unit that the incoming gradients share.
func unitFlow(n *Node) (Unit, error) {
	var first *Value
	for i, v := range n.In {
		switch {
		case v == nil || !isFlow(n.OperandDef(i).Name):
		case first == nil:
			first = v
		case v.Unit != first.Unit:
			return "", fmt.Errorf("%s has scale unit %s and meets %s, which has scale unit %s", at(first), first.Unit, at(v), v.Unit)
		}
	}
	if first == nil {
		return "", nil
	}
	return first.Unit, nil
}

func isFlow(name string) bool { return name == "dy" || name == "dc" || name == "dgates" }

// boundRecurrent: an error of one step's product affects all later steps. If r is low, each step
// rounds the factor h: an error there may become one ulp of r's dtype.
func boundRecurrent(n *Node) Bound {
	r, s := n.Operand("r").Type.Shape, n.steps()
	if r.Rank() != 3 {
		return Bound{ULP: 8, K: unknownElements}
	}
	k := size(r.Dim(2)) + 8
	switch n.Operand("r").Type.DType {
	case F16:
		k += 1 << (23 - 10)
	case BF16:
		k += 1 << (23 - 7)
	}
	return Bound{ULP: 8 * float64(s), K: s * k}
}

// steps is the number of steps S.
func (n *Node) steps() int64 {
	v := n.In[0]
	for _, saved := range []string{"y", "gates"} {
		if x := n.Operand(saved); x != nil {
			v = x
		}
	}
	if v.Type.Shape.Rank() != 4 {
		return unknownElements
	}
	return size(v.Type.Shape.Dim(0))
}

// costRecurrent: every element of operand i (the gates) requires a product with a column of r.
func costRecurrent(i int) func(*Node) Cost {
	return func(n *Node) Cost {
		r := n.Operand("r").Type.Shape
		if r.Rank() != 3 {
			return Cost{}
		}
		return Cost{Flops: 2 * count(n.In[1-i].Type) * size(r.Dim(1))}
	}
}

// rangeLSTM: gates and h stay in [−1, 1]; c grows by at most one per step.
func rangeLSTM(n *Node, in []Interval) []Interval {
	c := sure(MakeShape(n.In[0].Type.Shape.Dims()...), n.steps())
	if n.operand(3) != nil {
		c += in[3].magnitude()
	}
	return []Interval{around(1, true), around(c, true), around(1, true)}
}

// recurrence are the sizes of a recurrent node; ok is false if a rank is not known.
type recurrence struct {
	s, b, d, h Dim
	ok         bool
}

// recurrence checks pre, which has k gates of h features per direction, against r.
func (n *Node) recurrence(pre *Value, k, kr Dim) (c recurrence, err error) {
	r := n.Operand("r")
	if err := firstError(wantRank("operand", pre, 4, 4), wantRank("r", r, 3, 3), n.checkOut()); err != nil {
		return c, err
	}
	if !pre.Type.Shape.Known() || !r.Type.Shape.Known() {
		return c, nil
	}
	p, w := pre.Type.Shape.Dims(), r.Type.Shape.Dims()
	c = recurrence{s: p[0], b: p[1], d: narrow(p[2], w[0]), h: w[1], ok: true}
	if !fits(p[2], w[0]) || !fits(w[2], mulDims(c.h, kr)) || !fits(p[3], mulDims(c.h, k)) {
		want := strings.ReplaceAll(fmt.Sprintf("[S,B,D,%d·H] and [D,H,%d·H]", k, kr), "1·", "")
		return c, fmt.Errorf("%s has type %s, r %s has type %s: want %s", pre, pre.Type, r, r.Type, want)
	}
	if c.d > 2 || c.d == 2 && n.Flag("reverse") {
		return c, fmt.Errorf("%d directions with reverse=%t, want one, or two without reverse", c.d, n.Flag("reverse"))
	}
	return c, nil
}

// seq is the shape [S,B,D,k·H], start [D,B,H]; unknown if a rank is not known.
func (c recurrence) seq(k int64) Shape {
	if !c.ok {
		return Shape{}
	}
	return MakeShape(c.s, c.b, c.d, mulDims(c.h, Dim(k)))
}

func (c recurrence) start() Shape {
	if !c.ok {
		return Shape{}
	}
	return MakeShape(c.d, c.b, c.h)
}

// want checks operands by name: those in starts are [D,B,H], the others [S,B,D,k·H].
func (c recurrence) want(n *Node, starts []string, seqs map[string]int64) error {
	if !c.ok {
		return nil
	}
	for _, name := range starts {
		if err := wantShape(name, n.Operand(name), c.start().Dims()...); err != nil {
			return err
		}
	}
	for _, o := range n.Def().In {
		if k := seqs[o.Name]; k > 0 {
			if err := wantShape(o.Name, n.Operand(o.Name), c.seq(k).Dims()...); err != nil {
				return err
			}
		}
	}
	return nil
}

// storedLow is the dtype to which the Low operands promote, whatever out says.
func (n *Node) storedLow() DType {
	bare := *n
	bare.Attrs = n.Attrs.Without("out")
	return bare.lowDType()
}

func inferLSTM(n *Node) ([]Type, error) {
	c, err := n.recurrence(n.In[0], 4, 4)
	if err != nil {
		return nil, err
	}
	return []Type{{n.lowDType(), c.seq(1)}, {n.statDType(), c.seq(1)}, {n.storedLow(), c.seq(4)}},
		c.want(n, []string{"h0", "c0"}, nil)
}

func inferLSTMGrad(n *Node) ([]Type, error) {
	c, err := n.recurrence(n.In[1], 4, 4)
	if err != nil {
		return nil, err
	}
	return []Type{{n.lowDType(), c.seq(4)}, {n.statDType(), c.start()}, {n.statDType(), c.start()}},
		c.want(n, []string{"c0"}, map[string]int64{"c": 1, "dy": 1, "dc": 1, "dgates": 4})
}

func inferGRU(n *Node) ([]Type, error) {
	c, err := n.recurrence(n.In[0], 3, 3)
	if err != nil {
		return nil, err
	}
	if c.ok {
		err = wantShape("bn", n.operand(2), c.d, c.h)
	}
	return []Type{{n.lowDType(), c.seq(1)}, {n.storedLow(), c.seq(4)}}, firstError(err, c.want(n, []string{"h0"}, nil))
}

func inferGRUGrad(n *Node) ([]Type, error) {
	c, err := n.recurrence(n.In[1], 4, 3)
	if err != nil {
		return nil, err
	}
	return []Type{{n.lowDType(), c.seq(3)}, {n.storedLow(), c.seq(1)}, {n.statDType(), c.start()}},
		c.want(n, []string{"h0"}, map[string]int64{"y": 1, "dy": 1, "dgates": 4})
}

func inferRNN(n *Node) ([]Type, error) {
	c, err := n.recurrence(n.In[0], 1, 1)
	return []Type{{n.lowDType(), c.seq(1)}}, firstError(n.checkActivation(), err, c.want(n, []string{"h0"}, nil))
}

func inferRNNGrad(n *Node) ([]Type, error) {
	c, err := n.recurrence(n.In[1], 1, 1)
	return []Type{{n.lowDType(), c.seq(1)}, {n.statDType(), c.start()}}, firstError(n.checkActivation(), err, c.want(n, nil, map[string]int64{"dy": 1}))
}

func (n *Node) checkActivation() error {
	if a := n.Str("activation"); a != "tanh" && a != "relu" {
		return fmt.Errorf("activation is %q, want tanh or relu", a)
	}
	return nil
}

func gradLSTM(b *Builder, n *Node, d []*Value) []*Value {
	r, h0, c0 := n.In[1], n.operand(2), n.operand(3)
	g := b.Emit(OpLSTMGrad, values(r, n.Out[2], n.Out[1], c0, d[0], d[1], d[2]), n.Attrs.only("reverse"))
	out := []*Value{g[0], b.recurrentWeightGrad(n, n.Out[0], h0, g[0]), nil, nil}
	if h0 != nil {
		out[2] = g[1]
	}
	if c0 != nil {
		out[3] = g[2]
	}
	return out
}

func gradGRU(b *Builder, n *Node, d []*Value) []*Value {
	r, bn, h0 := n.In[1], n.operand(2), n.operand(3)
	g := b.Emit(OpGRUGrad, values(r, n.Out[1], n.Out[0], h0, d[0], d[1]), n.Attrs.only("reverse"))
	if g[0] == nil {
		return make([]*Value, 4)
	}
	h := int64(r.Type.Shape.Dim(1))
	products := b.Concat(3, b.sliceAxis(g[0], 3, 0, 2*h), g[1]) // the gradients of h·r: r, z, and q in place of n
	out := []*Value{g[0], b.recurrentWeightGrad(n, n.Out[0], h0, products), nil, nil}
	if bn != nil {
		out[2] = b.ReduceSum(g[1], false, 0, 1)
	}
	if h0 != nil {
		out[3] = g[2]
	}
	return out
}

func gradRNN(b *Builder, n *Node, d []*Value) []*Value {
	g := b.Emit(OpRNNGrad, values(n.In[1], n.Out[0], d[0]), n.Attrs.only("reverse", "activation"))
	out := []*Value{g[0], b.recurrentWeightGrad(n, n.Out[0], n.operand(2), g[0]), nil}
	if n.operand(2) != nil {
		out[2] = g[1]
	}
	return out
}

// LSTM runs x[S,B,I] through a long short-term memory: w[I,D·4H] and bias
// (nil: none) project the inputs, r[D,H,4H] the state; D = 2 runs both ways;
// h0 and c0 [D,B,H] start it (nil: zeros); gates in the order i, f, g, o.
// It returns h of every step [S,B,D·H] and the last h and c [D,B,H]. Attribute: reverse.
func (b *Builder) LSTM(x, w, r, bias, h0, c0 *Value, a Attrs) (y, h, c *Value) {
	u := b.unnamed()
	o := u.Emit(OpLSTM, values(u.project(x, w, r, bias), r, h0, c0), a)
	if o[0] == nil {
		return nil, nil, nil
	}
	return b.joinDirections(o[0]), u.lastStep(o[0].Def, o[0]), u.lastStep(o[0].Def, o[1])
}

// GRU runs x[S,B,I] through a gated recurrent unit: w[I,D·3H] and bias (nil:
// none) project the inputs, r[D,H,3H] the state, bn[D,H] (nil: none) is added
// to the state's share of n before the reset gate; h0[D,B,H] starts it (nil:
// zeros); gates in the order r, z, n. It returns h of every step [S,B,D·H] and
// the last h [D,B,H]. Attribute: reverse.
func (b *Builder) GRU(x, w, r, bias, bn, h0 *Value, a Attrs) (y, h *Value) {
	u := b.unnamed()
	o := u.Emit(OpGRU, values(u.project(x, w, r, bias), r, bn, h0), a)
	if o[0] == nil {
		return nil, nil
	}
	return b.joinDirections(o[0]), u.lastStep(o[0].Def, o[0])
}

// RNN runs x[S,B,I] through a plain recurrence, h = activation(x·w + bias + h·r):
// w[I,D·H] and bias (nil: none) project the inputs, r[D,H,H] the state; h0[D,B,H]
// starts it (nil: zeros). activation is "tanh" or "relu". It returns h of every
// step [S,B,D·H] and the last h [D,B,H]. Attribute: reverse.
func (b *Builder) RNN(x, w, r, bias, h0 *Value, activation string, a Attrs) (y, h *Value) {
	u := b.unnamed()
	o := u.Emit(OpRNN, values(u.project(x, w, r, bias), r, h0), a.With("activation", activation))
	if o[0] == nil {
		return nil, nil
	}
	return b.joinDirections(o[0]), u.lastStep(o[0].Def, o[0])
}
