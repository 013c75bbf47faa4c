package e2e_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
)

// A subject is a small network of identical layers h0 … h5. A fault is injected
// into one of them by what its variables or its inputs hold, never by how it is
// built.
const (
	subjectDepth = 6
	subjectRows  = 4
	subjectWidth = 16
)

// subject is a model of identical layers, compiled, with a feed under which its step is finite.
type subject struct {
	t    testing.TB
	m    *ampc.Model
	step *ampc.Step
	feed ampc.Feed
	last *ampc.Result // a step whose gradients are compared
}

// fault is one way for a step to go wrong in one of the layers.
type fault struct {
	name string
	// layer builds one layer in the scope h0 … h5. What it returns besides the
	// trunk is added to the loss.
	layer func(m *ampc.Model, h ampc.Tensor) (trunk, extra ampc.Tensor)
	// inject puts the fault into layer h; h is the scope with its dot.
	inject func(w *subject, h string)
	config func(c *ampc.TrainConfig) // changes what the step is compiled to; nil: nothing
	shrink float64                   // factor on the loss; zero: 1
	clean  []ampc.Policy             // that the same numbers do no harm under
	lower  string                    // what the policy is told to compute in 16 bits, against its rules; "": nothing
	want   finding
	form   form
	grads  bool    // gradients are results, and the weights stay
	bound  float64 // on the error of the gradients after a remedy, zero: the usual one
}

// inert reports whether no loss depends on a parameter: the bias behind what an
// inner gradient is taken of.
func inert(param string) bool {
	return strings.HasSuffix(param, "mid.b") || strings.HasSuffix(param, "read.b")
}

func (i fault) rate() float64 {
	if i.grads {
		return 0
	}
	return 1e-3
}

// finding is what the doctor must say; %s in a node stands for the layer's scope
// with its dot.
type finding struct {
	cause     ampc.Cause
	node, op  string
	direction string
	says      string // part of the report
}

// form is a way to build the same network.
type form struct {
	outer  string // scope around the layers' own
	flat   bool   // one layer, in no scope of its own
	byHand bool   // products and sums in place of linear layers
}

// forms are those of the network in which every remedy is applied.
var forms = []form{{}, {flat: true}, {byHand: true}, {flat: true, byHand: true}, {outer: "net"}}

// scope is that of layer k with its dot.
func (f form) scope(k int) string {
	switch {
	case f.flat:
		return ""
	case f.outer != "":
		return fmt.Sprintf("%s.h%d.", f.outer, k)
	}
	return fmt.Sprintf("h%d.", k)
}

// pattern matches the scopes of all layers with their dots.
func (f form) pattern() string { return strings.Replace(f.scope(0), "h0", "h*", 1) }

// byHand has line spell its layers out.
var byHand bool

// noBias is an option of line.
const noBias = "no bias"

// line is a linear layer, with the deviation of its weights where one is given.
func line(m *ampc.Model, name string, x ampc.Tensor, width int, opts ...any) ampc.Tensor {
	in := x.Dim(1)
	edge := 1 / math.Sqrt(float64(in))
	init, start, bias := ampc.Uniform(-edge, edge), ampc.Uniform(-edge, edge), true
	var layer ampc.LinearOptions
	for _, o := range opts {
		if d, ok := o.(float64); ok {
			init, start = ampc.Normal(0, d), ampc.Fill(0)
			layer.Init = init
		} else {
			bias, layer.NoBias = false, true
		}
	}
	if !byHand {
		return m.Linear(name, x, width, layer)
	}
	w := m.Param(name+".w", init, int(in), width)
	if !bias {
		return m.Named(name).Matmul(x, w)
	}
	return m.Named(name).Add(m.Matmul(x, w), m.Param(name+".b", start, width))
}

