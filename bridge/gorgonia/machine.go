package bridge

import (
	"context"
	"fmt"
	"slices"

	G "gorgonia.org/gorgonia"

	"ampc"
	"ampc/ir"
)

// Machine runs a Gorgonia graph as a compiled step. It implements gorgonia.VM:
//
//	vm := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(params...)) // before
//	vm, err := bridge.NewMachine(g)                                     // after
//
// It must be used from one goroutine, as a tape machine.
type Machine struct {
	options
	imported *Imported
	model    *ampc.Model
	step     *ampc.Step
	training bool

	inputs  []slot // fed at every run
	params  []slot // written at every run, or once where the optimizer is inside
	results []result
	loaded  bool // the parameters have been written
	runs    int
	skipped bool
	last    *ampc.Result
	closed  bool
}

var _ G.VM = (*Machine)(nil)

// slot is an input node and the variable that stands for it.
type slot struct {
	node *G.Node
	v    *ir.Value
}

// result is a value that a run leaves in a node, in the target of a Read, or both.
type result struct {
	node *G.Node // nil: none to bind
	into *G.Value
	from *G.Node // whose type the value gets
	read func(*ampc.Result) (ampc.HostTensor, error)
	grad *gradient // instead of read
}

// gradient is a parameter's, in memory that every run fills again, as a tape
// machine does. It is zero where the step is skipped.
type gradient struct {
	slot
	ampc.HostTensor
}

// NewMachine compiles g. Inputs with a gradient, from Grad or WithParams, are
// parameters; if there are any, the step computes gradients. Without, the
// graph is compiled for inference: dropout passes its input on. A batch norm
// keeps to its own flag, which SetTraining and SetTesting set.
//
// The graph's forward part is read, shapes and flags such as a batch norm's
// training are taken as they are now. Values are read at each RunAll.
func NewMachine(g *G.ExprGraph, opts ...Option) (*Machine, error) {
	m := &Machine{}
	for _, o := range opts {
		if o != nil {
			o(&m.options)
		}
	}
	w, err := read(g)
	if err != nil {
		return nil, err
	}
	if err := m.check(w); err != nil {
		return nil, err
	}
	r := w.survey(m.cost)
	reads := m.classify(w, r)
	wanted := slices.Concat(r.costs, r.sinks, m.fetch, reads)
	m.training = len(r.costs) > 0 && (len(m.options.params) > 0 || slices.ContainsFunc(w.all, hasGradient))
	if wants := m.inside || len(m.options.params) > 0; wants && !m.training {
		return nil, fmt.Errorf("gorgonia machine: there is nothing to train: call gorgonia.Grad, or name the cost and the parameters by WithCost and WithParams")
	}
	if m.imported, err = load(w, wanted, m.options.params, m.training); err != nil {
		return nil, err
	}
	m.imported.Graph.Return = nil // results are asked for by name
	m.split()
	m.model = ampc.FromGraph(m.imported.Graph, m.options.model...)
	if err := m.compile(r.costs, slices.Concat(r.sinks, m.fetch, reads)); err != nil {
		return nil, err
	}
	return m, m.bindings(w, r)
}

func hasGradient(n *G.Node) bool { return n.Op() == nil && n.Deriv() != nil }

// check refuses options that name what is not there.
func (m *Machine) check(w *walk) error {
	if m.cost != nil && (!slices.Contains(w.all, m.cost) || len(m.cost.Shape()) != 0) {
		return fmt.Errorf("gorgonia machine: the cost must be a scalar of the graph")
	}
	for _, p := range m.options.params {
		if p == nil || p.Op() != nil || !slices.Contains(w.all, p) {
			return fmt.Errorf("gorgonia machine: a parameter must be an input of the graph")
		}
	}
	if m.inside && m.config.Optimizer == (ampc.Optimizer{}) {
		return fmt.Errorf("gorgonia machine: WithOptimizer got none")
	}
	return nil
}

