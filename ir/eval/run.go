package eval

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// Result is what one step computed.
type Result struct {
	Values map[string]*Tensor // every unprimed value by name, variables as the step found them
	Next   map[string]*Tensor // what the variables that were written hold afterwards, by name
	all    map[*ir.Value]*Tensor
}

// Value returns what v had, nil when v is not of the graph.
func (r *Result) Value(v *ir.Value) *Tensor { return r.all[v] }

// Run evaluates one step with one micro-batch: prepare, forward, backward,
// update. env gives inputs, params, states and constants by name; what it
// lacks is initialized (an input without initializer is an error). A variable
// that a part writes has its next value in the parts after it.
func Run(g *ir.Graph, env map[string]*Tensor, o Options) (*Result, error) {
	return Step(g, env, []map[string]*Tensor{nil}, o)
}

// Step evaluates one step: prepare once, forward and backward once per element
// of feeds, update once. A feed gives the inputs of its micro-batch and
// overrides env. Result.Values of the micro part are those of the last feed.
func Step(g *ir.Graph, env map[string]*Tensor, feeds []map[string]*Tensor, o Options) (*Result, error) {
	r := &runner{g: g, opt: o, now: map[*ir.Value]*Tensor{}}
	r.res = &Result{Values: map[string]*Tensor{}, Next: map[string]*Tensor{}, all: r.now}
	if err := r.start(env); err != nil {
		return nil, err
	}
	if err := r.part(ir.Prepare); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(g.Body[ir.Forward], func(n *ir.Node) bool { return n.Together() > 1 }) {
		last, err := r.together(env, feeds)
		if err != nil {
			return nil, err
		}
		return last.res, last.part(ir.Update)
	}
	for i, feed := range feeds {
		if err := r.feed(i, env, feed); err != nil {
			return nil, err
		}
		if err := r.part(ir.Forward, ir.Backward); err != nil {
			return nil, err
		}
	}
	return r.res, r.part(ir.Update)
}

// Forward evaluates the forward section of a graph of few nodes, which writes no variable, on vars,
// the tensors of g.Vars in their order. It returns what g returns.
func Forward(g *ir.Graph, vars []*Tensor) ([]*Tensor, error) {
	r := &runner{g: g, now: make(map[*ir.Value]*Tensor, len(vars)+len(g.Body[ir.Forward]))}
	for i, v := range g.Vars {
		if err := r.set(v, vars[i]); err != nil {
			return nil, err
		}
	}
	if err := r.part(ir.Forward); err != nil {
		return nil, err
	}
	out := make([]*Tensor, len(g.Return))
	for i, v := range g.Return {
		out[i] = r.now[v]
	}
	return out, nil
}

type runner struct {
	g   *ir.Graph
	opt Options
	now map[*ir.Value]*Tensor
	res *Result // nil: no caller asks for values by name
}

func (r *runner) start(env map[string]*Tensor) error {
	for _, v := range r.g.Vars {
		if v.Kind == ir.Input {
			continue
		}
		if err := r.set(v, env[v.Name]); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) feed(i int, env, feed map[string]*Tensor) error {
	for _, v := range r.g.Vars {
		if v.Kind != ir.Input {
			continue
		}
		t := feed[v.Name]
		if t == nil {
			t = env[v.Name]
		}
		if t == nil && v.Attr.Get("role") == "micro" {
			t = Ints(v.Type.DType, nil, int64(i))
		}
		if t == nil && v.Attr.Get("role") == ir.RoleRank {
			t = Ints(v.Type.DType, nil, int64(r.opt.Rank))
		}
		if each, _ := v.Attr.Get("each").(int64); t == nil && v.Attr.Get("role") == ir.RoleSlice {
			t = Ints(v.Type.DType, nil, int64(r.opt.Rank)*each+int64(i))
		}
		if err := r.set(v, t); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) set(v *ir.Value, t *Tensor) error {
	if t == nil {
		if v.Init == nil && v.Kind == ir.Input {
			return fmt.Errorf("input %s is not given", v)
		}
		var err error
		if t, err = initOn(v, r.opt.Seed, r.opt.Rank); err != nil {
			return err
		}
	}
	if t.Type != v.Type {
		return fmt.Errorf("%s is %s, got %s", v, r.g.TypeString(v.Type), t.Type)
	}
	r.hold(v, t)
	return nil
}

// hold gives v its tensor.
func (r *runner) hold(v *ir.Value, t *Tensor) {
	if r.now[v] = t; r.res != nil && v.Next == nil {
		r.res.Values[v.Name] = t
	}
}

// part runs sections one after the other, then lets variables advance.
func (r *runner) part(sections ...ir.Section) error {
	next := map[*ir.Value]*Tensor{}
	for _, s := range sections {
		for _, n := range r.g.Body[s] {
			if err := r.node(n, r.opt, next); err != nil {
				return err
			}
		}
	}
	for v, t := range next {
		r.now[v], r.res.Next[v.Name] = t, t
	}
	return nil
}

// node evaluates one node. What it writes to variables is in next.
func (r *runner) node(n *ir.Node, o Options, next map[*ir.Value]*Tensor) error {
	if o.Stop != nil {
		if err := o.Stop(); err != nil {
			return err
		}
	}
	in := make([]*Tensor, len(n.In))
	for i, v := range n.In {
		if v != nil {
			in[i] = r.now[v]
		}
	}
	out, err := Node(n, in, o)
	if err != nil {
		return err
	}
	for i, v := range n.Out {
		r.hold(v, out[i])
		if v.Next != nil {
			next[v.Next] = out[i]
		}
	}
	return nil
}
