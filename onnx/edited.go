package onnx

import (
	"bytes"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// Edited is the model as e makes it. Its initializers are those of m, where they lie, and those
// that e changes are made where they are read: it may be read as long as m is open, and written if
// e changes none.
func (m *Model) Edited(e *Edit) (out *Model, err error) {
	err = m.guard(func() error {
		bare := *e
		bare.withoutTensors = true
		p, err := m.edited(&bare)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := p.writeTo(&b); err != nil {
			return err
		}
		if out, err = Parse(b.Bytes()); err != nil {
			return fmt.Errorf("the changed model cannot be read: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.path, out.others, out.lent = m.path, m.others, map[string]*message{}
	out.Graph.moved()
	for _, f := range out.Functions {
		moved(f.Nodes)
		moved([]*Node{{Attrs: f.Defaults}})
	}
	own := map[string]*Tensor{}
	for _, t := range m.Graph.Initializers {
		own[t.Name] = t
	}
	for i, t := range out.Graph.Initializers {
		was := own[t.Name]
		if x, changed := e.Tensors[t.Name]; changed && was != nil {
			out.Graph.Initializers[i] = &Tensor{Name: t.Name, DType: x.DType, Dims: was.Dims, made: x.bytes}
		} else if was != nil {
			out.Graph.Initializers[i], out.lent[t.Name] = was, &was.src
		}
	}
	return out, nil
}

// bytes are the elements.
func (x *NewTensor) bytes() ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, x.Size))
	err := x.Write(b)
	return b.Bytes(), err
}

// moved says of all tensors that they do not lie in the file of the model.
func (g *Graph) moved() {
	for _, t := range g.Initializers {
		t.moved = true
	}
	moved(g.Nodes)
}

func moved(nodes []*Node) {
	for _, n := range nodes {
		for _, a := range n.Attrs {
			if a.T != nil {
				a.T.moved = true
			}
			if a.G != nil {
				a.G.moved()
			}
		}
	}
}

// bare is a tensor that is only a name.
func bare(name string) *pieces {
	p := &pieces{}
	p.text(8, name)
	return p
}

// form copies a node in another form, with other names for what it keeps of its
// operands and results; nil: their own.
func (x *NodeEdit) form(node message, rename func(name string, in bool) string) (*pieces, error) {
	p := &pieces{}
	texts := func(num int, list []string) {
		for _, s := range list {
			p.text(num, s)
		}
	}
	texts(1, x.In)
	texts(2, x.Out)
	err := node.each(func(f field) error {
		name := string(f.m.b)
		switch {
		case f.num == 1 && x.In != nil, f.num == 2 && x.Out != nil:
		case f.num <= 2 && rename != nil && name != "":
			p.text(f.num, rename(name, f.num == 1))
		case f.num == 4 && x.Op != "":
			p.text(4, x.Op)
		case f.num == 5:
			a := Attribute{}
			if err := a.read(f, 0); err != nil {
				return err
			}
			if !slices.Contains(x.Drop, a.Name) {
				p.add(f.raw)
			}
		default:
			p.add(f.raw)
		}
		return nil
	})
	for _, a := range x.Attrs {
		p.message(5, a.pieces())
	}
	return p, err
}

// moving is an initializer that goes to the data file although it is not changed; ok is
// false for one that stays where it is.
func (m *Model) moving(t *Tensor) (x NewTensor, ok bool, err error) {
	if lent := m.lent[t.Name]; lent != nil {
		*t = Tensor{}
		if err := t.read(field{typ: lengths, m: *lent}); err != nil {
			return x, false, err
		}
	}
	typ, err := t.Type()
	if err != nil || !t.isExternal && typ.Bytes() < minExternal {
		return x, false, nil //nolint:nilerr // elements that nothing computes with stay where they are
	}
	b, err := m.Bytes(t)
	return Bytes(t.DType, b), err == nil, err
}

// apart writes the elements of an initializer to the data file.
func (e *Edit) apart(out *pieces, src message, name string, dims []int64, x NewTensor) error {
	p, end, err := externalPieces(e.Data, e.DataFile, e.dataSize, name, dims, x)
	if err != nil {
		return err
	}
	e.dataSize = end
	err = src.each(func(f field) error {
		if f.num > 14 || f.num == 12 { // what is not known, and its description
			p.add(f.raw)
		}
		return nil
	})
	out.message(5, p)
	return err
}

// Known reports whether a standard operator is one that is read.
func Known(op string) bool { return table()[rowKey{"", op}] != nil }

// Ints is a vector of i64.
func Ints(v ...int64) NewTensor {
	t := Bytes(7, eval.Ints(ir.I64, []ir.Dim{ir.Dim(len(v))}, v...).Bytes())
	t.Dims = []int64{int64(len(v))}
	return t
}

// Floats is a tensor of numbers in a dtype.
func Floats(d ir.DType, dims []int64, v ...float64) NewTensor {
	s := make([]ir.Dim, len(dims))
	for i, n := range dims {
		s[i] = ir.Dim(n)
	}
	e := eval.New(ir.Type{DType: d, Shape: ir.MakeShape(s...)})
	for i, x := range v {
		e.F[i] = eval.Round(x, d)
	}
	t := Bytes(TypeOf(d), e.Bytes())
	t.Dims = dims
	return t
}
