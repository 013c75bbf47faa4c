// Package refbackend shows what a backend must bring: a target with rules of its
// own and a runtime.Backend that runs its Programs, in one folder. Every node is
// a kernel step, and the evaluator is the kernel.
package refbackend

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/runtime"
)

// target runs every node that has a meaning on one device, whole and by itself.
type target struct{ lower.Shared }

func (target) String() string { return "reference" }

func (target) Caps() ir.Caps { return ir.Caps{NoGraphs: true} }

func (target) Rule(n *ir.Node) lower.Rule {
	if lower.SharedRule(n) == nil {
		return nil
	}
	return lower.KernelRule
}

func (target) Fuses() bool { return false }

// backend implements runtime.Backend.
type backend struct{}

func (backend) Name() string         { return "reference" }
func (backend) Target() lower.Target { return target{} }
func (backend) Close() error         { return nil }

func (backend) NewStore(vars []lower.Var) (runtime.Store, error) {
	s := store{}
	return s, s.Declare(vars)
}

// store holds variables by name.
type store map[string]*variable

type variable struct {
	t   ir.Type
	mem []byte
}

func (s store) Declare(vars []lower.Var) error {
	for i := range vars {
		v := &vars[i]
		old := s[v.Name]
		switch {
		case v.Kind != ir.Param && v.Kind != ir.State:
		case old == nil:
			s[v.Name] = &variable{v.Type, make([]byte, v.Type.Bytes())}
		case old.t != v.Type:
			return fmt.Errorf("variable %q is %s in the store, declared again as %s", v.Name, old.t, v.Type)
		}
	}
	return nil
}

func (s store) Drop(names ...string) error {
	for _, name := range names {
		delete(s, name)
	}
	return nil
}

func (s store) Write(name string, src []byte) error { return s.move(name, src, true) }
func (s store) Read(name string, dst []byte) error  { return s.move(name, dst, false) }
func (s store) Close() error                        { return nil }

func (s store) move(name string, b []byte, write bool) error {
	v := s[name]
	switch {
	case v == nil:
		return fmt.Errorf("the store has no variable %q", name)
	case len(b) != len(v.mem):
		return fmt.Errorf("variable %q has %d bytes, not %d", name, len(v.mem), len(b))
	case write:
		copy(v.mem, b)
	default:
		copy(b, v.mem)
	}
	return nil
}

// exec is a Program with the memory of each of its buffers.
type exec struct {
	p   *lower.Program
	mem [][]byte
}

// Load implements runtime.Backend: buffers lie where the planner has put them.
func (backend) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	if p.Target != (target{}) {
		return nil, fmt.Errorf("reference: %s is lowered for %s", p.Name, p.Target)
	}
	e := &exec{p, make([][]byte, len(p.Buffers))}
	var arenas [lower.NumArenas][]byte
	for a, n := range p.Arenas {
		arenas[a] = make([]byte, n)
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		e.mem[i] = arenas[b.Arena][b.Offset:][:b.Size]
	}
	for i := range p.Vars {
		if err := e.bind(&p.Vars[i], s.(store)); err != nil {
			return nil, err
		}
	}
	for i := range p.Buffers {
		e.mem[i] = e.mem[p.Buffers[i].Root] // roots come first, and nothing shows a part of one
	}
	return e, nil
}

// bind gives a variable the store's memory and a constant its value.
func (e *exec) bind(v *lower.Var, s store) error {
	switch v.Kind {
	case ir.Const:
		b, err := runtime.InitialBytes(v, 0)
		copy(e.mem[v.Buffer], b)
		return err
	case ir.Param, ir.State:
		x := s[v.Name]
		if x == nil || x.t != v.Type {
			return fmt.Errorf("the store has no variable %q of type %s", v.Name, v.Type)
		}
		e.mem[v.Buffer] = x.mem
	}
	return nil
}

