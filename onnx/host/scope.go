package host

import (
	"fmt"
	"maps"
	"slices"

	"ampc/onnx"
)

// scope is a list of nodes that run together: those of the main graph, of a graph
// in an attribute, or of a function for one call.
type scope struct {
	path    string // in the model, for names and messages
	outer   *scope // whose values it reads; nil for the main graph and functions
	nodes   []*onnx.Node
	reads   [][]string       // by node, what graphs in attributes read included
	order   []int            // operands come first; only what the outputs need
	from    [][]int          // by node, the nodes that give what it reads
	readers map[string][]int // by value, the nodes that read it, in order; those of an output end in len(nodes)
	free    []bool           // by node: it reads initializers alone
	fixed   map[string]bool  // the initializers that nothing replaces
	texts   []string         // by node, what regions of equal form have in common; made when first needed
	opsets  map[string]int64
	inits   map[string]*onnx.Tensor // initializers and constants, by name
	inputs  []string
	outputs []*onnx.Info

	subs  map[*onnx.Node]map[string]*scope // made when first needed
	plans []*plan                          // the first has regions as large as can be
}

// newScope prepares a graph.
func newScope(path string, outer *scope, opsets map[string]int64, g *onnx.Graph) (*scope, error) {
	s := &scope{path: path, outer: outer, opsets: opsets, nodes: g.Nodes, outputs: g.Outputs, inits: map[string]*onnx.Tensor{}}
	for _, t := range g.Initializers {
		if s.inits[t.Name] != nil {
			return nil, fmt.Errorf("the graph has two initializers %q: rename one", t.Name)
		}
		s.inits[t.Name] = t
	}
	for _, x := range g.Inputs {
		s.inputs = append(s.inputs, x.Name)
	}
	return s, s.prepare()
}

// newFunction prepares the nodes of a function for one call.
func newFunction(path string, opsets map[string]int64, f *onnx.Function, nodes []*onnx.Node) (*scope, error) {
	s := &scope{path: path, opsets: opsets, nodes: nodes, inputs: f.In, inits: map[string]*onnx.Tensor{}}
	for _, name := range f.Out {
		s.outputs = append(s.outputs, &onnx.Info{Name: name})
	}
	return s, s.prepare()
}

// prepare orders the nodes that the outputs need. Constants are not among them:
// they are initializers.
func (s *scope) prepare() error {
	s.subs, s.plans = map[*onnx.Node]map[string]*scope{}, []*plan{{scope: s, stages: map[string]*stage{}}}
	order, err := onnx.Sorted(s.nodes)
	if err != nil {
		return err
	}
	s.reads = make([][]string, len(s.nodes))
	wanted := map[string]bool{}
	for _, y := range s.outputs {
		wanted[y.Name] = true
	}
	for _, i := range slices.Backward(order) {
		n := s.nodes[i]
		if t := constantOf(n); t != nil {
			s.inits[n.Out[0]] = t
			continue
		}
		if !slices.ContainsFunc(n.Out, func(y string) bool { return wanted[y] }) {
			continue
		}
		s.reads[i] = n.Reads()
		for _, name := range s.reads[i] {
			wanted[name] = true
		}
		s.order = append(s.order, i)
	}
	slices.Reverse(s.order)
	s.findFixed()
	s.findFree()
	s.link()
	return nil
}

// link finds the nodes that give what each node reads, and those that read each value.
func (s *scope) link() {
	s.from, s.readers = make([][]int, len(s.nodes)), make(map[string][]int, 2*len(s.order))
	gives := make(map[string]int, len(s.order))
	for _, i := range s.order {
		for _, x := range s.reads[i] {
			s.readers[x] = append(s.readers[x], i)
			if k, ok := gives[x]; ok {
				s.from[i] = append(s.from[i], k)
			}
		}
		for _, y := range s.nodes[i].Out {
			gives[y] = i
		}
	}
	for _, y := range s.outputs {
		s.readers[y.Name] = append(s.readers[y.Name], len(s.nodes))
	}
}