// open compiles the network under a policy, with some patterns kept in f32, and
// fills its inputs; it injects the fault into layer k, or into none where k is below zero.
func (i fault) open(t testing.TB, p ampc.Policy, k int, keep ...string) *subject {
	t.Helper()
	m := ampc.New("subject")
	byHand = i.form.byHand
	defer func() { byHand = false }()
	x := m.Input("x", ampc.F32, subjectRows, subjectWidth)
	y := m.Input("y", ampc.F32, subjectRows, subjectWidth)
	h, extras := x, []ampc.Tensor(nil)
	for n := range subjectDepth {
		b, scope := m, strings.TrimSuffix(i.form.scope(n), ".")
		if scope != "" {
			b = m.Scope(scope)
		} else if n > 0 {
			break
		}
		var extra ampc.Tensor
		if h, extra = i.layer(b, h); !extra.Absent() {
			extras = append(extras, extra)
		}
	}
	loss := m.Named("fit").MSE(line(m, "head", h, subjectWidth), y)
	for _, e := range extras {
		loss = m.Add(loss, m.Affine(e, 0x1p-6, 0))
	}
	if i.shrink != 0 {
		loss = m.Named("loss").Affine(loss, i.shrink, 0)
	}
	if i.lower != "" && p.Mixed() {
		p = p.Lower(strings.Replace(i.lower, "h*.", i.form.pattern(), 1))
	}
	for _, pattern := range keep {
		p = p.Keep(pattern)
	}
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(i.rate()), Policy: p}
	for _, v := range m.Graph().Vars {
		if v.Kind == ir.Param && i.grads && !inert(v.Name) {
			c.Grads = append(c.Grads, m.FromIR(v))
		}
	}
	if i.config != nil {
		i.config(&c)
	}
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	w := &subject{t: t, m: m, step: step, feed: ampc.Feed{}}
	r := rand.New(rand.NewPCG(3, 4))
	for _, v := range m.Graph().Vars {
		if v.Kind == ir.Input {
			w.feed[v.Name] = validInput(v, r)
		}
	}
	if k >= 0 {
		i.inject(w, i.form.scope(k))
	}
	return w
}

// validInput is what an input holds in a finite step: small numbers, masks
// that hide nothing but one column, labels of both kinds.
func validInput(v *ir.Value, r *rand.Rand) any {
	n := int(v.Type.Shape.Elements())
	if v.Type.DType == ir.Bool {
		keep := make([]bool, n)
		for i := range keep {
			keep[i] = i%subjectRows != 0
		}
		return keep
	}
	x := make([]float32, n)
	for i := range x {
		switch {
		case strings.HasSuffix(v.Name, "keep"):
			x[i] = float32(min(1, i%subjectRows)) // the first column is hidden
		case strings.HasSuffix(v.Name, "label"):
			x[i] = float32(i % 2)
		default:
			x[i] = float32(r.NormFloat64()) / 2
		}
	}
	return x
}

// edit changes every element of a variable.
func (w *subject) edit(name string, f func(i int, x float32) float32) {
	w.t.Helper()
	h, err := w.m.Variable(name)
	if err != nil {
		w.t.Fatal(err)
	}
	data := h.Floats()
	for i, x := range data {
		data[i] = f(i, x)
	}
	if err := w.m.SetVariable(name, data); err != nil {
		w.t.Fatal(err)
	}
}

func (w *subject) times(name string, k float32) {
	w.edit(name, func(_ int, x float32) float32 { return k * x })
}

func (w *subject) plus(name string, k float32) {
	w.edit(name, func(_ int, x float32) float32 { return x + k })
}

func (w *subject) input(name string) []float32 { return w.feed[name].([]float32) }

