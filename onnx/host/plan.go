package host

import (
	"slices"

	"ampc/onnx"
)

// Step is something that a run has done: a region, or a node on the host.
type Step struct {
	Path  string // of the graph that its nodes are in; "" for the main one
	Nodes []int  // of a region
	Node  *onnx.Node
	Index int
	Why   string // the node is on the host
	Times int
}

// note records that an entry runs.
func (r *run) note(e *entry) {
	if len(e.region) > 0 {
		r.count(Step{Path: e.at.scope.path, Nodes: e.region})
	}
	for _, i := range e.nodes {
		r.count(Step{Path: e.at.scope.path, Node: e.at.scope.nodes[i], Index: i, Why: e.why[i]})
	}
}

func (r *run) count(s Step) {
	for i := range r.steps {
		x := &r.steps[i]
		if x.Path == s.Path && x.Node == s.Node && (s.Node != nil || len(x.Nodes) == len(s.Nodes) && x.Nodes[0] == s.Nodes[0]) {
			x.Times++
			return
		}
	}
	s.Times = 1
	r.steps = append(r.steps, s)
}

// single is a node of a scope that computes elements of f64 in f32.
type single struct {
	scope *scope
	node  int
}

// noteSingle keeps what a new entry says of f64.
func (s *Session) noteSingle(e *entry) {
	for _, k := range e.single {
		if x := (single{e.at.scope, e.region[k]}); !slices.Contains(s.single, x) {
			s.single = append(s.single, x)
		}
	}
}

// Notes say what the runs so far computed otherwise than the model states: elements of
// f64 in f32.
func (s *Session) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.single) == 0 {
		return nil
	}
	x := s.single[0]
	for _, y := range s.single {
		if y.scope == x.scope && y.node < x.node {
			x = y
		}
	}
	note := onnx.DoubleNote(len(s.single), x.node, opName(x.scope.nodes[x.node]))
	if x.scope.path != "" {
		note += " of " + x.scope.path
	}
	return []string{note}
}

// Steps lists what the last run has done, in order of first appearance.
func (s *Session) Steps() []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}
