package onnx

import (
	"slices"
	"strings"

	"ampc/ir"
)

var recurrentRows = []row{
	{op: "LSTM", since: 1, ours: "lstm; with peepholes, lengths, a clip or other activations written out step by step", not: "more than 1024 steps written out", imp: func(c *call) []*ir.Value { return recurrent(c, lstmCell) }},
	{op: "GRU", since: 3, ours: "gru; with linear_before_reset=0 and the like written out step by step", not: "more than 1024 steps written out", imp: func(c *call) []*ir.Value { return recurrent(c, gruCell) }},
	{op: "RNN", since: 1, ours: "matmul, add, tanh, step by step", not: "more than 1024 steps", imp: func(c *call) []*ir.Value { return recurrent(c, rnnCell) }},
}

const maxSteps = 1024

// cell is one kind of recurrence.
type cell struct {
	op    string
	gates int64
	acts  []string
	state int // states that a step passes to the next
	step  func(r *recurrence, xp *ir.Value, state []*ir.Value) []*ir.Value
	// row is the whole node as one row of ours, nil where it is not one.
	row func(r *recurrence) []*ir.Value
}

// recurrence expands a node, one direction at a time.
type recurrence struct {
	*call
	cell
	steps, batch, hidden int64
	directions           int64
	backward             bool // the only direction is backward
	first                bool // batch first
	lengths              *ir.Value
	x                    *ir.Value // [S,B,I]
	r, rb, peep          *ir.Value // of the direction: [G*H,H], [G*H], [3H]
	act                  []func(x *ir.Value) *ir.Value
	clip                 float64
}

var (
	lstmCell = cell{op: "LSTM", gates: 4, acts: []string{"Sigmoid", "Tanh", "Tanh"}, state: 2, step: lstmStep, row: lstmRow}
	gruCell  = cell{op: "GRU", gates: 3, acts: []string{"Sigmoid", "Tanh"}, state: 1, step: gruStep, row: gruRow}
	rnnCell  = cell{op: "RNN", gates: 1, acts: []string{"Tanh"}, state: 1, step: rnnStep, row: func(*recurrence) []*ir.Value { return nil }}
)

func recurrent(c *call, k cell) []*ir.Value {
	r := &recurrence{call: c, cell: k, clip: c.float("clip", 0)}
	if !r.open() {
		return nil
	}
	if r.plain() {
		if out := k.row(r); out != nil {
			return r.close(out[0], out[1:])
		}
	}
	if r.steps > maxSteps {
		c.refuse("a sequence of %d steps is not supported here: this form is unrolled, up to %d steps", r.steps, maxSteps)
		return nil
	}
	var ys []*ir.Value // [S,1,B,H] of each direction
	ends := make([][]*ir.Value, k.state)
	for i := range r.directions {
		y, last := r.direction(i)
		if c.failure() != nil {
			return nil
		}
		ys = append(ys, y)
		for s, v := range last {
			ends[s] = append(ends[s], c.reshape(v, 1, r.batch, r.hidden))
		}
	}
	last := make([]*ir.Value, k.state)
	for s := range last {
		last[s] = c.b.Concat(0, ends[s]...)
	}
	return r.close(c.b.Concat(1, ys...), last)
}

// open reads shapes and attributes.
func (r *recurrence) open() bool {
	c := r.call
	d, w := c.dims(0), c.dims(1)
	if len(d) != 3 || len(w) != 3 || w[1]%r.gates != 0 || w[2] != d[2] {
		c.fail("operand X of shape %v does not fit weights W of shape %v", d, w)
		return false
	}
	r.first = c.flag("layout", false)
	r.x = c.x(0)
	if r.first {
		r.x = c.b.Transpose(r.x, 1, 0, 2)
		d[0], d[1] = d[1], d[0]
	}
	r.steps, r.batch, r.directions, r.hidden = d[0], d[1], w[0], w[1]/r.gates
	way := c.str("direction", "forward")
	r.backward = way == "reverse"
	if want := int64(1 + b2i(way == "bidirectional")); r.directions != want {
		c.fail("direction is %q, but the weights have %d directions", way, r.directions)
		return false
	}
	if c.has(4) {
		r.lengths = c.x(4)
	}
	if r.steps < 1 {
		c.refuse("a sequence without steps is not supported")
	}
	return c.failure() == nil
}

