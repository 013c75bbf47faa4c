package onnx

import (
	"fmt"
	"io"
)

// Edit changes the main graph of a model as it is written. What it does not
// name keeps its bytes, fields that are not known here included, and its place.
type Edit struct {
	// Rename gives a node's operands (in) and results other names; nodes by index.
	Rename map[int]func(name string, in bool) string
	// Nodes are other forms of nodes, by index; Before are nodes before them.
	Nodes  map[int]NodeEdit
	Before map[int][]NewNode
	// Opset is another version of the standard operators; the version of the format
	// rises to one that has it. 0: the model's.
	Opset int64
	// First are nodes before all others, After those behind a node.
	First []NewNode
	After map[int][]NewNode
	// Tensors are new elements of initializers, by name; their shapes stay.
	Tensors map[string]NewTensor
	// Values are new elements of Constant nodes, by index. Inits are initializers to add.
	Values map[int]NewTensor
	Inits  []NewInit
	lean   bool // tensors are left out, which others have
	// DTypes are new types of the elements of what value_info names.
	DTypes map[string]DataType
}

// NodeEdit is another form of a node; what is nil or "" stays.
type NodeEdit struct {
	Op      string
	In, Out []string
	Drop    []string // attributes
	Attrs   []NewAttr
}

// NewInit is an initializer; its shape is that of its elements.
type NewInit struct {
	Name string
	NewTensor
}

// NewNode is a node of the standard domain.
type NewNode struct {
	Name, Op string
	In, Out  []string
	Attrs    []NewAttr
}

// NewAttr is an attribute of a new node: an int64, float32, string, []int64,
// []float32, []string or NewTensor.
type NewAttr struct {
	Name  string
	Value any
}

// NewTensor is what an initializer holds: little-endian, row-major, dense.
type NewTensor struct {
	DType DataType
	Dims  []int64                 // of a tensor that is new; one that is changed keeps those that it has
	Size  int64                   // bytes
	Write func(w io.Writer) error // writes them; called once, when the model is written
}

// Empty reports whether nothing is changed.
func (e *Edit) Empty() bool {
	return e == nil || len(e.Rename)+len(e.First)+len(e.After)+len(e.Tensors)+len(e.DTypes)+len(e.Values)+len(e.Inits)+len(e.Nodes)+len(e.Before) == 0 && e.Opset == 0
}

// Write writes the model with the changes of e, nil for none: then the bytes
// are those that were read. Tensors that are not changed go from the mapped file to w.
func (m *Model) Write(w io.Writer, e *Edit) error {
	return m.guard(func() error {
		if e == nil {
			e = &Edit{}
		}
		if e.Empty() && m.lent == nil {
			_, err := w.Write(m.src.b)
			return err
		}
		out, err := m.edited(e)
		if err != nil {
			return err
		}
		return out.writeTo(w)
	})
}

func (m *Model) edited(e *Edit) (*pieces, error) {
	out := &pieces{}
	err := m.src.each(func(f field) error {
		switch {
		case f.num == 1 && e.Opset > 0:
			out.number(1, max(m.IR, irVersion(e.Opset)))
		case f.num == 8 && e.Opset > 0:
			return e.version(out, f)
		case f.num == 7:
			g, err := m.graph(e, f.m)
			if err == nil {
				out.message(7, g)
			}
			return err
		default:
			out.add(f.raw)
		}
		return nil
	})
	return out, err
}

// version copies the version of an operator set.
func (e *Edit) version(out *pieces, f field) error {
	sets := map[string]int64{}
	if err := opset(f, sets); err != nil {
		return err
	}
	if _, own := sets[""]; !own {
		out.add(f.raw)
		return nil
	}
	p := &pieces{}
	p.text(1, "")
	p.number(2, e.Opset)
	out.message(8, p)
	return nil
}

