package kern

import (
	"slices"
	"testing"
)

// processors is the set of numbers [lo,hi).
func processors(lo, hi int) (s Processors) {
	for n := lo; n < hi; n++ {
		s.Add(n)
	}
	return s
}

// nodesOf are nodes of so many processors each.
func nodesOf(sizes ...int) (nodes []Processors) {
	at := 0
	for _, n := range sizes {
		nodes = append(nodes, processors(at, at+n))
		at += n
	}
	return nodes
}

// Workers are divided among nodes in proportion to their processors, neighbours together; where one
// node would have all of them there are none.
func TestWorkersAreDividedAmongNodes(t *testing.T) {
	for _, c := range []struct {
		workers int
		sizes   []int
		home    []int
	}{
		{4, nil, nil},
		{4, []int{4}, nil},
		{1, []int{1, 1}, nil},
		{2, []int{3, 1}, nil},
		{2, []int{1, 1}, []int{0, 1}},
		{4, []int{2, 2}, []int{0, 0, 1, 1}},
		{2, []int{32, 32}, []int{0, 1}},
		{3, []int{2, 2}, []int{0, 0, 1}},
		{4, []int{3, 1}, []int{0, 0, 0, 1}},
		{8, []int{2, 2}, []int{0, 0, 0, 0, 1, 1, 1, 1}},
		{4, []int{0, 2, 0, 2}, []int{0, 0, 1, 1}},
		{2, []int{1, 1, 1, 1}, []int{0, 1}},
	} {
		l := divideAmong(c.workers, nodesOf(c.sizes...))
		if l == nil {
			l = &layout{}
		}
		if !slices.Equal(l.home, c.home) {
			t.Errorf("%d workers on nodes of %v: they are on %v, want %v", c.workers, c.sizes, l.home, c.home)
		}
		for i, n := range l.nodes {
			if n.Len() == 0 {
				t.Errorf("%d workers on nodes of %v: node %d has no processor", c.workers, c.sizes, i)
			}
		}
	}
}

// A pool alone has all workers in order. Pools at the same time have the workers on the nodes of their
// callers, and in order again when one is alone.
func TestCrewsAreOnTheNodeOfTheirCaller(t *testing.T) {
	team := newTeam(8, 0, Host{Nodes: []Processors{processors(1000, 1004), processors(1004, 1008)}})
	team.started = 8 // no thread may run there, so the system would refuse to confine any
	first := newPoolOf(team)
	second := first.fork()
	for range 3 {
		first.Enter()
		if got, want := *first.crew.Load(), []int{1, 2, 3, 4, 5, 6, 7}; first.share() != 8 || !slices.Equal(got, want) {
			t.Errorf("a pool alone has the workers %v, want %v", got, want)
		}
		second.Enter()
		first.share() // notices the second one
		second.Leave()
		second.Enter()
		if got, want := *first.crew.Load(), []int{1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("the pool of node 0 has the workers %v, want %v", got, want)
		}
		if got, want := *second.crew.Load(), []int{4, 5, 6}; !slices.Equal(got, want) {
			t.Errorf("the pool of node 1 has the workers %v, want %v", got, want)
		}
		first.Leave()
		second.Leave()
		second.Enter()
		if got, want := *second.crew.Load(), []int{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(got, want) {
			t.Errorf("the pool of node 1, alone, has the workers %v, want %v", got, want)
		}
		first.Enter()
		if second.share(); !slices.Equal(*second.crew.Load(), []int{4, 5, 6}) {
			t.Errorf("the pool of node 1 keeps the workers %v, want 4, 5 and 6", *second.crew.Load())
		}
		second.Leave()
		first.Leave()
	}
}

// A page of an arena belongs to the node whose workers have the part of the array that lies there; the
// array that is used most decides. Without arrays pages take turns.
func TestPagesBelongToTheNodeThatUsesThem(t *testing.T) {
	const page = HugePage
	for name, c := range map[string]struct {
		n, first int64
		uses     []ArenaUse
		want     []int
	}{
		"in turn":                {4 * page, 0, nil, []int{0, 1, 0, 1, 0}},
		"in turn, not aligned":   {4*page - 5, page - 64, nil, []int{0, 1, 0, 1, 0}},
		"halves of one array":    {4*page - 64, page - 64, []ArenaUse{{0, 4*page - 64, 1}}, []int{0, 0, 1, 1}},
		"two arrays":             {4*page - 64, page - 64, []ArenaUse{{0, 2*page - 64, 1}, {2*page - 64, 2 * page, 1}}, []int{0, 1, 0, 1}},
		"the one used most":      {4*page - 64, page - 64, []ArenaUse{{0, 2*page - 64, 3}, {0, 4*page - 64, 2}}, []int{0, 1, 1, 1}},
		"small arrays":           {page, page, []ArenaUse{{0, 64, 1}, {64, 64, 9}, {page / 2, 64, 1}}, []int{0}},
		"small arrays, in turn":  {3 * page, page, []ArenaUse{{0, 64, 1}, {page, 64, 9}, {2 * page, 64, 1}}, []int{0, 1, 0}},
		"part of it used":        {3 * page, 0, []ArenaUse{{2 * page, page, 1}}, []int{0, 1, 0, 1}},
		"an array without bytes": {2 * page, 0, []ArenaUse{{page, 0, 1}, {0, 2 * page, 1}}, []int{0, 0, 1}},
	} {
		got := divideAmong(4, nodesOf(2, 2)).owners(c.n, c.first, c.uses)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		covered := int64(0)
		for i := range got {
			at, end := hugePage(c.n, c.first, i)
			if at != covered || end < at {
				t.Errorf("%s: page %d is [%d,%d) and begins after byte %d", name, i, at, end, covered)
			}
			covered = end
		}
		if covered != c.n {
			t.Errorf("%s: the pages have %d bytes of %d", name, covered, c.n)
		}
	}
}