// names are the activations of a direction.
func (r *recurrence) names(direction int64) []string {
	a := r.lookup("activations", AttrStrings)
	if a == nil || len(a.Texts) == 0 {
		return r.acts
	}
	n := int64(len(r.acts))
	if int64(len(a.Texts)) < (direction+1)*n {
		r.fail("there are %d activations, want %d for each direction", len(a.Texts), n)
		return r.acts
	}
	return a.Texts[direction*n : (direction+1)*n]
}

// plain reports whether nothing asks for more than our rows do.
func (r *recurrence) plain() bool {
	for i := range r.directions {
		if !slices.Equal(r.names(i), r.acts) {
			return false
		}
	}
	return r.lengths == nil && r.clip == 0 && !r.has(7) && !r.flag("input_forget", false)
}

// part is slice i of an operand's first axis, nil if the operand is absent.
func (r *recurrence) part(operand int, i int64, shape ...int64) *ir.Value {
	if !r.has(operand) {
		return nil
	}
	return r.b.Reshape(r.b.Slice(r.call.x(operand), []int64{0}, []int64{i}, []int64{i + 1}), shape...)
}

// start is what state s begins with, in direction i.
func (r *recurrence) start(s int, i int64) *ir.Value {
	operand := 5 + s
	if !r.has(operand) || s > 0 && r.op != "LSTM" {
		return r.b.Full(r.typ(0).DType, 0, r.batch, r.hidden)
	}
	h := r.call.x(operand)
	if r.first {
		h = r.b.Transpose(h, 1, 0, 2)
	}
	return r.b.Reshape(r.b.Slice(h, []int64{0}, []int64{i}, []int64{i + 1}), r.batch, r.hidden)
}

// direction writes out all steps in one direction.
func (r *recurrence) direction(i int64) (y *ir.Value, state []*ir.Value) {
	b, g := r.b, r.gates*r.hidden
	r.act = nil
	for k, name := range r.names(i) {
		r.act = append(r.act, r.activation(name, int(i)*len(r.acts)+k))
	}
	xp := b.Matmul(b.Reshape(r.x, r.steps*r.batch, r.dims(0)[2]), r.part(1, i, g, r.dims(0)[2]), false, true)
	r.r, r.rb, r.peep = r.part(2, i, g, r.hidden), nil, nil
	if r.has(3) {
		both := r.part(3, i, 2*g)
		xp = b.Add(xp, b.Slice(both, []int64{0}, []int64{0}, []int64{g}))
		r.rb = b.Slice(both, []int64{0}, []int64{g}, []int64{2 * g})
	}
	if r.op == "LSTM" {
		r.peep = r.part(7, i, 3*r.hidden)
	}
	xp = b.Reshape(xp, r.steps, r.batch, g)
	for s := range r.state() {
		state = append(state, r.start(s, i))
	}
	ys := make([]*ir.Value, r.steps)
	for k := range r.steps {
		t := k
		if r.backward || i == 1 {
			t = r.steps - 1 - k
		}
		at := b.Reshape(b.Slice(xp, []int64{0}, []int64{t}, []int64{t + 1}), r.batch, g)
		next := r.step(r, at, state)
		ys[t] = next[0]
		if r.lengths != nil { // after its length a sequence keeps its state and gives zeros
			on := b.Reshape(b.Gt(r.lengths, c64(r, t)), r.batch, 1)
			for s := range next {
				next[s] = b.Where(on, next[s], state[s])
			}
			ys[t] = b.Where(on, next[0], nil)
		}
		ys[t] = b.Reshape(ys[t], 1, 1, r.batch, r.hidden)
		state = next
	}
	return b.Concat(0, ys...), state
}

func (r *recurrence) state() int { return r.cell.state }

func c64(r *recurrence, t int64) *ir.Value { return r.lit(r.lengths, float64(t)) }

