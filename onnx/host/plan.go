package host

import "ampc/onnx"

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

// Steps lists what the last run has done, in order of first appearance.
func (s *Session) Steps() []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}
