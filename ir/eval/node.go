package eval

import (
	"fmt"

	"ampc/ir"
)

// Options choose how numbers are rounded.
type Options struct {
	// Float64 keeps every float in float64 and rounds nothing: casts, round and
	// tf32 change no value. Results then need not be representable.
	Float64 bool
	// Seed starts the random initializers of variables that the caller did not give.
	Seed int64
	// Stop is asked before every node of Run and Step, which its error ends; it may be nil.
	Stop func() error
	// Exchange connects the ranks of a graph with collectives; nil: there is one rank.
	Exchange Exchange
	// Rank is this rank's number: what a variable of role rank holds.
	Rank int
}

// call is one node being evaluated: operands, zeroed results of the node's
// types (static), and the options.
type call struct {
	*ir.Node
	in, out []*Tensor
	opt     Options
}

// fn computes c.out from c.in in float64; the caller rounds.
type fn func(c *call) error

// Node evaluates one node on operands in row order (nil where absent) and
// returns its results, rounded as stored. Errors say what cannot be computed:
// a foreign op, a type that is not static, an index outside its axis.
func Node(n *ir.Node, in []*Tensor, o Options) ([]*Tensor, error) {
	c := &call{Node: n, in: in, out: make([]*Tensor, 0, len(n.Out)), opt: o}
	for _, v := range n.Out {
		if !v.Type.Shape.Static() {
			return nil, fmt.Errorf("%s: %s has type %s: its dimensions have no sizes", n.Def().Name, v, v.Type)
		}
		c.out = append(c.out, New(v.Type))
	}
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", n.Def().Name, n.Name(), err)
	}
	if !o.Float64 {
		for _, t := range c.out {
			t.round()
		}
	}
	return c.out, nil
}

func (c *call) run() error {
	if f := evaluators[c.Op]; f != nil {
		return f(c)
	}
	switch d := c.Def(); {
	case d.Elem != nil:
		elementwise(c)
		return nil
	case d.Kernel != nil:
		return custom(c)
	case d.Expand != nil:
		return expanded(c)
	case c.Op == ir.OpForeign:
		return fmt.Errorf("the foreign op %s cannot be evaluated", c.Str("op"))
	}
	return fmt.Errorf("has no evaluator")
}

// Has reports whether the op can be evaluated.
func Has(op ir.Op) bool { return evaluators[op] != nil || op.Def().Elem != nil }

// custom runs a user's kernel on widened copies.
func custom(c *call) error {
	host := func(ts []*Tensor) []any {
		s := make([]any, len(ts))
		for i, t := range ts {
			switch {
			case t == nil:
			case t.Type.DType.Float():
				f := make([]float32, len(t.F))
				for k, x := range t.F {
					f[k] = float32(x)
				}
				s[i] = f
			default:
				s[i] = append([]int64(nil), t.I...)
			}
		}
		return s
	}
	out := host(c.out)
	if err := c.Def().Kernel(c.Node, host(c.in), out); err != nil {
		return err
	}
	for i, t := range c.out {
		switch v := out[i].(type) {
		case []float32:
			for k, x := range v {
				t.F[k] = float64(x)
			}
		case []int64:
			copy(t.I, v)
		}
	}
	return nil
}

// expanded evaluates a row without an evaluator of its own through the
// simpler rows it says it equals.
func expanded(c *call) error {
	g, err := expansionGraph(c.Node)
	if err != nil {
		return err
	}
	env := map[string]*Tensor{}
	for i, t := range c.in {
		if t != nil {
			env[operandName(i)] = t
		}
	}
	r, err := Run(g, env, c.opt)
	if err != nil {
		return err
	}
	for i, v := range g.Return {
		c.out[i] = r.Value(v)
	}
	return nil
}

func operandName(i int) string { return fmt.Sprintf("in%d", i) }

// expansionGraph is a graph of one node's Expand: an input per operand, named in0,
// in1 and so on, and the node's results returned. Tests compare it with the
// fused row, exporters write it in the row's place.
func expansionGraph(n *ir.Node) (*ir.Graph, error) {
	b := ir.NewBuilder(n.Def().Name)
	k := *n
	k.In = make([]*ir.Value, len(n.In))
	for i, v := range n.In {
		if v != nil {
			k.In[i] = b.Declare(ir.Input, operandName(i), v.Type, nil, nil)
		}
	}
	b.Return(n.Def().Expand(b, &k)...)
	return b.Graph(), b.Err()
}
