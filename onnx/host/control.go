package host

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/onnx"
)

// inner runs the graph of an attribute on operands.
func (c *call) inner(attr string, in []*Value) ([]*Value, error) {
	s, err := c.f.scope.sub(c.n, attr)
	if err != nil {
		return nil, err
	}
	if len(in) != len(s.inputs) {
		return nil, fmt.Errorf("graph %s has %d inputs, but the node passes %d", attr, len(s.inputs), len(in))
	}
	env := map[string]*Value{}
	for i, name := range s.inputs {
		env[name] = in[i]
	}
	out, err := c.run.scope(s, c.f, env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attr, err)
	}
	return out, nil
}

// function runs a function of the model's.
func (c *call) function(f *onnx.Function, nodes []*onnx.Node) ([]*Value, error) {
	s := c.f.scope.subs[c.n][f.Name]
	if s == nil {
		opsets := map[string]int64{}
		for _, m := range []map[string]int64{c.f.scope.opsets, f.Opsets} {
			for k, v := range m {
				opsets[k] = v
			}
		}
		var err error
		if s, err = newFunction(c.f.scope.within(c.n), opsets, f, nodes); err != nil {
			return nil, err
		}
		c.f.scope.keep(c.n, f.Name, s)
	}
	env := map[string]*Value{}
	for i, v := range c.in {
		if v != nil {
			env[f.In[i]] = v
		}
	}
	return c.run.scope(s, nil, env)
}

func ifElse(c *call) ([]*Value, error) {
	cond, err := c.number(0)
	if err != nil {
		return nil, err
	}
	if cond != 0 {
		return c.inner("then_branch", nil)
	}
	return c.inner("else_branch", nil)
}