// classify lists the forward values that Reads want; those of gradients are
// results of the step.
func (m *Machine) classify(w *walk, r roots) (forward []*G.Node) {
	for _, n := range r.reads {
		if x := w.in[n][0]; gradientOf(w, x) == nil && !isConst(x) {
			forward = append(forward, x)
		}
	}
	return forward
}

// gradientOf is the input whose gradient n is, nil where it is none.
func gradientOf(w *walk, n *G.Node) *G.Node {
	for _, p := range w.all {
		if p.Op() == nil && p.Deriv() == n {
			return p
		}
	}
	return nil
}

// split sorts the inputs into parameters and others.
func (m *Machine) split() {
	for _, n := range m.imported.Inputs {
		s := slot{n, m.imported.Values[n]}
		if s.v.Kind == ir.Param {
			m.params = append(m.params, s)
		} else {
			m.inputs = append(m.inputs, s)
		}
	}
}

func (m *Machine) compile(costs, fetched []*G.Node) error {
	c := m.config
	var out []ampc.Tensor
	for _, n := range slices.Concat(costs, fetched) {
		out = append(out, m.model.FromIR(m.imported.Values[n]))
	}
	if !m.training {
		for _, o := range c.Outputs {
			out = append(out, o.Tensor)
		}
		var err error
		m.step, err = m.model.Infer(ampc.InferConfig{Policy: c.Policy, Sizes: c.Sizes, KeepSizes: c.KeepSizes, Compile: c.Compile}, out...)
		return err
	}
	for _, t := range out {
		c.Outputs = append(c.Outputs, ampc.Output{Tensor: t})
	}
	if !m.inside {
		c.Optimizer, c.Groups = ampc.Optimizer{}, []ampc.Group{{NoUpdate: true}}
		c.NoSkip = c.NoSkip || c.Policy.Low == 0 && c.Scaler == (ampc.Scaler{})
		for _, p := range m.params {
			c.Grads = append(c.Grads, m.model.FromIR(p.v))
		}
	}
	losses, err := m.losses(costs)
	if err != nil {
		return err
	}
	m.step, err = m.model.Train(c, losses...)
	return err
}

// losses are the costs, weighted by the gradients that backpropagation was
// seeded with, which are 1 after Grad.
func (m *Machine) losses(costs []*G.Node) ([]ampc.Loss, error) {
	var losses []ampc.Loss
	for _, n := range costs {
		l := ampc.Loss{Value: m.model.FromIR(m.imported.Values[n]), Weight: 1}
		if seed := n.Deriv(); seed != nil {
			w := walk{}
			weight, ok := w.number(seed)
			if !ok || weight <= 0 {
				return nil, fmt.Errorf("%s: its gradient is not a positive constant: give NewMachine the cost with WithCost", describe(n))
			}
			l.Weight = weight
		}
		losses = append(losses, l)
	}
	return losses, nil
}

// bindings lists what a run leaves where.
func (m *Machine) bindings(w *walk, r roots) error {
	value := func(n *G.Node) func(*ampc.Result) (ampc.HostTensor, error) {
		v := m.model.FromIR(m.imported.Values[n])
		return func(r *ampc.Result) (ampc.HostTensor, error) { return r.Value(v) }
	}
	for _, n := range unique(slices.Concat(r.costs, r.sinks, m.fetch)) {
		if n.Op() != nil {
			m.results = append(m.results, result{node: n, from: n, read: value(n)})
		}
	}
	grads := map[*G.Node]*gradient{}
	if m.training && !m.inside {
		for _, p := range m.params {
			grads[p.node] = &gradient{slot: p}
			if d := p.node.Deriv(); d != nil {
				m.results = append(m.results, result{node: d, from: p.node, grad: grads[p.node]})
			}
		}
	}
	for _, n := range r.reads {
		x := w.in[n][0]
		to := result{into: (*G.Value)(structOf(n.Op()).Field(0).UnsafePointer()), from: x, read: value(x)}
		switch p := gradientOf(w, x); {
		case isConst(x):
			*to.into = x.Value()
			continue
		case p != nil && grads[p] == nil:
			return fmt.Errorf("%s: it reads a gradient, which stays inside with WithOptimizer", describe(n))
		case p != nil:
			to.from, to.read, to.grad = p, nil, grads[p]
		}
		m.results = append(m.results, to)
	}
	return nil
}

