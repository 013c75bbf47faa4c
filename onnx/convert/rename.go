package convert

import (
	"fmt"
	"strings"

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
	name := to
	if to == value {
		name = p.fresh(to + ".cast")
	}
	kind := any(int64(d))
	// Before opset 6, Cast has the type's name, such as FLOAT16.
	if p.m.Opsets[""] < 6 {
		kind = strings.ToUpper(d.String())
	}
	n := onnx.NewNode{Name: name, Op: "Cast", In: []string{from}, Out: []string{to}, Attrs: []onnx.NewAttr{{Name: "to", Value: kind}}}
	made := to
	if made == value {
		made = from
	}
	p.edit.Infos = append(p.edit.Infos, onnx.NewInfo{Name: made, Like: value, DType: p.typeOf(made == to, d)})
	if i, made := p.from[value]; made {
		p.edit.After[i] = append(p.edit.After[i], n)
	} else {
		p.edit.First = append(p.edit.First, n)
	}
}

// typeOf is the type of a new value: of what a cast to d makes, or of what it reads.
func (p *convertPlan) typeOf(made bool, d onnx.DataType) onnx.DataType {
	if made == (d == float) {
		return float
	}
	return p.lowType()
}

// made reports whether the value is made in 16 bits, or comes in them.
func (p *convertPlan) made(name string) bool {
	if p.given[name] {
		return true
	}
	i, ok := p.from[name]
	return ok && p.half[i] && p.x.Types[name].DType == ir.F32
}

// readers finds which values nodes read in 16 bits and which in f32, those in their graphs included.
func (p *convertPlan) readers(read, wide map[string]bool) {
	for i, n := range p.m.Graph.Nodes {
		for k, name := range n.In {
			if p.half[i] && !p.stays(n, k) {
				read[name] = true
			} else {
				wide[name] = true
			}
		}
	}
	for _, q := range p.inner {
		q.readers(read, wide)
	}
}

// store puts initializers that only 16-bit nodes read into 16 bits.
func (p *convertPlan) store() error {
	read, wide := map[string]bool{}, map[string]bool{}
	p.readers(read, wide)
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
		} else {
			p.edit.Tensors[name] = low
		}
		p.edit.DTypes[name] = p.lowType()
		p.lowAs[name] = name
		p.report.Weights++
	}
	for name, i := range p.recast {
		if read[name] && !wide[name] {
			p.edit.Nodes[i] = onnx.NodeEdit{Drop: []string{"to"}, Attrs: []onnx.NewAttr{{Name: "to", Value: int64(p.lowType())}}}
			p.edit.DTypes[name], p.lowAs[name] = p.lowType(), name
		}
	}
	return nil
}

// rename gives every node the names of its operands and results in the type it
// takes, and adds the casts.
func (p *convertPlan) rename() {
	p.results()
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
			} else if p.asked[y] {
				out[y] = p.wideAs[y]
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

// results names what is made or comes in 16 bits, and what is asked for in them.
func (p *convertPlan) results() {
	suffix := "." + p.low.String()
	for name, on := range p.given {
		if on {
			p.lowAs[name], p.edit.DTypes[name] = name, p.lowType()
		}
	}
	for i, n := range p.m.Graph.Nodes {
		for _, y := range n.Out {
			switch {
			case !p.float(y):
			case p.half[i] && p.needed[y]:
				p.lowAs[y], p.wideAs[y] = p.fresh(y+suffix), y
				p.cast(y, p.lowAs[y], y, float)
			case p.half[i]:
				p.lowAs[y], p.edit.DTypes[y] = y, p.lowType()
			case p.asked[y]:
				p.lowAs[y], p.wideAs[y] = y, p.fresh(y+".f32")
				p.edit.DTypes[y] = p.lowType()
				p.cast(y, p.wideAs[y], y, p.lowType())
			}
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

// lowName is the name of a value in 16 bits.
func (p *convertPlan) lowName(name string) string {
	if p.lowAs[name] == "" {
		p.lowAs[name] = p.fresh(name + "." + p.low.String())
		if t := p.inits[name]; t != nil && elements(t) <= maxTwice {
			p.twice(t, p.lowAs[name])
		} else {
			p.cast(name, name, p.lowAs[name], p.lowType())
		}
	}
	return p.lowAs[name]
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
		if x := p.before(name); x != "" && p.x.Types[x].DType == p.low {
			return x
		}
		if o := p.owner(name); o != nil { // outside a loop that reads it
			return o.lowName(name)
		}
		return p.lowName(name)
	case p.made(name) || p.asked[name]:
		if p.wideAs[name] == "" {
			p.wideAs[name] = p.fresh(name + ".f32")
			p.cast(name, p.lowAs[name], p.wideAs[name], float)
		}
		return p.wideAs[name]
	}
	return name
}
