package bridge

import (
	"encoding/binary"
	"fmt"
	"math"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc"
	"ampc/internal/fp"
	"ampc/ir"
)

// bind leaves the results of a run in nodes and Read targets.
func (m *Machine) bind(r *ampc.Result) error {
	for _, to := range m.results {
		h, err := m.read(r, to)
		if err != nil {
			return fmt.Errorf("%s: %w", describe(to.from), err)
		}
		v, err := valueFor(to.from, h)
		if err != nil {
			return err
		}
		if to.into != nil {
			*to.into = v
		}
		if to.node == nil {
			continue
		}
		if err := G.UnsafeLet(to.node, v); err != nil {
			return fmt.Errorf("%s: %w", describe(to.node), err)
		}
	}
	return m.norms()
}

// read gives one result, gradients in the memory that they had in the last run.
func (m *Machine) read(r *ampc.Result, to result) (ampc.HostTensor, error) {
	g := to.grad
	if g == nil {
		return to.read(r)
	}
	if g.Bytes == nil {
		g.HostTensor = ampc.HostTensor{Type: ampc.TypeFromIR(g.v.Type), Bytes: make([]byte, g.v.Type.Bytes())}
	}
	err := r.GradTo(m.model.FromIR(g.v), g.Bytes)
	if m.skipped {
		clear(g.Bytes)
	}
	return g.HostTensor, err
}

// norms gives the batch norms their running statistics, where the host steps.
func (m *Machine) norms() error {
	if m.inside || !m.training {
		return nil
	}
	return m.syncNorms()
}

func (m *Machine) syncNorms() error {
	for _, n := range m.imported.norms {
		var stats [2]*tensor.Dense
		like, _ := n.op.Stats()
		for i, v := range []*ir.Value{n.mean, n.variance} {
			h, err := m.model.Variable(v.Name)
			if err != nil {
				return err
			}
			if stats[i], err = denseOf(like.Dtype(), h); err != nil {
				return err
			}
		}
		if err := n.op.SetStats(stats[0], stats[1]); err != nil {
			return err
		}
	}
	return nil
}

// Sync brings what the machine's optimizer has changed back to the nodes: the
// parameters' values, in place where they are contiguous, and the running
// statistics of batch norms.
func (m *Machine) Sync() error {
	if m.closed {
		return fmt.Errorf("gorgonia machine: it is closed")
	}
	if !m.loaded {
		return nil
	}
	for _, p := range m.params {
		h, err := m.model.Variable(p.v.Name)
		if err != nil {
			return err
		}
		if old, err := hostOf(p.node.Value()); err == nil && shares(p.node.Value()) && old.Type == h.Type {
			copy(old.Bytes, h.Bytes)
			continue
		}
		v, err := valueFor(p.node, h)
		if err != nil {
			return err
		}
		if err := G.UnsafeLet(p.node, v); err != nil {
			return fmt.Errorf("%s: %w", describe(p.node), err)
		}
	}
	return m.syncNorms()
}

// shares says whether hostOf looks at v's own memory.
func shares(v G.Value) bool {
	t, ok := v.(*tensor.Dense)
	if !ok || t.Dims() == 0 {
		return false
	}
	h, err := FromDense(t)
	raw, _ := memory(t.Data())
	return err == nil && len(h.Bytes) > 0 && &h.Bytes[0] == &raw[0]
}

// Gradient is a parameter's gradient in the last run, for those without a
// Deriv to bind it to.
func (m *Machine) Gradient(p *G.Node) (G.Value, error) {
	for _, s := range m.params {
		if s.node == p {
			h, err := m.last.Grad(m.model.FromIR(s.v))
			if err != nil {
				return nil, err
			}
			if m.skipped {
				clear(h.Bytes)
			}
			return valueFor(p, h)
		}
	}
	return nil, fmt.Errorf("gorgonia machine: %s is not a parameter", describe(p))
}

// valueFor is h as a value that can be bound to n.
func valueFor(n *G.Node, h ampc.HostTensor) (G.Value, error) {
	t, ok := elemOf(n)
	if !ok {
		return nil, fmt.Errorf("%s: its type %v has no elements", describe(n), n.Type())
	}
	d, err := denseOf(t, h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", describe(n), err)
	}
	if n.Dims() > 0 {
		return d, nil
	}
	switch x := d.ScalarValue().(type) {
	case float32:
		return G.NewF32(x), nil
	case float64:
		return G.NewF64(x), nil
	case int:
		return G.NewI(x), nil
	case int32:
		return G.NewI32(x), nil
	case int64:
		return G.NewI64(x), nil
	case uint8:
		return G.NewU8(x), nil
	case bool:
		return G.NewB(x), nil
	}
	return nil, fmt.Errorf("%s: no number of type %v", describe(n), t)
}

// denseOf is h with elements of the type t.
func denseOf(t tensor.Dtype, h ampc.HostTensor) (*tensor.Dense, error) {
	want, err := dtypeOf(t)
	if err != nil {
		return nil, err
	}
	if want != h.Type.IR().DType {
		if h, err = converted(h, h.Type.IR().With(want)); err != nil {
			return nil, err
		}
	}
	if t == tensor.Int { // ToDense makes int64
		dims, x := h.Type.Shape(), elements[int](h.Bytes)
		if len(dims) == 0 {
			return tensor.New(tensor.FromScalar(x[0])), nil
		}
		return tensor.New(tensor.WithShape(dims...), tensor.WithBacking(x)), nil
	}
	return ToDense(h)
}

// converted rounds h to another float type.
func converted(h ampc.HostTensor, to ir.Type) (ampc.HostTensor, error) {
	if !h.Type.DType().Float() || !to.DType.Float() || h.Type.IR().Shape != to.Shape {
		return ampc.HostTensor{}, fmt.Errorf("it is %s, want %s", h.Type, to)
	}
	out := make([]byte, 0, to.Bytes())
	for i := range h.Len() {
		x := h.At(i)
		switch to.DType {
		case ir.F32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
		case ir.F64:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
		case ir.F16:
			out = binary.LittleEndian.AppendUint16(out, fp.F16(float32(x)))
		default:
			return ampc.HostTensor{}, fmt.Errorf("it is %s, want %s", h.Type, to)
		}
	}
	return ampc.HostTensor{Type: ampc.TypeFromIR(to), Bytes: out}, nil
}
