package onnx

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxDepth bounds how deep graphs may nest in attributes of nodes.
const maxDepth = 32

// Model is an ONNX model. Its tensors are slices of the bytes it was read from.
type Model struct {
	IR        int64            // version of the format
	Producer  string           // what wrote it
	Opsets    map[string]int64 // version of each operator set by domain, "" the standard one
	Graph     *Graph
	Functions []*Function
	Meta      []Entry

	src    message
	lent   map[string]*message // tensors of another model, whose place here is empty
	path   string              // "" where it was not read from a file
	unmap  func() error
	mu     *sync.Mutex        // of others
	others map[string]mapping // files beside it
	closed bool
}

// Entry is a pair of strings.
type Entry struct{ Key, Value string }

// Graph is the main graph of a model, or one in an attribute of a node.
type Graph struct {
	Name         string
	Nodes        []*Node
	Initializers []*Tensor
	Sparse       int // number of sparse initializers
	Inputs       []*Info
	Outputs      []*Info
	Infos        []*Info

	src message
}

// Node applies an operator. An absent operand or result has the name "".
type Node struct {
	Name, Op, Domain, Overload string
	In, Out                    []string
	Attrs                      []*Attribute

	src message
}

// Function is an operator of the model's own, made of nodes.
type Function struct {
	Name, Domain, Overload string
	In, Out                []string
	Attrs                  []string     // without a default
	Defaults               []*Attribute // with one
	Nodes                  []*Node
	Opsets                 map[string]int64
}

// AttrType is what an attribute holds.
type AttrType int64

// The types of attributes that are read. Others keep their bytes only.
const (
	AttrFloat   AttrType = 1
	AttrInt     AttrType = 2
	AttrString  AttrType = 3
	AttrTensor  AttrType = 4
	AttrGraph   AttrType = 5
	AttrFloats  AttrType = 6
	AttrInts    AttrType = 7
	AttrStrings AttrType = 8
)

var attrTypes = [...]string{"UNDEFINED", "FLOAT", "INT", "STRING", "TENSOR", "GRAPH", "FLOATS", "INTS", "STRINGS", "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"}

// String is the name of the type in ONNX, or its number.
func (t AttrType) String() string {
	if t < 0 || int(t) >= len(attrTypes) {
		return strconv.FormatInt(int64(t), 10)
	}
	return attrTypes[t]
}

// Attribute is a named constant of a node.
type Attribute struct {
	Name   string
	Type   AttrType
	F      float32
	I      int64
	S      string
	T      *Tensor
	G      *Graph
	Floats []float32
	Ints   []int64
	Texts  []string
	Ref    string // the attribute of the function around it that it stands for
}

// Info is the name and type of a value.
type Info struct {
	Name  string
	DType DataType
	Dims  []Dim
	Rank  bool   // whether Dims is known
	Kind  string // "" for a tensor, else "sequence", "map", "optional" or "sparse tensor"
}

// Dim is a size, a name for one, or neither.
type Dim struct {
	Size  int64
	Name  string
	Known bool // Size is set
}

// Parse reads a model. Tensors of the model are slices of b, and where the
// model is read from a file, at offsets in it.
func Parse(b []byte) (*Model, error) {
	m := &Model{Opsets: map[string]int64{}, src: message{b: b}, mu: &sync.Mutex{}, others: map[string]mapping{}}
	if err := m.src.each(m.field); err != nil {
		return nil, err
	}
	if m.Graph == nil {
		return nil, fmt.Errorf("the file has no graph: it is not an ONNX model")
	}
	if len(m.Opsets) == 0 {
		m.Opsets[""] = 1 // files older than operator sets
	}
	return m, m.versions()
}

// The newest versions that are read. Older ones are all read: a row says from which on it knows its
// operator.
const (
	newestOpset = mostOpset
	newestIR    = 12
)

// versions refuses a model that is newer than what is known of ONNX.
func (m *Model) versions() error {
	if m.IR > newestIR {
		return fmt.Errorf("the file is of IR version %d: the newest that is read is %d: write it with an older version of ONNX", m.IR, newestIR)
	}
	newest := func(opsets map[string]int64) error {
		if v := opsets[""]; v > newestOpset {
			return fmt.Errorf("operators of opset %d: the newest that is read is %d: convert the model to that with onnx.version_converter", v, newestOpset)
		}
		return nil
	}
	if err := newest(m.Opsets); err != nil {
		return err
	}
	for _, f := range m.Functions {
		if err := newest(f.Opsets); err != nil {
			return fmt.Errorf("function %q: %w", f.Name, err)
		}
	}
	return nil
}

