package convert

import (
	"fmt"

	"ampc/ir"
	"ampc/onnx"
)

// The element types of ONNX that casts name.
const (
	float    onnx.DataType = 1
	float16  onnx.DataType = 10
	bfloat16 onnx.DataType = 16
)

func (p *convertPlan) lowType() onnx.DataType {
	if p.low == ir.BF16 {
		return bfloat16
	}
	return float16
}

// fresh is a name that nothing has yet.
func (p *convertPlan) fresh(name string) string {
	for i := 0; ; i++ {
		s := name
		if i > 0 {
			s = fmt.Sprintf("%s_%d", name, i)
		}
		if !p.names[s] {
			p.names[s] = true
			return s
		}
	}
}

// cast adds a cast of a value behind what makes it, before all nodes where that
// is an input or an initializer.
func (p *convertPlan) cast(value, from, to string, d onnx.DataType) {
	p.report.Casts++
	n := onnx.NewNode{Name: to, Op: "Cast", In: []string{from}, Out: []string{to}, Attrs: []onnx.NewAttr{{Name: "to", Value: int64(d)}}}
	if i, made := p.from[value]; made {
		p.edit.After[i] = append(p.edit.After[i], n)
	} else {
		p.edit.First = append(p.edit.First, n)
	}
}

// made reports whether a node makes the value in 16 bits.
func (p *convertPlan) made(name string) bool {
	i, ok := p.from[name]
	return ok && p.half[i] && p.x.Types[name].DType == ir.F32
}

// store puts initializers that only 16-bit nodes read into 16 bits.
func (p *convertPlan) store() error {
	wide := map[string]bool{}
	read := map[string]bool{}
	for i, n := range p.m.Graph.Nodes {
		for k, name := range n.In {
			if p.half[i] && !p.stays(n, k) {
				read[name] = true
			} else {
				wide[name] = true
			}
		}
	}
	for name, t := range p.inits {
		if !read[name] || wide[name] || p.needed[name] {
			continue
		}
		low, err := p.narrowed(t)
		if err != nil {
			return err
		}
		if i, ok := p.consts[name]; ok {
			p.edit.Values[i] = low
			p.edit.DTypes[name] = p.lowType()
		} else {
			p.edit.Tensors[name] = low
		}
		p.lowAs[name] = name
		p.report.Weights++
	}
	return nil
}

// rename gives every node the names of its operands and results in the type it
// takes, and adds the casts.
func (p *convertPlan) rename() {
	suffix := "." + p.low.String()
	for i, n := range p.m.Graph.Nodes { // what is made in 16 bits
		if !p.half[i] {
			continue
		}
		for _, y := range n.Out {
			if p.x.Types[y].DType != ir.F32 {
				continue
			}
			p.lowAs[y] = y
			if p.needed[y] {
				p.lowAs[y], p.wideAs[y] = p.fresh(y+suffix), y
				p.cast(y, p.lowAs[y], y, float)
			} else {
				p.edit.DTypes[y] = p.lowType()
			}
		}
	}
	for i, n := range p.m.Graph.Nodes {
		in := map[string]string{}
		for k, name := range n.In {
			if name == "" || p.x.Types[name].DType != ir.F32 {
				continue
			}
			in[name] = p.operand(n, i, k, name)
		}
		out := map[string]string{}
		for _, y := range n.Out {
			if p.made(y) {
				out[y] = p.lowAs[y]
			}
		}
		p.edit.Rename[i] = func(name string, isIn bool) string {
			to := out[name]
			if isIn {
				to = in[name]
			}
			if to == "" {
				return name
			}
			return to
		}
		if same(in) && same(out) {
			delete(p.edit.Rename, i)
		}
	}
}

func same(names map[string]string) bool {
	for a, b := range names {
		if a != b {
			return false
		}
	}
	return true
}

// maxTwice is up to how many elements a constant is stored in both precisions,
// where both are read: a cast would cost more.
const maxTwice = 1 << 10

// twice stores a constant in 16 bits beside what it is.
func (p *convertPlan) twice(t *onnx.Tensor, as string) {
	low, err := p.narrowed(t)
	if err != nil {
		return // what could not be read was an error before
	}
	low.Dims = t.Dims
	p.edit.Inits = append(p.edit.Inits, onnx.NewInit{Name: as, NewTensor: low})
}

// operand is the name under which node i reads a value as its operand k.
func (p *convertPlan) operand(n *onnx.Node, i, k int, name string) string {
	wantLow := p.half[i] && !p.stays(n, k)
	switch {
	case n.Op == "Shape" || n.Op == "Size" || n.Op == "Cast": // any type
		if p.made(name) {
			return p.lowAs[name]
		}
		return name
	case wantLow:
		if p.lowAs[name] == "" {
			p.lowAs[name] = p.fresh(name + "." + p.low.String())
			if t := p.inits[name]; t != nil && elements(t) <= maxTwice {
				p.twice(t, p.lowAs[name])
			} else {
				p.cast(name, name, p.lowAs[name], p.lowType())
			}
		}
		return p.lowAs[name]
	case p.made(name):
		if p.wideAs[name] == "" {
			p.wideAs[name] = p.fresh(name + ".f32")
			p.cast(name, p.lowAs[name], p.wideAs[name], float)
		}
		return p.wideAs[name]
	}
	return name
}