// close brings results in the order and layout of ONNX: y [S,D,B,H], ends [D,B,H].
func (r *recurrence) close(y *ir.Value, ends []*ir.Value) []*ir.Value {
	if r.first {
		y = r.b.Transpose(y, 2, 0, 1, 3)
		for i := range ends {
			ends[i] = r.b.Transpose(ends[i], 1, 0, 2)
		}
	}
	return append([]*ir.Value{y}, ends...)
}

// activation is a function of the node's list, with its alpha and beta.
func (r *recurrence) activation(name string, at int) func(x *ir.Value) *ir.Value {
	number := func(list string, or float64) float64 {
		if v := r.lookupFloats(list); at < len(v) {
			return float64(v[at])
		}
		return or
	}
	b := r.b
	switch strings.ToLower(name) {
	case "sigmoid":
		return b.Sigmoid
	case "tanh":
		return b.Tanh
	case "relu":
		return b.Relu
	case "softsign":
		return b.Softsign
	case "softplus":
		return b.Softplus
	case "leakyrelu":
		return func(x *ir.Value) *ir.Value { return b.LeakyRelu(x, number("activation_alpha", 0.01)) }
	case "elu":
		return func(x *ir.Value) *ir.Value { return b.Elu(x, number("activation_alpha", 1)) }
	case "hardsigmoid":
		return func(x *ir.Value) *ir.Value {
			return b.Hardsigmoid(x, number("activation_alpha", 0.2), number("activation_beta", 0.5))
		}
	case "affine":
		return func(x *ir.Value) *ir.Value {
			return b.Affine(x, number("activation_alpha", 1), number("activation_beta", 0))
		}
	case "scaledtanh":
		return func(x *ir.Value) *ir.Value {
			return b.Affine(b.Tanh(b.Affine(x, number("activation_beta", 1), 0)), number("activation_alpha", 1), 0)
		}
	}
	r.refuse("activation %q is not supported", name)
	return b.Tanh
}

// clipped clips the operand of an activation.
func (r *recurrence) clipped(x *ir.Value) *ir.Value {
	if r.clip > 0 {
		return r.b.Clip(x, -r.clip, r.clip)
	}
	return x
}

// gate is columns i of the gates.
func (r *recurrence) gate(x *ir.Value, axis, i, n int64) *ir.Value {
	return r.b.Slice(x, []int64{axis}, []int64{i * r.hidden}, []int64{(i + n) * r.hidden})
}

// recur is h·Rᵀ + Rb.
func (r *recurrence) recur(h *ir.Value) *ir.Value {
	y := r.b.Matmul(h, r.r, false, true)
	if r.rb != nil {
		y = r.b.Add(y, r.rb)
	}
	return y
}

func rnnStep(r *recurrence, xp *ir.Value, s []*ir.Value) []*ir.Value {
	return []*ir.Value{r.act[0](r.clipped(r.b.Add(xp, r.recur(s[0]))))}
}

// gruStep has the gates in the order z, r, h.
func gruStep(r *recurrence, xp *ir.Value, s []*ir.Value) []*ir.Value {
	b, h := r.b, s[0]
	var hp, n *ir.Value
	if r.flag("linear_before_reset", false) {
		hp = r.recur(h)
	} else {
		hp = b.Matmul(h, r.gate(r.r, 0, 0, 2), false, true)
		if r.rb != nil {
			hp = b.Add(hp, r.gate(r.rb, 0, 0, 2))
		}
	}
	z := r.act[0](r.clipped(b.Add(r.gate(xp, 1, 0, 1), r.gate(hp, 1, 0, 1))))
	reset := r.act[0](r.clipped(b.Add(r.gate(xp, 1, 1, 1), r.gate(hp, 1, 1, 1))))
	if r.flag("linear_before_reset", false) {
		n = b.Mul(reset, r.gate(hp, 1, 2, 1))
	} else {
		n = b.Matmul(b.Mul(reset, h), r.gate(r.r, 0, 2, 1), false, true)
		if r.rb != nil {
			n = b.Add(n, r.gate(r.rb, 0, 2, 1))
		}
	}
	n = r.act[1](r.clipped(b.Add(r.gate(xp, 1, 2, 1), n)))
	return []*ir.Value{b.Add(b.Mul(b.Affine(z, -1, 1), n), b.Mul(z, h))}
}