func (w *subject) run() *ampc.Result {
	w.t.Helper()
	r, err := w.step.Run(context.Background(), w.feed)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// branch adds a layer's result to the trunk through a product.
func branch(m *ampc.Model, h, y ampc.Tensor) ampc.Tensor {
	return m.Named("out").Add(h, line(m, "down", y, subjectWidth, 0.05))
}

func faults() []fault {
	both, f32 := []ampc.Policy{ampc.MixedBF16(), ampc.F32Only()}, []ampc.Policy{ampc.F32Only()}
	return []fault{
		{name: "mask of -1e9", lower: "h*.scores", want: finding{ampc.ForwardOverflow, "%smask.f16", "cast", "forward", "bf16"},
			layer: maskedLayer, clean: both, inject: func(w *subject, h string) {
				fill(w.input(h + "mask")[subjectRows:2*subjectRows], -1e9) // a row of padding: all of it is hidden
			}},
		{name: "mask of -1e9 in every layer", lower: "h*.scores", want: finding{ampc.ForwardOverflow, "%shide", "affine", "forward", "1e+09"},
			layer: paddingLayer, clean: both, inject: func(w *subject, h string) {
				fill(w.input(h + "keep")[subjectRows:2*subjectRows], 0)
			}},
		{name: "square in a norm", lower: "h*.square", want: finding{ampc.ForwardOverflow, "%ssquare", "square", "forward", "65504"},
			layer: energyLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"up.w", 4000) }},
		{name: "activation of 66246", want: finding{ampc.ForwardOverflow, "%sact", "relu", "forward", "66246"},
			layer: activationLayer, clean: both, inject: func(w *subject, h string) {
				w.edit(h+"up.w", func(i int, _ float32) float32 { return tall(i / subjectWidth) })
			}},
		{name: "eps of 1e-12", lower: "h*.shifted", want: finding{ampc.VanishedConstant, "%snorm", "div", "forward", "1e-12"},
			layer: epsilonLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"up.w", 0) },
			config: func(c *ampc.TrainConfig) {
				c.Compile.Disable, c.Scaler = []string{"recognize", "epsilon"}, ampc.Static(1)
			}},
		{name: "bce on probabilities", lower: "h*.p", want: finding{ampc.Singular, "%slog_no", "log", "forward", "the logarithm of 0"},
			layer: bceLayer, clean: f32, inject: func(w *subject, h string) { w.plus(h+"logit.b", 12) }},
		{name: "loss scale too high", want: finding{ampc.ScaleTooHigh, "d.%ssmall", "matmul", "backward", "loss scale: 1.6777216e+07"},
			layer: steepLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"down.w", 1<<15) },
			config: func(c *ampc.TrainConfig) { c.Scaler = ampc.Static(1 << 24) }, shrink: 0x1p-14},
		{name: "gradient too steep", want: finding{ampc.GradientOverflow, "d.%ssmall", "matmul", "backward", "is still"},
			layer: steepLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"down.w", 1<<17) },
			config: func(c *ampc.TrainConfig) { c.Scaler = ampc.Static(4) }, shrink: 64},
		{name: "NaN in the batch", want: finding{ampc.BadInput, "%sside", "input", "forward", "the batch"},
			layer: sideLayer, inject: func(w *subject, h string) { w.input(h + "side")[17] = nan }},
		{name: "fully masked row", want: finding{ampc.NotPrecision, "%sprobs", "softmax", "forward", "masked whole"},
			layer: hiddenLayer, inject: func(w *subject, h string) {
				clear(w.feed[h+"keep"].([]bool)[subjectRows : 2*subjectRows])
			}},
		{name: "Adam's eps in low state", want: finding{ampc.VanishedConstant, "adam.%sup.b", "div", "update", "1e-08"},
			layer: plainLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"down.w", 1e-6) },
			config: lowAdam, shrink: 1024},
		{name: "NaN in the weights", want: finding{ampc.BadState, "%sproj.w", "param", "forward", "before the step"},
			layer: sideLayer, inject: func(w *subject, h string) { w.plus(h+"proj.w", nan) }},
		{name: "sqrt at zero", lower: "h*.square", want: finding{ampc.Singular, "d.%ssum", "div", "backward", "square was rounded to 0 in f16"},
			layer: rootLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"up.w", 1e-5) }},
		{name: "scaled inner gradient", want: finding{ampc.ScaleTooHigh, "grad.%smid", "matmul", "inner gradient", "inner gradient's scale: 16384"},
			layer: penaltyLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"read.w", 256) },
			config: func(c *ampc.TrainConfig) { c.Scaler = ampc.Static(16) }},
	}
}

