package gpu

import (
	"errors"
	"fmt"
	"slices"

	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
)

// graphBytes is the size of the largest workspace that a cuDNN engine may require.
const graphBytes = 1 << 30

var dnnTypes = map[ir.DType]cuda.DnnType{ir.F32: cuda.DnnFloat, ir.F16: cuda.DnnHalf, ir.BF16: cuda.DnnBFloat16}

// graph plans a step that cuDNN runs and returns the call that issues it.
func (e *Exec) graph(s *lower.Step) (call, error) {
	if e.b.dnn == nil {
		return nil, errors.New("the program calls cuDNN, which this device does not have")
	}
	g, feeds := e.b.graphOf(e.p, s)
	o := cuda.DnnOptions{TF32: s.Conv != nil && s.Conv.TF32, Workspace: graphBytes}
	shared, err := e.b.plan(g, o, int(s.Stream))
	if refused(err) {
		return nil, e.refuse(s, featureOf(s, e.p), err)
	}
	if err != nil {
		return nil, err
	}
	e.dnn = append(e.dnn, shared)
	if err := e.slowFilter(s, shared, o); err != nil {
		return nil, err
	}
	plan := shared.plan
	e.need[s.Stream] = max(e.need[s.Stream], plan.Workspace())
	at := make([]cuda.Ptr, len(feeds))
	for i, id := range feeds {
		at[i] = e.at[id]
	}
	run := func(on workStream) error { return plan.Run(at, e.spaces[s.Stream], on.stream) }
	if s.Attn == nil || !s.Attn.Backward || e.b.dnn.Version() >= sumsFromZero {
		return run, nil
	}
	wide := s.Out[len(s.Out)-1]
	return func(on workStream) error {
		return errors.Join(e.b.d.Fill8(e.at[wide], 0, e.p.Buffers[wide].Size, on.stream), run(on))
	}, nil
}

// sharedPlan is a plan of cuDNN with the number of steps that use it.
type sharedPlan struct {
	key   string
	plan  cuda.DnnPlan
	by    cuda.Choice
	users int
}

// plan builds the plan of a graph, or finds that of an equal graph on the same stream. Sums vary
// between runs only if there is no other engine, those of attention also where that is faster and Vary
// allows it.
func (b *Backend) plan(g *cuda.DnnGraph, o cuda.DnnOptions, stream int) (*sharedPlan, error) {
	key := fmt.Sprintf("stream %d, %s", stream, o.Problem(g))
	if p := b.plans[key]; p != nil {
		p.users++
		b.choose(p.by)
		return p, nil
	}
	o.Deterministic = !b.tune || !b.vary || g.Nodes[0].Conv != nil
	plan, choice, err := b.engine(g, o, stream)
	if o.Deterministic && errors.Is(err, cuda.ErrNotSupported) {
		o.Deterministic = false
		plan, choice, err = b.engine(g, o, stream)
	}
	if err != nil {
		return nil, err
	}
	p := &sharedPlan{key, plan, choice, 1}
	b.plans[key] = p
	b.choose(choice)
	return p, nil
}

// engine is the plan with the fastest engine, or where nothing is measured with the first.
func (b *Backend) engine(g *cuda.DnnGraph, o cuda.DnnOptions, stream int) (cuda.DnnPlan, cuda.Choice, error) {
	if b.tune {
		return b.choices().PickPlan(b.dnn, g, o, b.streams[stream].stream)
	}
	p, err := cuda.FirstPlan(b.dnn, g, o)
	if err != nil {
		return nil, cuda.Choice{}, err
	}
	return p, cuda.Choice{Problem: o.Problem(g), Name: p.Engine()}, nil
}

// drop removes one user of a plan, which is closed with the last one.
func (b *Backend) drop(p *sharedPlan) error {
	if p.users--; p.users > 0 {
		return nil
	}
	delete(b.plans, p.key)
	return p.plan.Close()
}

// sumsFromZero is the first version of cuDNN that clears the sums of dq by itself.
const sumsFromZero = 90600

// reserve allocates the workspaces of each stream's graphs.
func (e *Exec) reserve() error {
	for stream, n := range e.need {
		p, err := e.own(n, "cuDNN's workspace")
		if err != nil {
			return err
		}
		e.spaces[stream] = p
	}
	return nil
}

// graphOf returns the graph of a step with the buffers that it takes, in its order.
func (b *Backend) graphOf(p *lower.Program, s *lower.Step) (*cuda.DnnGraph, []lower.BufferID) {
	typed := func(id lower.BufferID) cuda.DnnType { return dnnTypes[p.Buffers[id].Type.DType] }
	strides := func(id lower.BufferID) []int64 { return p.Buffers[id].Strides }
	if s.Kind == lower.KindConv {
		return convolution(s, typed)
	}
	a := s.Attn
	d := cuda.Attention{Type: typed(s.In[0]), B: a.Batch, H: a.Heads, Sq: a.Queries, Skv: a.Keys, D: a.Width,
		Scale: float32(a.Scale), Causal: a.Causal, Version: b.dnn.Version(),
		QStrides: strides(s.In[0]), KStrides: strides(s.In[1]), VStrides: strides(s.In[2])}
	if !a.Backward {
		d.OStrides = strides(s.Out[0])
		return d.Forward(), []lower.BufferID{s.In[0], s.In[1], s.In[2], s.Out[0], s.Out[1]}
	}
	d.OStrides, d.DOStrides = strides(s.In[3]), strides(s.In[4])
	d.DQStrides, d.DKStrides, d.DVStrides = strides(s.Out[0]), strides(s.Out[1]), strides(s.Out[2])
	// dq, dk and dv, then the row sums and the f32 sums of dq
	return d.Backward(), append(slices.Clone(s.In[:6]), s.Out...)
}

var convKinds = map[lower.ConvDir]cuda.DnnKind{lower.ConvForward: cuda.DnnConv, lower.ConvGradX: cuda.DnnConvData, lower.ConvGradW: cuda.DnnConvFilter}

// convolution describes a convolution. One with a single spatial dimension gets a
// second one of size 1, because cuDNN requires two.
func convolution(s *lower.Step, typed func(lower.BufferID) cuda.DnnType) (*cuda.DnnGraph, []lower.BufferID) {
	c, w := s.Conv, s.Conv.Window
	two := func(d []int64, neutral int64) []int64 {
		if len(d) == 1 {
			return []int64{neutral, d[0]}
		}
		return d
	}
	dims := func(n, c int64, space []int64) []int64 { return append([]int64{n, c}, two(space, 1)...) }
	g := cuda.Conv{Kind: convKinds[c.Dir], Type: typed(s.In[0]), Out: typed(s.Out[0]), NHWC: w.Last,
		X: dims(w.N, w.C, w.In), W: dims(w.O, w.C/w.Groups, w.Kernel), Y: dims(w.N, w.O, w.Out),
		Shape: cuda.ConvShape{Pads: two(w.Begin, 0), EndPads: two(w.End, 0), Strides: two(w.Stride, 1), Dilations: two(w.Dilation, 1)}}
	feeds := map[lower.ConvDir][]lower.BufferID{
		lower.ConvForward: {s.In[0], s.In[1], s.Out[0]},
		lower.ConvGradX:   {s.Out[0], s.In[1], s.In[0]},
		lower.ConvGradW:   {s.In[0], s.Out[0], s.In[1]},
	}[c.Dir]
	if i := c.Epilogue.Bias; i != 0 {
		g.Bias, g.BiasType = true, typed(s.In[i])
		feeds = append(feeds, s.In[i])
	}
	return g.Graph(), feeds
}