// live reports whether a value is an output, or read by a node that is not done.
func (s *scope) live(name string, done []bool) bool {
	for _, i := range slices.Backward(s.readers[name]) {
		if i == len(s.nodes) || !done[i] {
			return true
		}
	}
	return false
}

// readsOf reports whether node i reads what one of the marked nodes gives.
func (s *scope) readsOf(i int, marked []bool) bool {
	return slices.ContainsFunc(s.from[i], func(k int) bool { return marked[k] })
}

// findFixed finds the initializers that no caller and no node gives another value.
func (s *scope) findFixed() {
	s.fixed = make(map[string]bool, len(s.inits))
	for name := range s.inits {
		s.fixed[name] = true
	}
	for _, x := range s.inputs {
		delete(s.fixed, x)
	}
	for _, i := range s.order {
		for _, y := range s.nodes[i].Out {
			delete(s.fixed, y)
		}
	}
}

// findFree finds the nodes that read nothing but initializers, directly or not.
func (s *scope) findFree() {
	s.free = make([]bool, len(s.nodes))
	known := maps.Clone(s.fixed)
	for _, i := range s.order {
		if slices.ContainsFunc(s.reads[i], func(x string) bool { return !known[x] }) {
			continue
		}
		s.free[i] = true
		for _, y := range s.nodes[i].Out {
			known[y] = true
		}
	}
}

// constantOf is the tensor of a Constant, nil where the node is none or holds no tensor.
func constantOf(n *onnx.Node) *onnx.Tensor {
	if n.Op != "Constant" || n.Domain != "" || len(n.Out) != 1 {
		return nil
	}
	a := n.Attr("value")
	if a == nil || a.T == nil {
		return nil
	}
	if _, err := a.T.Type(); err != nil {
		return nil
	}
	return a.T
}

// sub is the scope of a graph in an attribute of a node.
func (s *scope) sub(n *onnx.Node, attr string) (*scope, error) {
	if x := s.subs[n][attr]; x != nil {
		return x, nil
	}
	a := n.Attr(attr)
	if a == nil || a.G == nil {
		return nil, fmt.Errorf("attribute %s is missing", attr)
	}
	x, err := newScope(s.within(n)+"."+attr, s, s.opsets, a.G)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attr, err)
	}
	s.keep(n, attr, x)
	return x, nil
}

func (s *scope) keep(n *onnx.Node, attr string, x *scope) {
	if s.subs[n] == nil {
		s.subs[n] = map[string]*scope{}
	}
	s.subs[n][attr] = x
}

// within is the path of a node.
func (s *scope) within(n *onnx.Node) string {
	name := n.Name
	if name == "" {
		name = fmt.Sprint(slices.Index(s.nodes, n))
	}
	if s.path == "" {
		return name
	}
	return s.path + "/" + name
}

// stage is a point of a plan: some nodes are done.
type stage struct {
	scope    *scope
	plan     *plan
	done     []bool
	rest     []int // nodes that are not, in order
	entries  entries
	never    map[int]string       // nodes that no region takes, with the reasons; made when first needed
	chosen   []int                // the nodes of its region, where all of them can be imported
	want     []string             // their results that are read elsewhere
	skeleton *skeleton            // of that region
	alike    *entry               // the first that was made like one of another stage, where nothing more is left out
	followed bool                 // next is set
	next     *stage               // after that region alone; nil: the end
	last     map[string]onnx.Seen // of the entry made last, where it began its scope
}

// stage finds or makes the stage after some nodes; nil where all are done.
func (p *plan) stage(done []bool) *stage {
	key := make([]byte, len(done))
	for i, d := range done {
		if d {
			key[i] = 1
		}
	}
	if st, ok := p.stages[string(key)]; ok {
		return st
	}
	s := p.scope
	st := &stage{scope: s, plan: p, done: done}
	for _, i := range s.order {
		if !done[i] {
			st.rest = append(st.rest, i)
		}
	}
	if len(st.rest) == 0 {
		st = nil
	}
	p.stages[string(key)] = st
	return st
}

// first is the stage at which nothing is done.
func (p *plan) first() *stage { return p.stage(make([]bool, len(p.scope.nodes))) }