var nan = float32(math.NaN())

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// maskedLayer attends with a mask that is fed, and adds it in the low dtype.
func maskedLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	mask := m.Input("mask", ampc.F32, subjectRows, subjectRows)
	raw := m.Named("raw").Matmul(line(m, "q", h, subjectWidth), h, ampc.MatmulOptions{TransposeY: true})
	scores := m.Named("scores").Add(raw, mask)
	return branch(m, h, m.Named("mix").Matmul(m.Named("probs").Softmax(scores, -1), h)), ampc.Tensor{}
}

// paddingLayer makes its mask from numbers that are 0 where a column is hidden.
func paddingLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	keep := m.Input("keep", ampc.F32, subjectRows, subjectRows)
	raw := m.Named("raw").Matmul(line(m, "q", h, subjectWidth), h, ampc.MatmulOptions{TransposeY: true})
	scores := m.Named("scores").Add(raw, m.Named("hide").Affine(keep, 1e9, -1e9))
	return branch(m, h, m.Named("mix").Matmul(m.Named("probs").Softmax(scores, -1), h)), ampc.Tensor{}
}

// hiddenLayer attends where a mask of truth values says so.
func hiddenLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	keep := m.Input("keep", ampc.Bool, subjectRows, subjectRows)
	raw := m.Named("raw").Matmul(line(m, "q", h, subjectWidth), h, ampc.MatmulOptions{TransposeY: true})
	scores := m.Named("scores").Where(keep, raw, m.Full(ampc.F32, math.Inf(-1), subjectRows, subjectRows))
	return branch(m, h, m.Named("mix").Matmul(m.Named("probs").Softmax(scores, -1), h)), ampc.Tensor{}
}

// energyLayer is ConvNeXt V2's global response normalization, its squares in
// the low dtype: each feature's energy over the mean of all energies.
func energyLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	u := line(m, "up", h, subjectWidth)
	energy := m.Named("energy").Sqrt(m.Affine(m.ReduceSum(m.Named("square").Square(u), ampc.ReduceOptions{Axes: []int{0}, Keep: true}), 1, 1e-6))
	share := m.Named("share").Div(energy, m.ReduceMean(energy, ampc.ReduceOptions{Axes: []int{-1}, Keep: true}))
	return branch(m, h, m.Named("norm").Tanh(m.Mul(u, share))), ampc.Tensor{}
}

// tall are weights, exact in f16, that sum to 66,246.
func tall(i int) float32 {
	switch i {
	case 13:
		return 4144
	case 14:
		return 8192
	case 15:
		return 90
	}
	return 4140
}

// activationLayer computes a product with a vector of ones.
func activationLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	ones := m.Named("ones").Affine(h, 0, 1)
	up := line(m, "up", ones, subjectWidth, noBias)
	return m.Named("out").Add(h, line(m, "down", m.Named("act").Relu(up), subjectWidth, 1e-5)), ampc.Tensor{}
}

// epsilonLayer normalizes with an epsilon that the low dtype does not hold.
func epsilonLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	u := line(m, "up", h, subjectWidth, noBias)
	centred := m.Named("centred").Sub(u, m.ReduceMean(u, ampc.ReduceOptions{Axes: []int{-1}, Keep: true}))
	shifted := m.Named("shifted").Affine(m.ReduceMean(m.Square(centred), ampc.ReduceOptions{Axes: []int{-1}, Keep: true}), 1, 1e-12)
	return branch(m, h, m.Named("norm").Div(centred, m.Named("dev").Sqrt(shifted))), ampc.Tensor{}
}