// lstmStep has the gates in the order i, o, f, c, and peepholes of i, o, f.
func lstmStep(r *recurrence, xp *ir.Value, s []*ir.Value) []*ir.Value {
	b, h, c := r.b, s[0], s[1]
	all := b.Add(xp, r.recur(h))
	peek := func(x, c *ir.Value, i int64) *ir.Value {
		if r.peep != nil {
			x = b.Add(x, b.Mul(r.gate(r.peep, 0, i, 1), c))
		}
		return r.act[0](r.clipped(x))
	}
	in := peek(r.gate(all, 1, 0, 1), c, 0)
	forget := b.Affine(in, -1, 1)
	if !r.flag("input_forget", false) {
		forget = peek(r.gate(all, 1, 2, 1), c, 2)
	}
	c = b.Add(b.Mul(forget, c), b.Mul(in, r.act[1](r.clipped(r.gate(all, 1, 3, 1)))))
	out := peek(r.gate(all, 1, 1, 1), c, 1)
	return []*ir.Value{b.Mul(out, r.act[2](c)), c}
}

// ordered puts blocks of hidden along an axis in another order.
func (r *recurrence) ordered(x *ir.Value, axis int64, order ...int64) *ir.Value {
	var parts []*ir.Value
	for _, i := range order {
		parts = append(parts, r.gate(x, axis, i, 1))
	}
	return r.b.Concat(axis, parts...)
}

// weights are w [I,D·G·H], r [D,H,G·H] and the biases of inputs and state
// [D,G·H], gates in our order, as our rows take them.
func (r *recurrence) weights(order ...int64) (w, rec, xb, hb *ir.Value) {
	b, g, in := r.b, r.gates*r.hidden, r.dims(0)[2]
	w = r.ordered(r.call.x(1), 1, order...)
	w = b.Reshape(b.Transpose(w, 2, 0, 1), in, r.directions*g)
	rec = b.Transpose(r.ordered(r.call.x(2), 1, order...), 0, 2, 1)
	if r.has(3) {
		both := r.call.x(3)
		xb = r.ordered(b.Slice(both, []int64{1}, []int64{0}, []int64{g}), 1, order...)
		hb = r.ordered(b.Slice(both, []int64{1}, []int64{g}, []int64{2 * g}), 1, order...)
	}
	return w, rec, xb, hb
}

func (r *recurrence) starts(operand int) *ir.Value {
	if !r.has(operand) {
		return nil
	}
	if r.first {
		return r.b.Transpose(r.call.x(operand), 1, 0, 2)
	}
	return r.call.x(operand)
}

// spread is y [S,B,D·H] as [S,D,B,H].
func (r *recurrence) spread(y *ir.Value) *ir.Value {
	return r.b.Transpose(r.b.Reshape(y, r.steps, r.batch, r.directions, r.hidden), 0, 2, 1, 3)
}

func lstmRow(r *recurrence) []*ir.Value {
	w, rec, xb, hb := r.weights(0, 2, 3, 1)
	if xb != nil {
		xb = r.b.Reshape(r.b.Add(xb, hb), r.directions*r.gates*r.hidden)
	}
	y, h, c := r.b.LSTM(r.x, w, rec, xb, r.starts(5), r.starts(6), ir.A("reverse", r.backward))
	return []*ir.Value{r.spread(y), h, c}
}

func gruRow(r *recurrence) []*ir.Value {
	if !r.flag("linear_before_reset", false) {
		return nil
	}
	w, rec, xb, hb := r.weights(1, 0, 2)
	var bn *ir.Value
	if xb != nil {
		two, all := 2*r.hidden, r.gates*r.hidden
		cut := func(x *ir.Value, from, to int64) *ir.Value {
			return r.b.Slice(x, []int64{1}, []int64{from}, []int64{to})
		}
		bn = cut(hb, two, all)
		xb = r.b.Concat(1, r.b.Add(cut(xb, 0, two), cut(hb, 0, two)), cut(xb, two, all))
		xb = r.b.Reshape(xb, r.directions*all)
	}
	y, h := r.b.GRU(r.x, w, rec, xb, bn, r.starts(5), ir.A("reverse", r.backward))
	return []*ir.Value{r.spread(y), h}
}
