package onnx

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// declare writes the variables that are read: inputs keep their order, all others
// become initializers.
func (x *exporter) declare() error {
	for _, v := range x.g.Vars {
		if !x.wants(v) || v.Kind == ir.Input {
			continue
		}
		if !v.Type.Shape.Static() {
			return fmt.Errorf("%s is %s: give its dimensions sizes", v, x.g.TypeString(v.Type))
		}
		t, err := x.weights(v)
		if err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		if x.o.Data == nil || t.Size < minExternal {
			x.inits.message(5, tensorPieces(v.Name, ir.Sizes(v.Type.Shape), t))
			continue
		}
		if err := x.apart(v, t); err != nil {
			return err
		}
	}
	return nil
}

// minExternal is the size from which weights go to the data file; alignAway is where
// they begin there, so that it can be mapped.
const (
	minExternal   = 1 << 10
	externalAlign = 1 << 12
)

// apart writes the elements of v to the data file.
func (x *exporter) apart(v *ir.Value, t NewTensor) error {
	p, at, err := externalPieces(x.o.Data, x.o.DataFile, x.dataSize, v.Name, ir.Sizes(v.Type.Shape), t)
	x.dataSize = at
	x.inits.message(5, p)
	return err
}

// externalPieces writes t to data, which has at bytes, and says where in a tensor.
func externalPieces(data io.Writer, file string, at int64, name string, dims []int64, t NewTensor) (p *pieces, end int64, err error) {
	start := (at + externalAlign - 1) / externalAlign * externalAlign
	if _, err := data.Write(make([]byte, start-at)); err != nil {
		return nil, at, err
	}
	n := &counted{w: data}
	if err := t.Write(n); err != nil {
		return nil, at, err
	}
	if n.size != t.Size {
		return nil, at, fmt.Errorf("tensor %q: only %d of %d bytes were written", name, n.size, t.Size)
	}
	p = &pieces{}
	p.packed(1, dims)
	p.number(2, int64(t.DType))
	p.text(8, name)
	p.externalEntries(file, start, t.Size)
	return p, start + t.Size, nil
}

// externalEntries says where the elements of a tensor are in a file.
func (p *pieces) externalEntries(file string, at, size int64) {
	for _, e := range []Entry{{"location", file}, {"offset", fmt.Sprint(at)}, {"length", fmt.Sprint(size)}} {
		kv := &pieces{}
		kv.text(1, e.Key)
		kv.text(2, e.Value)
		p.message(13, kv)
	}
	p.number(14, 1)
}

func (x *exporter) weights(v *ir.Value) (NewTensor, error) {
	if x.o.Weights != nil && v.Kind != ir.Const {
		return x.o.Weights(v)
	}
	e, err := eval.InitVar(v, 0)
	if err != nil {
		return NewTensor{}, err
	}
	return Bytes(TypeOf(v.Type.DType), e.Bytes()), nil
}

// model assembles the parts of the model.
func (x *exporter) model() *pieces {
	m := &pieces{}
	m.number(1, irVersion(x.opset))
	m.text(2, "ampc")
	g := &pieces{}
	g.parts, g.size = append(g.parts, x.nodes.parts...), x.nodes.size
	g.text(2, x.g.Name)
	g.parts, g.size = append(g.parts, x.inits.parts...), g.size+x.inits.size
	for _, v := range x.g.Vars {
		if v.Kind == ir.Input && (x.wants(v) || x.o.KeepInputs) {
			g.message(11, x.info(v.Name, v.Type))
		}
	}
	for i, v := range x.g.Return {
		g.message(12, x.info(x.outputs[i], v.Type))
	}
	for _, p := range x.infos {
		g.message(13, p)
	}
	m.message(7, g)
	x.domains[""] = x.opset
	for _, domain := range slices.Sorted(maps.Keys(x.domains)) {
		set := &pieces{}
		set.text(1, domain)
		set.number(2, x.domains[domain])
		m.message(8, set)
	}
	return m
}

// info is the name and type of an input or an output.
func (x *exporter) info(name string, t ir.Type) *pieces {
	shape := &pieces{}
	for _, d := range t.Shape.Dims() {
		dim := &pieces{}
		switch {
		case d >= 0:
			dim.number(1, int64(d))
		case d != ir.UnknownDim:
			dim.text(2, x.g.Syms[-d-1].Name)
		}
		shape.message(1, dim)
	}
	tensor := &pieces{}
	tensor.number(1, int64(TypeOf(t.DType)))
	tensor.message(2, shape)
	typ := &pieces{}
	typ.message(1, tensor)
	p := &pieces{}
	p.text(1, name)
	p.message(2, typ)
	return p
}