func (m *Model) graph(e *Edit, src message) (*pieces, error) {
	out := &pieces{}
	i := 0
	err := src.each(func(f field) error {
		switch f.num {
		case 1:
			if i == 0 {
				e.add(out, e.First)
			}
			e.add(out, e.Before[i])
			if x, ok := e.Nodes[i]; ok {
				if err := x.form(out, f.m); err != nil {
					return err
				}
			} else if v, ok := e.Values[i]; ok {
				if err := revalued(out, f.m, v); err != nil {
					return err
				}
			} else if rename := e.Rename[i]; rename == nil {
				out.add(f.raw)
			} else if err := renamed(out, f.m, rename); err != nil {
				return err
			}
			e.add(out, e.After[i])
			i++
			return nil
		case 5:
			return m.tensor(e, out, f)
		case 13:
			return e.info(out, f)
		}
		out.add(f.raw)
		return nil
	})
	for _, t := range e.Inits {
		out.message(5, tensorPieces(t.Name, t.Dims, t.NewTensor))
	}
	return out, err
}

// revalued copies a Constant node with another value.
func revalued(out *pieces, node message, v NewTensor) error {
	p := &pieces{}
	err := node.each(func(f field) error {
		if f.num != 5 {
			p.add(f.raw)
			return nil
		}
		a := Attribute{}
		if err := a.read(f, 0); err != nil {
			return err
		}
		if a.Name != "value" {
			p.add(f.raw)
			return nil
		}
		v.Dims = a.T.Dims
		p.message(5, (&NewAttr{"value", v}).pieces())
		return nil
	})
	out.message(1, p)
	return err
}

func (e *Edit) add(out *pieces, nodes []NewNode) {
	for _, n := range nodes {
		out.message(1, n.pieces())
	}
}

// renamed copies a node with other names for what it reads and makes.
func renamed(out *pieces, node message, rename func(name string, in bool) string) error {
	p := &pieces{}
	err := node.each(func(f field) error {
		switch name := string(f.m.b); {
		case f.num == 1 && name != "":
			p.text(1, rename(name, true))
		case f.num == 2 && name != "":
			p.text(2, rename(name, false))
		default:
			p.add(f.raw)
		}
		return nil
	})
	out.message(1, p)
	return err
}

// tensor copies an initializer, or what takes its place.
func (m *Model) tensor(e *Edit, out *pieces, f field) error {
	var t Tensor
	if err := t.read(f); err != nil {
		return err
	}
	x, ok := e.Tensors[t.Name]
	lent := m.lent[t.Name]
	switch {
	case !ok && e.lean:
		out.message(5, bare(t.Name))
		return nil
	case !ok && lent != nil:
		out.message(5, &pieces{parts: []part{{b: lent.b}}, size: int64(len(lent.b))})
		return nil
	case !ok:
		out.add(f.raw)
		return nil
	case lent != nil:
		f.m = *lent
	}
	p := &pieces{}
	err := f.m.each(func(f field) error {
		switch f.num {
		case 2:
			p.number(2, int64(x.DType))
		case 4, 5, 6, 7, 9, 10, 11, 13, 14: // the elements, wherever they are
		default:
			p.add(f.raw)
		}
		return nil
	})
	p.data(9, x)
	out.message(5, p)
	return err
}

// info copies the type of a value with another type of elements.
func (e *Edit) info(out *pieces, f field) error {
	var list []*Info
	if err := info(f, &list); err != nil {
		return err
	}
	d, ok := e.DTypes[list[0].Name]
	if !ok {
		out.add(f.raw)
		return nil
	}
	if list[0].Kind != "" {
		return fmt.Errorf("value %q: a %s has no type of elements", list[0].Name, list[0].Kind)
	}
	p, err := replaced(f.m, []int{2, 1, 1}, int64(d))
	if err == nil {
		out.message(13, p)
	}
	return err
}

// replaced copies a message with another number in the field that path leads to.
func replaced(src message, path []int, x int64) (*pieces, error) {
	p := &pieces{}
	err := src.each(func(f field) error {
		switch {
		case f.num != path[0]:
			p.add(f.raw)
		case len(path) == 1:
			p.number(f.num, x)
		default:
			inner, err := replaced(f.m, path[1:], x)
			if err != nil {
				return err
			}
			p.message(f.num, inner)
		}
		return nil
	})
	return p, err
}
