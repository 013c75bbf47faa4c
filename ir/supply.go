package ir

// supply is memory for things of one type, allocated for several at once. That of a large graph is
// allocated ahead by another goroutine, which takes its page faults.
type supply[T any] struct {
	free []T
	next chan []T // of a large graph: what is allocated ahead
}

// supplied is how many things of a large graph are allocated at once.
const supplied = 512

// take returns count things of g, all zero.
func (s *supply[T]) take(count int, g *Graph) []T {
	switch {
	case len(s.free) >= count:
	case g.Small() || count > supplied:
		s.free = make([]T, max(count, min(g.NumNodes(), 64)))
	case s.next == nil:
		s.free, s.next = make([]T, supplied), make(chan []T, 1)
		go s.allocate()
	default:
		s.free = <-s.next
		go s.allocate()
	}
	list := s.free[:count:count]
	s.free = s.free[count:]
	return list
}

// allocate sends zeros to next, which has room for them.
func (s *supply[T]) allocate() {
	list := make([]T, supplied)
	clear(list) // writes to their pages
	s.next <- list
}