// Step implements runtime.Exec.
func (e *exec) Step(ctx context.Context, feeds []runtime.Feed) (runtime.Future, error) {
	if err := runtime.CheckFeeds(e.p, feeds); err != nil {
		return nil, err
	}
	early := e.p.WrittenEarly()
	var before [][]byte
	for _, id := range early {
		before = append(before, slices.Clone(e.mem[id]))
	}
	if err := e.gradients(ctx, feeds); err != nil {
		for i, id := range early {
			copy(e.mem[id], before[i])
		}
		return nil, fmt.Errorf("%s: %w", e.p.Name, err)
	}
	if err := e.run(context.Background(), lower.Update); err != nil {
		return nil, err
	}
	var t future
	for _, o := range e.p.Outputs {
		t = append(t, slices.Clone(e.mem[o.Buffer]))
	}
	return t, nil
}

func (e *exec) Close() error { return nil }

// gradients runs prepare, and micro for every feed.
func (e *exec) gradients(ctx context.Context, feeds []runtime.Feed) error {
	if err := e.refresh(); err != nil {
		return err
	}
	if err := e.run(ctx, lower.Prepare); err != nil {
		return err
	}
	for i, f := range feeds {
		for k := range e.p.Vars {
			switch v := &e.p.Vars[k]; {
			case v.Kind != ir.Input:
			case v.Role() == runtime.RoleMicro:
				binary.LittleEndian.PutUint32(e.mem[v.Buffer], uint32(i))
			default:
				copy(e.mem[v.Buffer], f[v.Name].Data)
			}
		}
		if err := e.run(ctx, lower.Micro); err != nil {
			return err
		}
	}
	return nil
}

// refresh casts variables to the 16-bit copies that the update keeps: a caller may
// have written them (see lower.Target.Refreshes).
func (e *exec) refresh() error {
	for i := range e.p.Vars {
		to := &e.p.Vars[i]
		if to.Role() != ir.RoleCopy {
			continue
		}
		name, _ := to.Attr.Get("of").(string)
		k := slices.IndexFunc(e.p.Vars, func(v lower.Var) bool { return v.Name == name })
		if k < 0 {
			continue // this Program knows the copy alone
		}
		from := &e.p.Vars[k]
		cast := &ir.Node{Op: ir.OpCast, Attrs: ir.A("to", to.Type.DType), In: []*ir.Value{{Type: from.Type}}, Out: []*ir.Value{{Type: to.Type}}}
		if err := e.evaluate(cast, []lower.BufferID{from.Buffer}, []lower.BufferID{to.Buffer}); err != nil {
			return err
		}
	}
	return nil
}

func (e *exec) run(ctx context.Context, part lower.Part) error {
	for i := range e.p.Parts[part] {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		switch s := &e.p.Parts[part][i]; s.Kind {
		case lower.KindKernel:
			err = e.evaluate(s.Kernel.Node, s.In, s.Out)
		case lower.KindCopy: // a next value that could not be stored over its variable at once
			copy(e.mem[s.Out[0]], e.mem[s.In[0]])
		default:
			err = fmt.Errorf("no kernel for a %s", s.Kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// evaluate computes all results of a node before it stores the first.
func (e *exec) evaluate(n *ir.Node, in, out []lower.BufferID) error {
	operands := make([]*eval.Tensor, len(n.In))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if in[i] == lower.None { // a result takes its shape, and nothing reads its elements
			operands[i] = eval.New(v.Type)
			continue
		}
		var err error
		if operands[i], err = eval.FromBytes(v.Type, e.mem[in[i]]); err != nil {
			return err
		}
	}
	results, err := eval.Node(n, operands, eval.Options{})
	for i, x := range results {
		copy(e.mem[out[i]], x.Bytes())
	}
	return err
}

// future has the results of a step.
type future [][]byte

func (t future) Read(out int, dst []byte) error {
	if out < 0 || out >= len(t) || len(dst) != len(t[out]) {
		return fmt.Errorf("result %d of %d, %d bytes", out, len(t), len(dst))
	}
	copy(dst, t[out])
	return nil
}