func (m *Model) field(f field) error {
	switch f.num {
	case 1:
		return f.number(&m.IR)
	case 2:
		return f.text(&m.Producer)
	case 7:
		if m.Graph != nil {
			return fmt.Errorf("byte %d: the file has a second graph here, want one", f.m.at)
		}
		m.Graph = &Graph{}
		return m.Graph.read(f, 0)
	case 8:
		return opset(f, m.Opsets)
	case 14:
		e, err := entry(f)
		m.Meta = append(m.Meta, e)
		return err
	case 25:
		x := &Function{Opsets: map[string]int64{}}
		m.Functions = append(m.Functions, x)
		return within("function", &x.Name, f, x.field)
	}
	return nil
}

// within reads a message, and says in an error which one it was.
func within(what string, name *string, f field, read func(f field) error) error {
	err := f.want(lengths)
	if err == nil {
		err = f.m.each(read)
	}
	if err != nil && *name != "" {
		return fmt.Errorf("%s %q: %w", what, *name, err)
	}
	return err
}

func opset(f field, to map[string]int64) error {
	if err := f.want(lengths); err != nil {
		return err
	}
	var domain string
	var version int64
	err := f.m.each(func(f field) error {
		switch f.num {
		case 1:
			return f.text(&domain)
		case 2:
			return f.number(&version)
		}
		return nil
	})
	domain = standard(domain)
	if old, twice := to[domain]; twice && old != version {
		return fmt.Errorf("the model imports operator set %q in versions %d and %d: keep one of them", domain, old, version)
	}
	to[domain] = version
	return err
}

// standard is the domain's name with ai.onnx, which means the standard one, left out.
func standard(domain string) string {
	if domain == "ai.onnx" {
		return ""
	}
	return domain
}

func entry(f field) (e Entry, err error) {
	if err := f.want(lengths); err != nil {
		return e, err
	}
	err = f.m.each(func(f field) error {
		switch f.num {
		case 1:
			return f.text(&e.Key)
		case 2:
			return f.text(&e.Value)
		}
		return nil
	})
	return e, err
}

func (g *Graph) read(f field, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("byte %d: graphs are nested more than %d deep, which is the limit", f.m.at, maxDepth)
	}
	g.src = f.m
	return within("graph", &g.Name, f, func(f field) error { return g.field(f, depth) })
}

func (g *Graph) field(f field, depth int) error {
	switch f.num {
	case 1:
		n := &Node{}
		g.Nodes = append(g.Nodes, n)
		return n.read(f, depth)
	case 2:
		return f.text(&g.Name)
	case 5:
		t := &Tensor{}
		g.Initializers = append(g.Initializers, t)
		return t.read(f)
	case 11:
		return info(f, &g.Inputs)
	case 12:
		return info(f, &g.Outputs)
	case 13:
		return info(f, &g.Infos)
	case 15:
		g.Sparse++
	}
	return nil
}

func (n *Node) read(f field, depth int) error {
	n.src = f.m
	return within("node", &n.Name, f, func(f field) error {
		switch f.num {
		case 1:
			n.In = append(n.In, string(f.m.b))
		case 2:
			n.Out = append(n.Out, string(f.m.b))
		case 3:
			return f.text(&n.Name)
		case 4:
			return f.text(&n.Op)
		case 5:
			a := &Attribute{}
			n.Attrs = append(n.Attrs, a)
			return a.read(f, depth)
		case 7:
			err := f.text(&n.Domain)
			n.Domain = standard(n.Domain)
			return err
		case 8:
			return f.text(&n.Overload)
		}
		return nil
	})
}

// Result is the first result that has a name, "" where none has.
func (n *Node) Result() string {
	for _, y := range n.Out {
		if y != "" {
			return y
		}
	}
	return ""
}

func (x *Function) field(f field) error {
	switch f.num {
	case 1:
		return f.text(&x.Name)
	case 4:
		x.In = append(x.In, string(f.m.b))
	case 5:
		x.Out = append(x.Out, string(f.m.b))
	case 6:
		x.Attrs = append(x.Attrs, string(f.m.b))
	case 7:
		n := &Node{}
		x.Nodes = append(x.Nodes, n)
		return n.read(f, 0)
	case 9:
		return opset(f, x.Opsets)
	case 10:
		err := f.text(&x.Domain)
		x.Domain = standard(x.Domain)
		return err
	case 11:
		a := &Attribute{}
		x.Defaults = append(x.Defaults, a)
		return a.read(f, 0)
	case 13:
		return f.text(&x.Overload)
	}
	return nil
}

