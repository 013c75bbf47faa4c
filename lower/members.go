package lower

import "slices"

// longList is the length of the longest list that is searched. Lists of operands, nodes and ports are
// short, except those of a step that reads or updates all parameters of a model.
const longList = 16

// members are the elements of a list.
type members[T comparable] struct {
	list  []T
	index map[T]bool // of a long list
}

func membersOf[T comparable](list []T) members[T] {
	m := members[T]{list: list}
	m.grown()
	return m
}

// grown indexes the list where it has become long.
func (m *members[T]) grown() {
	if m.index != nil || len(m.list) <= longList {
		return
	}
	m.index = make(map[T]bool, len(m.list))
	for _, x := range m.list {
		m.index[x] = true
	}
}

func (m *members[T]) has(x T) bool {
	if m.index != nil {
		return m.index[x]
	}
	return slices.Contains(m.list, x)
}

// add appends x to the list, unless it is there.
func (m *members[T]) add(x T) {
	if m.has(x) {
		return
	}
	m.list = append(m.list, x)
	if m.index != nil {
		m.index[x] = true
	}
	m.grown()
}

// grouped are the elements of a list by a key that each has.
type grouped[K comparable, T any] struct {
	list []T
	of   map[K][]T // of a long list
}

func groupedBy[K comparable, T any](list []T, key func(x T) K) grouped[K, T] {
	g := grouped[K, T]{list: list}
	if len(list) > longList {
		g.of = make(map[K][]T, len(list))
		for _, x := range list {
			k := key(x)
			g.of[k] = append(g.of[k], x)
		}
	}
	return g
}

// with returns the elements with a key in their order; of a short list also the others.
func (g *grouped[K, T]) with(k K) []T {
	if g.of != nil {
		return g.of[k]
	}
	return g.list
}
