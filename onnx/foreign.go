package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// foreign carries a node that is not understood. It becomes an op that nothing computes, with the
// result types that the model declares. Sizes that nothing binds stay open. A result without a
// declared type, or whose elements the graph has no dtype for, is not in the graph; only Carry
// permits it. Nodes that read such values are carried, too. why is the reason why the node is not
// understood.
func (im *importer) foreign(c *call, why string) error {
	var in []*ir.Value
	for _, v := range c.in {
		in = append(in, im.carried(v))
	}
	seen := slices.Clone(c.n.In)
	for _, name := range reads(c.n) { // values that its graphs read are not operands
		if slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		if v := c.s.find(name); v != nil {
			in = append(in, im.carried(v))
		}
	}
	var names []string
	var types []ir.Type
	for _, name := range c.n.Out {
		if name == "" {
			continue
		}
		t, kind, err := im.declared(name)
		if err != nil {
			return fmt.Errorf("result %q: %w", name, err)
		}
		if kind != "" && !im.o.Carry {
			return Unsupported{Reason: fmt.Sprintf("%s, and it cannot be carried: its result %q is a %s", why, name, kind)}
		}
		if kind != "" {
			c.s.vals[name] = &value{name: name, kind: kind}
			continue
		}
		names, types = append(names, name), append(types, t)
	}
	if len(names) > 0 {
		out := im.b.Foreign(c.n.Op, in, nil, foreignAttrs(c.n, c.opset), types...)
		if im.b.Err() != nil {
			return im.b.Err()
		}
		for i, name := range names {
			c.s.vals[name] = &value{name: name, typ: types[i], v: im.b.Rename(out[i], im.nameOf(name))}
		}
	}
	im.out.Foreign = append(im.out.Foreign, im.at)
	return nil
}

// orCarried builds the node of c. If elements would have to be known for that, and Carry is set, the
// node is carried.
func (im *importer) orCarried(c *call, build func() error) (carried bool, err error) {
	before, done := *im.b, len(im.b.Graph().Body[ir.Forward])
	err = build()
	if u, not := errors.AsType[Unsupported](err); not && u.Data && im.carries() && im.o.Carry {
		*im.b = before // without the mistake, and what was built before it
		im.b.Graph().Body[ir.Forward] = im.b.Graph().Body[ir.Forward][:done]
		return true, im.foreign(c, u.Reason)
	}
	return false, err
}

// rowless is why an operator without a row has no place in the graph.
func (im *importer) rowless(n *Node) string {
	if im.o.Host != nil {
		if why := im.o.Host(n); why != "" {
			return "it runs on the host: " + why
		}
	}
	return "the operator is not known"
}

// carried is v as an operand of a foreign op, nil where the graph has no such elements.
func (im *importer) carried(v *value) *ir.Value {
	if v == nil || v.kind != "" {
		return nil
	}
	if v.init != nil && v.typ == (ir.Type{}) {
		t, err := v.init.Type()
		if err != nil {
			return nil // strings, elements of 4 bits: they stay in the file
		}
		v.typ = t
	}
	return im.operand(v)
}

// open reports an operand whose sizes are not all known.
func (c *call) open() bool {
	return slices.ContainsFunc(c.in, func(v *value) bool { return v != nil && v.typ != (ir.Type{}) && !v.typ.Shape.Static() })
}

// strange reports an operand whose elements the graph has no dtype for.
func (c *call) strange() bool {
	return slices.ContainsFunc(c.in, func(v *value) bool {
		if v == nil || v.init == nil {
			return v != nil && v.kind != ""
		}
		_, err := v.init.DType.ours()
		return err != nil
	})
}

// declared is the type that the model gives a value, or else what it is.
func (im *importer) declared(name string) (typ ir.Type, kind string, err error) {
	named := func(x *Info) bool { return x.Name == name }
	list := im.m.Graph.Infos
	i := slices.IndexFunc(list, named)
	if i < 0 {
		list = im.m.Graph.Outputs
		i = slices.IndexFunc(list, named)
	}
	if i < 0 {
		return ir.Type{}, "value without a type in the model, which ONNX's shape inference may give it", nil
	}
	x := list[i]
	if kind = x.kindOf(); kind != "" {
		return ir.Type{}, kind, nil
	}
	if typ.DType, err = x.DType.ours(); err != nil || !x.Rank {
		return typ, "", err
	}
	dims := make([]ir.Dim, len(x.Dims))
	for i := range dims {
		dims[i] = ir.UnknownDim
		if n, err := x.size(i, nil, im.o.Dims); err == nil {
			dims[i] = ir.Dim(n)
		}
	}
	typ.Shape = ir.MakeShape(dims...)
	return typ, "", ir.CheckDims(dims)
}

// kindOf says what x is, "" for a tensor whose elements a graph has a dtype for.
func (x *Info) kindOf() string {
	if x.Kind != "" {
		return x.Kind
	}
	if _, err := x.DType.ours(); err != nil {
		return "tensor of " + x.DType.String()
	}
	return ""
}

// foreignAttrs are the attributes that a graph's text holds, and the names of the others;
// the file keeps all.
func foreignAttrs(n *Node, opset int64) ir.Attrs {
	a := ir.A("domain", n.Domain)
	if n.Domain == "" {
		a = ir.A("domain", "ai.onnx")
	}
	if opset > 0 {
		a = a.With("opset", opset)
	}
	var lost []string
	for _, x := range n.Attrs {
		var v any
		switch x.Type {
		case AttrInt:
			v = x.I
		case AttrFloat:
			v = float64(x.F)
		case AttrString:
			v = x.S
		case AttrInts:
			v = x.Ints
		}
		if v == nil || ir.CheckName(x.Name) != nil || a.Get(x.Name) != nil || slices.Contains([]string{"op", "out", "cluster", "of", "grad", "pin", "loss", "lost"}, x.Name) {
			lost = append(lost, x.Name)
			continue
		}
		a = a.With(x.Name, v)
	}
	if lost != nil {
		a = a.With("lost", strings.Join(lost, ", "))
	}
	return a
}

// carries reports whether nodes that are not understood are carried: those of the main graph.
func (im *importer) carries() bool { return im.o.Foreign && im.inline == 0 }

// plain takes the position off a mistake that the builder reported.
func plain(err error) error {
	if e, ok := errors.AsType[*ir.Error](err); ok {
		return errors.New(e.Msg)
	}
	return err
}

func opName(n *Node) string {
	if n.Domain == "" {
		return n.Op
	}
	return n.Domain + "." + n.Op
}