func (a *Attribute) read(f field, depth int) error {
	if err := within("attribute", &a.Name, f, func(f field) error { return a.field(f, depth) }); err != nil {
		return err
	}
	if a.Type == 0 && a.Ref == "" {
		a.Type = a.guess()
	}
	return nil
}

func (a *Attribute) field(f field, depth int) error {
	switch f.num {
	case 1:
		return f.text(&a.Name)
	case 2:
		var x []float32
		err := f.floats(&x)
		if len(x) > 0 {
			a.F = x[0]
		}
		return err
	case 3:
		return f.number(&a.I)
	case 4:
		return f.text(&a.S)
	case 5:
		if a.T != nil {
			return fmt.Errorf("byte %d: the attribute has a second tensor here, want one", f.m.at)
		}
		a.T = &Tensor{}
		return a.T.read(f)
	case 6:
		if a.G != nil {
			return fmt.Errorf("byte %d: the file has a second graph here, want one", f.m.at)
		}
		a.G = &Graph{}
		return a.G.read(f, depth+1)
	case 7:
		return f.floats(&a.Floats)
	case 8:
		return f.numbers(&a.Ints)
	case 9:
		a.Texts = append(a.Texts, string(f.m.b))
	case 20:
		return f.number((*int64)(&a.Type))
	case 21:
		return f.text(&a.Ref)
	}
	return nil
}

// guess is the type of an attribute of a file older than their types.
func (a *Attribute) guess() AttrType {
	switch {
	case a.T != nil:
		return AttrTensor
	case a.G != nil:
		return AttrGraph
	case len(a.Ints) > 0:
		return AttrInts
	case len(a.Floats) > 0:
		return AttrFloats
	case len(a.Texts) > 0:
		return AttrStrings
	case a.S != "":
		return AttrString
	case a.F != 0:
		return AttrFloat
	}
	return AttrInt
}

func info(f field, to *[]*Info) error {
	x := &Info{}
	*to = append(*to, x)
	return within("value", &x.Name, f, func(f field) error {
		switch f.num {
		case 1:
			return f.text(&x.Name)
		case 2:
			return f.m.each(x.kind)
		}
		return nil
	})
}

func (x *Info) kind(f field) error {
	switch f.num {
	case 1:
		return f.m.each(x.tensor)
	case 4:
		x.Kind = "sequence"
	case 5:
		x.Kind = "map"
	case 8:
		x.Kind = "sparse tensor"
	case 9:
		x.Kind = "optional"
	}
	return nil
}

func (x *Info) tensor(f field) error {
	switch f.num {
	case 1:
		return f.number((*int64)(&x.DType))
	case 2:
		x.Rank = true
		return f.m.each(func(f field) error {
			if f.num != 1 {
				return nil
			}
			d := Dim{}
			err := f.m.each(func(f field) error {
				switch f.num {
				case 1:
					d.Known = true
					return f.number(&d.Size)
				case 2:
					return f.text(&d.Name)
				}
				return nil
			})
			x.Dims = append(x.Dims, d)
			return err
		})
	}
	return nil
}

// Inputs lists what a caller feeds: the graph's inputs without those that an
// initializer gives.
func (m *Model) Inputs() []*Info {
	given := map[string]bool{}
	for _, t := range m.Graph.Initializers {
		given[t.Name] = true
	}
	var out []*Info
	for _, x := range m.Graph.Inputs {
		if !given[x.Name] {
			out = append(out, x)
		}
	}
	return out
}

// IndexBound is how many rows the smallest table has that an input looks up, 256 at
// most: indices below it are valid.
func (m *Model) IndexBound(input string) int64 {
	rows := map[string]int64{}
	for _, t := range m.Graph.Initializers {
		if len(t.Dims) > 0 {
			rows[t.Name] = t.Dims[0]
		}
	}
	bound := int64(256)
	for _, n := range m.Graph.Nodes {
		if n.Op == "Gather" && len(n.In) == 2 && n.In[1] == input && rows[n.In[0]] > 0 {
			bound = min(bound, rows[n.In[0]])
		}
	}
	return bound
}

// names lists some names for a message, "none" where there are none.
func names(of map[string]bool) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if name != "" {
			list = append(list, strconv.Quote(name))
		}
	}
	if len(list) > 8 {
		list = append(list[:8], fmt.Sprintf("%d more", len(list)-8))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}