func unique(nodes []*G.Node) (out []*G.Node) {
	for _, n := range nodes {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// RunAll runs one step: it reads the inputs' values, computes, and binds the
// costs, gradients, fetched nodes and Read targets. Gradients are unscaled. It
// fails where an input has no value or one of another shape than the graph says.
func (m *Machine) RunAll() error {
	if m.closed {
		return fmt.Errorf("gorgonia machine: it is closed")
	}
	feed := ampc.Feed{}
	for _, s := range m.inputs {
		h, err := s.host()
		if err != nil {
			return err
		}
		feed[s.v.Name] = h
	}
	if err := m.load(); err != nil {
		return err
	}
	r, err := m.step.Run(context.Background(), feed)
	if err != nil {
		return err
	}
	m.runs++
	got, err := r.Wait(context.Background())
	if err != nil {
		return err
	}
	m.last, m.skipped = r, m.training && got.Skipped
	if err := m.bind(r); err != nil {
		return err
	}
	if m.skipped {
		return m.step.Stuck()
	}
	return nil
}

// host is the value of a node in the type of its variable.
func (s slot) host() (ampc.HostTensor, error) {
	var none ampc.HostTensor
	v := s.node.Value()
	if v == nil {
		return none, fmt.Errorf("%s: it has no value: bind one with gorgonia.Let", describe(s.node))
	}
	h, err := hostOf(v)
	switch {
	case err != nil:
		return none, fmt.Errorf("%s: %w", describe(s.node), err)
	case h.Type.IR() == s.v.Type:
		return h, nil
	case h.Type.IR().Shape != s.v.Type.Shape:
		return none, fmt.Errorf("%s: its value has shape %v, the machine was made for %v: build a graph and a machine for each shape", describe(s.node), v.Shape(), s.node.Shape())
	}
	return converted(h, s.v.Type)
}

// load writes the parameters, and the number of the run where nothing counts it.
func (m *Machine) load() error {
	if a := roleVar(m.imported.Graph, "attempt"); a != nil && !m.training {
		if err := m.model.SetVariable(a.Name, int(m.runs)); err != nil {
			return err
		}
	}
	if m.inside && m.training && m.loaded {
		return nil
	}
	return m.Load()
}

// Load writes the parameters' values of the nodes into the machine. RunAll
// does so by itself, but with WithOptimizer only at the first run.
func (m *Machine) Load() error {
	for _, p := range m.params {
		h, err := p.host()
		if err != nil {
			return err
		}
		if err := m.model.SetVariable(p.v.Name, h); err != nil {
			return err
		}
	}
	m.loaded = true
	return nil
}

func roleVar(g *ir.Graph, role string) *ir.Value {
	for _, v := range g.Vars {
		if v.Attr.Get("role") == role {
			return v
		}
	}
	return nil
}

// Skipped says whether the last run's gradients overflowed and are not to be
// used: a solver on the host should then not step. They are bound as zeros.
// With WithOptimizer the step was skipped inside. It never does so in f32.
func (m *Machine) Skipped() bool { return m.skipped }

// Result is what the last run computed: loss, scale, norm of the gradients.
func (m *Machine) Result() *ampc.Result { return m.last }

// Step is the compiled step, for reports.
func (m *Machine) Step() *ampc.Step { return m.step }

// Reset does nothing: a run keeps no position. It is there for gorgonia.VM.
func (m *Machine) Reset() {}

// Close releases the backend's memory. Values that were bound stay.
func (m *Machine) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	return m.model.Close()
}