// bceLayer has a loss of its own: the cross entropy of the likeliest of four
// probabilities, spelled out and stored in the low dtype.
func bceLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	label := m.Input("label", ampc.F32, subjectRows, 1)
	p := m.Named("p").ReduceMax(m.Sigmoid(line(m, "logit", h, 4)), ampc.ReduceOptions{Axes: []int{-1}, Keep: true})
	yes, no := m.Named("log_yes").Log(p), m.Named("log_no").Log(m.Affine(p, -1, 1))
	likely := m.Add(m.Mul(label, yes), m.Mul(m.Affine(label, -1, 1), no))
	return branch(m, h, m.Tanh(h)), m.Named("bce").Neg(m.ReduceMean(likely))
}

// steepLayer has a small value before a large weight: forward is calm, its
// gradient is not.
func steepLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	bend := m.Tanh(line(m, "up", h, subjectWidth))
	small := line(m, "small", bend, subjectWidth, 0x1p-12, noBias)
	return branch(m, h, small), ampc.Tensor{}
}

// plainLayer is a perceptron.
func plainLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	return branch(m, h, m.Tanh(line(m, "up", h, subjectWidth))), ampc.Tensor{}
}

// wideUpdate has lowAdam store everything in f32.
var wideUpdate bool

// lowAdam spells Adam out over gradients, with the second moment and epsilon
// stored in the policy's low dtype. The optimizer proper refuses that, and so
// does the proof.
func lowAdam(c *ampc.TrainConfig) {
	d := ir.DType(c.Policy.Low)
	if d == ir.Invalid || wideUpdate {
		d = ir.F32
	}
	c.Scaler, c.Compile.NoProof = ampc.Unscaled(), true
	c.Gradients = func(u *ampc.Update, gs []ampc.Grad) []ampc.Grad {
		for i, g := range gs {
			name, b := g.Param.Name(), u.IR()
			if !strings.HasSuffix(name, ".up.b") { // of many elements, one always has a square that vanishes
				continue
			}
			v := b.Declare(ir.State, name+".v", g.Param.IR().Type.With(d), &ir.Init{Args: []float64{0}}, nil)
			mean := b.Add(b.Affine(b.Cast(v, ir.F32), 0.5, 0), b.Affine(b.Square(g.Value.IR()), 0.5, 0))
			next := b.Cast(mean, d)
			b.EmitWrite(ir.OpCast, []*ir.Value{mean}, ir.A("to", d), v)
			den := b.Cast(b.Named("den."+name).Affine(b.Sqrt(b.Cast(next, ir.F32)), 1, 1e-8), d)
			gs[i].Value = u.FromIR(b.Named("adam."+name).Div(g.Value.IR(), b.Cast(den, ir.F32)))
		}
		return gs
	}
}

// sideLayer reads an input of its own.
func sideLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	side := m.Input("side", ampc.F32, subjectRows, subjectWidth)
	return branch(m, h, m.Named("gate").Mul(m.Tanh(line(m, "proj", side, subjectWidth)), h)), ampc.Tensor{}
}

// rootLayer takes the length of vectors whose squares are stored low.
func rootLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	u := line(m, "up", h, subjectWidth, noBias)
	length := m.Named("length").Sqrt(m.Named("sum").ReduceSum(m.Named("square").Square(u), ampc.ReduceOptions{Axes: []int{-1}, Keep: true}))
	return branch(m, h, m.Named("scaled").Mul(h, length)), ampc.Tensor{}
}

// innerScale is what penaltyLayer gives its gradient.
var innerScale = 0x1p14

// penaltyLayer adds the squared slope of an energy to the loss; the slope is
// computed scaled by 2^14.
func penaltyLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	u := m.Named("bend").Tanh(line(m, "up", h, subjectWidth))
	read := line(m, "read", line(m, "mid", u, subjectWidth), 1)
	slope := m.ScaledGrad(innerScale, m.Named("level").ReduceSum(read), h)[0]
	return branch(m, h, u), m.Named("slope").ReduceMean(m.Square(slope))
}
