package host

import "ampc/onnx"

// Outputs lists what Run can return.
func (s *Session) Outputs() []*onnx.Info { return s.model.Graph.Outputs }

// Compiled is how many regions have been compiled. Those of equal form count once.
func (s *Session) Compiled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compiled
}

// Code is the text of every program that is kept, in the order of last use.
func (s *Session) Code() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, p := range s.cache.programs {
		list = append(list, p.code.String())
	}
	return list
}