// loop is ONNX's Loop: a for loop with a count, a while loop, or both. The carried values may
// change their shape from one iteration to the next.
func loop(c *call) ([]*Value, error) {
	trips, err := c.integer(0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	going, err := c.integer(1, 1)
	if err != nil {
		return nil, err
	}
	carried := slices.Clone(c.in[min(2, len(c.in)):])
	s, err := c.f.scope.sub(c.n, "body")
	if err != nil {
		return nil, err
	}
	scans := make([][]*Value, max(len(s.outputs)-1-len(carried), 0))
	for i := int64(0); i < trips && going != 0; i++ {
		if err := c.run.iterate(); err != nil {
			return nil, err
		}
		out, err := c.inner("body", append([]*Value{scalar(i), truth(true)}, carried...))
		if err != nil {
			return nil, fmt.Errorf("iteration %d: %w", i, err)
		}
		if len(out) < 1+len(carried) {
			return nil, fmt.Errorf("the body has %d outputs, want %d or more", len(out), 1+len(carried))
		}
		next := call{in: out[:1]}
		if going, err = next.integer(0, 1); err != nil {
			return nil, fmt.Errorf("the body's condition: %w", err)
		}
		carried = slices.Clone(out[1 : 1+len(carried)])
		if err := c.collect(scans, out[1+len(carried):]); err != nil {
			return nil, err
		}
	}
	return c.gathered(carried, scans, s.outputs[min(1+len(carried), len(s.outputs)):], nil)
}

// collect adds the results of an iteration to those of the ones before.
func (c *call) collect(scans [][]*Value, out []*Value) error {
	size := int64(0)
	for k, v := range out {
		if v.Kind != Tensor {
			return fmt.Errorf("the body's output %d is a %s, want a tensor: only tensors can be stacked", k, v.Kind)
		}
		scans[k] = append(scans[k], v)
		size += v.Type.Bytes()
	}
	c.run.kept = append(c.run.kept, out...)
	return c.run.grow(size)
}

// gathered returns the results of a loop: the carried values, and the stacked results of all
// iterations. infos describe the stacked results if there was no iteration.
func (c *call) gathered(carried []*Value, scans [][]*Value, infos []*onnx.Info, how func(k int) (axis int64, reverse bool)) ([]*Value, error) {
	out := carried
	for k, list := range scans {
		if len(list) == 0 {
			v, err := none(infos[k])
			if err != nil {
				return nil, err
			}
			out = append(out, v)
			continue
		}
		at := int64(0)
		if how != nil {
			var reverse bool
			if at, reverse = how(k); reverse {
				slices.Reverse(list)
			}
		}
		a, err := axis(at, list[0].Type.Shape.Rank()+1)
		if err != nil {
			return nil, err
		}
		v, err := stack(list, a)
		if err != nil {
			return nil, fmt.Errorf("the body's output %d: %w", len(carried)+1+k, err)
		}
		out = append(out, v)
	}
	c.run.kept = nil
	return out, nil
}

// none is a stacked result without iterations; an undeclared size is 0.
func none(x *onnx.Info) (*Value, error) {
	d, err := x.DType.DType()
	if err != nil {
		return nil, err
	}
	shape := []int64{0}
	for _, n := range x.Dims {
		shape = append(shape, max(n.Size, 0))
	}
	return NewTensor(ir.Type{DType: d, Shape: shapeOf(shape...)}, []byte{}), nil
}

// scan is ONNX's Scan since opset 9: the body sees slices of some operands and
// carries states.
func scan(c *call) ([]*Value, error) {
	if c.opset < 9 {
		return scanBatch(c)
	}
	return c.scanOnce("scan_input_directions")
}

// scanBatch is Scan of opset 8: a batch of sequences, each scanned by itself, of which
// operand 0 may say the lengths. Results of shorter ones end in zeros.
func scanBatch(c *call) ([]*Value, error) {
	var lengths []int64
	if c.has(0) {
		t, err := c.tensor(0)
		if err != nil {
			return nil, err
		}
		lengths = t.I
	}
	states := len(c.in) - 1 - int(c.int("num_scan_inputs", 0))
	batch := int64(-1)
	for k, v := range c.in[1:] {
		if v == nil || v.Kind != Tensor || v.Type.Shape.Rank() < 1 || k >= states && v.Type.Shape.Rank() < 2 || batch >= 0 && batch != int64(v.Type.Shape.Dim(0)) {
			return nil, fmt.Errorf("operand %d must be a tensor whose first dimension is the batch, which is %d in the operands before", k+1, batch)
		}
		batch = int64(v.Type.Shape.Dim(0))
	}
	if batch < 1 || states < 0 || lengths != nil && int64(len(lengths)) != batch {
		return nil, fmt.Errorf("the batch has %d sequences and %d lengths, want one length for each of at least one sequence", batch, len(lengths))
	}
	var gathered [][]*Value // by result, then by sequence
	for b := range batch {
		one := *c
		one.in = nil
		steps := int64(0)
		for k, v := range c.in[1:] {
			x := v.slice(0, b, b+1)
			x = x.reshaped(shapeOf(ir.Sizes(x.Type.Shape)[1:]...))
			if k >= states {
				steps = int64(x.Type.Shape.Dim(0))
				if lengths != nil {
					if lengths[b] < 0 || lengths[b] > steps {
						return nil, fmt.Errorf("a length is %d, but the sequence has %d steps", lengths[b], steps)
					}
					x = x.slice(0, 0, lengths[b])
				}
			}
			one.in = append(one.in, x)
		}
		out, err := one.scanOnce("directions")
		if err != nil {
			return nil, fmt.Errorf("sequence %d: %w", b, err)
		}
		for k, v := range out {
			if k >= len(gathered) {
				gathered = append(gathered, nil)
			}
			if k >= states && v != nil && v.Type.Shape.Rank() > 0 && int64(v.Type.Shape.Dim(0)) < steps {
				d := ir.Sizes(v.Type.Shape)
				d[0] = steps
				t := ir.Type{DType: v.Type.DType, Shape: shapeOf(d...)}
				v = NewTensor(t, append(slices.Clone(v.Bytes()), make([]byte, t.Bytes()-v.Type.Bytes())...))
			}
			gathered[k] = append(gathered[k], v)
		}
	}
	var out []*Value
	for _, list := range gathered {
		v, err := stack(list, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// scanOnce scans one sequence; the attribute says which operands are read from their end.
func (c *call) scanOnce(directions string) ([]*Value, error) {
	inputs := int(c.int("num_scan_inputs", 0))
	states := len(c.in) - inputs
	s, err := c.f.scope.sub(c.n, "body")
	if err != nil {
		return nil, err
	}
	if inputs < 1 || states < 0 || len(s.outputs) < states {
		return nil, fmt.Errorf("the node has %d operands, %d of them scanned, which does not fit a body with %d outputs", len(c.in), inputs, len(s.outputs))
	}
	carried := slices.Clone(c.in[:states])
	axes, steps, err := c.scanned(states)
	if err != nil {
		return nil, err
	}
	scans := make([][]*Value, len(s.outputs)-states)
	for i := range steps {
		if err := c.run.iterate(); err != nil {
			return nil, err
		}
		in := slices.Clone(carried)
		for k, v := range c.in[states:] {
			at := i
			if listed(c.ints(directions), k) != 0 {
				at = steps - 1 - i
			}
			d := ir.Sizes(v.Type.Shape)
			in = append(in, v.slice(axes[k], at, at+1).reshaped(shapeOf(slices.Delete(d, axes[k], axes[k]+1)...)))
		}
		out, err := c.inner("body", in)
		if err != nil {
			return nil, fmt.Errorf("iteration %d: %w", i, err)
		}
		carried = slices.Clone(out[:states])
		if err := c.collect(scans, out[states:]); err != nil {
			return nil, err
		}
	}
	return c.gathered(carried, scans, s.outputs[states:], func(k int) (int64, bool) {
		return listed(c.ints("scan_output_axes"), k), listed(c.ints("scan_output_directions"), k) != 0
	})
}

// scanned are the axes along which operands are cut, and their size, which is one.
func (c *call) scanned(states int) (axes []int, steps int64, err error) {
	steps = -1
	for k, v := range c.in[states:] {
		if v == nil || v.Kind != Tensor {
			return nil, 0, fmt.Errorf("operand %d is not a tensor", states+k)
		}
		a, err := axis(listed(c.ints("scan_input_axes"), k), v.Type.Shape.Rank())
		if err != nil {
			return nil, 0, fmt.Errorf("operand %d: %w", states+k, err)
		}
		n := int64(v.Type.Shape.Dim(a))
		if steps >= 0 && n != steps {
			return nil, 0, fmt.Errorf("operand %d has %d slices, but an earlier operand has %d", states+k, n, steps)
		}
		axes, steps = append(axes, a), n
	}
	return axes, steps, nil
}

// listed is entry k of an attribute that may be absent.
func listed(list []int64, k int) int64 {
	if k < len(list) {
		return list[k]
	}
	return 0
}
