package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/runtime"
)

// run is one run of the model.
type run struct {
	s     *Session
	ctx   context.Context
	in    map[string]*Value // what it is fed
	loops int               // iterations so far
	grown int64             // bytes since the memory was last counted
	stack []*frame
	kept  []*Value // what iterations so far have given, to be stacked
	steps []Step

	building []*entry // whose programs are being compiled
}

// frame is a run of a scope.
type frame struct {
	scope *scope
	outer *frame
	env   map[string]*Value
}

// scope runs a scope on its inputs and returns its outputs.
func (r *run) scope(s *scope, outer *frame, env map[string]*Value) ([]*Value, error) {
	f := &frame{scope: s, outer: outer, env: env}
	if len(r.stack) > maxFrames {
		return nil, fmt.Errorf("graphs are nested more than %d deep, which is the limit", maxFrames)
	}
	for name, v := range env {
		r.observe(name, v)
	}
	r.stack = append(r.stack, f)
	defer func() { r.stack = r.stack[:len(r.stack)-1] }()
	for st := s.plan(f).first(); st != nil; {
		if err := context.Cause(r.ctx); err != nil {
			return nil, err
		}
		e, err := r.next(st, f)
		if err == errSplit {
			st = s.plan(f).first()
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := r.execute(e, f); err != nil {
			return nil, err
		}
		st = e.next
	}
	out := make([]*Value, len(s.outputs))
	for i, y := range s.outputs {
		v, err := f.value(r.s, y.Name)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", y.Name, err)
		}
		out[i] = v
	}
	return out, nil
}

// errSplit says that the scope has a new plan, before anything ran.
var errSplit = errors.New("a new plan")

// maxFrames bounds how deep loops, branches and functions nest.
const maxFrames = 64

// find looks a value up: in the frame, then among the scope's initializers, then outside.
func (f *frame) find(name string) (v *Value, t *onnx.Tensor, in *scope) {
	for ; f != nil; f = f.outer {
		if v := f.env[name]; v != nil {
			return v, v.init, f.scope
		}
		if t := f.scope.inits[name]; t != nil {
			return nil, t, f.scope
		}
	}
	return nil, nil, nil
}

// value is a value with its elements, those of an initializer included.
func (f *frame) value(s *Session, name string) (*Value, error) {
	v, t, _ := f.find(name)
	switch {
	case t != nil:
		typ, err := t.Type()
		if err != nil {
			return nil, err
		}
		b, err := s.model.Bytes(t)
		if err != nil {
			return nil, err
		}
		return NewTensor(typ, slices.Clone(b)), nil
	case v == nil:
		return nil, fmt.Errorf("no node computes it")
	case v.later:
		return nil, errLater
	}
	return v, nil
}

// execute runs an entry: its program, then its nodes.
func (r *run) execute(e *entry, f *frame) error {
	r.s.cache.use(e)
	if e.program != nil {
		if err := r.program(e, f); err != nil {
			return err
		}
	}
	e.pass(f)
	for _, o := range e.outs {
		r.observe(o.name, f.env[o.name])
	}
	r.note(e)
	for _, i := range e.nodes {
		if err := r.node(i, f); err != nil {
			return err
		}
	}
	e.bury(f)
	return nil
}

// program feeds a region's program and takes its results.
func (r *run) program(e *entry, f *frame) error {
	feed := runtime.Feed{}
	for _, x := range e.feeds {
		v, err := f.value(r.s, x.name)
		if err != nil {
			return err
		}
		feed[x.input] = runtime.Tensor{Type: v.Type, Data: v.Bytes()}
	}
	read, err := r.step(e.program, feed)
	if err != nil {
		return fmt.Errorf("%s: %w", e.title(), err)
	}
	made := make([][]byte, len(e.program.code.Outputs))
	for _, o := range e.outs {
		if o.at < 0 {
			continue
		}
		if made[o.at] == nil {
			if made[o.at], err = read(o.at); err != nil {
				return err
			}
			if err := r.grow(int64(len(made[o.at]))); err != nil {
				return err
			}
		}
		f.env[o.name] = NewTensor(e.program.result(o.at), made[o.at])
	}
	return nil
}

// step runs a program. Other runs go on meanwhile, if the backend runs several at a
// time; the program stays until it is over. read returns the elements of a result.
func (r *run) step(p *program, f runtime.Feed) (read func(at int) ([]byte, error), err error) {
	if c, ok := p.exec.(runtime.Concurrent); ok && c.Concurrent() {
		p.users++
		r.s.mu.Unlock()
		defer func() {
			r.s.mu.Lock()
			p.users--
			err = cmp.Or(err, r.s.cache.trim(r.s.o.Programs, r.s.o.ProgramBytes))
		}()
	}
	step := func(f runtime.Feed) (runtime.Future, error) { return p.exec.Step(r.ctx, []runtime.Feed{f}) }
	if p.items > 1 {
		all, err := p.runItems(f, step)
		return func(at int) ([]byte, error) { return all[at], nil }, err
	}
	future, err := step(f)
	return func(at int) ([]byte, error) { return results(future, at, p.code.Outputs[at].Type) }, err
}

// results are the elements of a result: the future's own memory where it keeps it.
func results(f runtime.Future, at int, t ir.Type) ([]byte, error) {
	if kept, ok := f.(runtime.Kept); ok {
		return kept.Bytes(at)
	}
	b := make([]byte, t.Bytes())
	return b, f.Read(at, b)
}

// node runs a node on the host.
func (r *run) node(i int, f *frame) error {
	n := f.scope.nodes[i]
	out, err := r.compute(n, f)
	if err != nil {
		return &onnx.NodeError{Index: i, Node: n.Name, Op: opName(n), Err: err}
	}
	for k, name := range n.Out {
		if name == "" {
			continue
		}
		if k >= len(out) || out[k] == nil {
			return &onnx.NodeError{Index: i, Node: n.Name, Op: opName(n), Err: fmt.Errorf("the operator did not compute result %d, which the model uses", k)}
		}
		f.env[name] = out[k]
		r.observe(name, out[k])
	}
	return nil
}

// observe shows a value to who asked for it; not one that is an initializer.
func (r *run) observe(name string, v *Value) {
	if r.s.o.Observe != nil && v != nil && v.Kind == Tensor && v.init == nil {
		r.s.o.Observe(name, v)
	}
}

func opName(n *onnx.Node) string {
	if n.Domain == "" {
		return n.Op
	}
	return n.Domain + "." + n.Op
}

func (r *run) compute(n *onnx.Node, f *frame) ([]*Value, error) {
	in := make([]*Value, len(n.In))
	for i, name := range n.In {
		if name == "" {
			continue
		}
		v, err := f.value(r.s, name)
		if err != nil {
			return nil, fmt.Errorf("operand %q: %w", name, err)
		}
		in[i] = v
	}
	c := &call{run: r, f: f, n: n, in: in, opset: f.scope.opsets[n.Domain]}
	op := evaluated
	if known, ok := r.s.ops[opName(n)]; ok {
		op = known.run
	}
	if fn, nodes := r.s.model.Inlined(n); fn != nil {
		op = func(c *call) ([]*Value, error) { return c.function(fn, nodes) }
	}
	out, err := op(c)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	for _, v := range out {
		if v != nil && v.Kind == Tensor && !slices.Contains(in, v) {
			size += v.Type.Bytes()
		}
	}
	return out, r.grow(size)
}

// evaluated computes a node of the importer's table in the evaluator.
func evaluated(c *call) ([]*Value, error) {
	in := make([]*eval.Tensor, len(c.in))
	for i, v := range c.in {
		if v == nil {
			continue
		}
		var err error
		if in[i], err = v.Elements(); err != nil {
			return nil, fmt.Errorf("operand %d %w", i, err)
		}
	}
	got, err := c.run.s.model.Compute(c.n, c.f.scope.opsets, in)
	if err != nil {
		return nil, err
	}
	out := make([]*Value, len(got))
	for i, t := range got {
		if t != nil {
			out[i] = decoded(t)
		}
	}
	return out, nil
}

// grow notes that values take more memory. They are counted when they may have
// become too large.
func (r *run) grow(n int64) error {
	r.grown += n
	limit := r.s.o.Bytes
	if r.grown <= limit/4 {
		return nil
	}
	r.grown = 0
	seen, held := map[*Value]bool{}, n
	for _, v := range r.kept {
		held += v.size(seen)
	}
	for _, f := range r.stack {
		for _, v := range f.env {
			held += v.size(seen)
		}
	}
	if held > limit {
		return fmt.Errorf("the values in memory take %d bytes, more than the limit of %d", held, limit)
	}
	return nil
}

// iterate counts an iteration of a loop.
func (r *run) iterate() error {
	if r.loops++; r.loops > r.s.o.Iterations {
		return fmt.Errorf("the loops of this run reached the limit of %d iterations", r.s.o.Iterations)
	}
	return context.Cause(r.ctx)
}

func shapeOf(d ...int64) ir.Shape {
	dims := make([]ir.Dim, len(d))
	for i, n := range d {
		dims[i] = ir.Dim(n)
	}
	return ir.MakeShape(dims...)
}
