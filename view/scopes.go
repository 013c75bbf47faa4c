package view

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// Scope is a part of a section that a reader folds and unfolds: a section, the values of
// one name scope, a cluster, a launch, or a stretch of a long list. Its picture is laid
// out with what is inside it folded; the page makes room where it is unfolded.
type Scope struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // section, scope, cluster, launch or part
	Boxes int    `json:"boxes"`
	// Items are what is directly inside: box i as i, scope i as -1-i.
	Items []int `json:"items"`
	// Rows are places in Items from top to bottom and left to right. A number beyond them
	// is a bend of an edge.
	Rows [][]int `json:"rows"`
	X    []int   `json:"x"` // centre of every item and bend, in pixels
	// Edges are pairs of places in Items, the reader second, with the bends between.
	Edges [][]int `json:"edges"`
}

// tree is a section's boxes in scopes, before layout.
type tree struct {
	name, kind string
	box        int // of a leaf: tree without children
	children   []*tree
	index      map[string]*tree
	first      int // the lowest place in time of a box inside
	sum, count int // of the places of all boxes inside
}

// maxItems is how many items a scope may have before it is divided into parts.
const maxItems = 160

// nameParts are the parts of a value's name. A gradient has those of its value, an
// optimizer's moment those of its parameter, a cast those of what it casts.
func nameParts(v *ir.Value) []string {
	name := v.Name
	if before, after, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(before, "amp.") {
		name = after
	}
	parts := strings.FieldsFunc(strings.TrimPrefix(name, "d."), func(r rune) bool { return r == '.' || r == '/' })
	if d := len(parts) - 1; d > 0 {
		if _, cast := ir.DTypeOf(parts[d]); cast {
			parts = parts[:d]
		}
	}
	return parts
}

// placement is where a box goes: its name scope, its launch and its cluster.
type placement struct {
	path            []string
	launch, cluster int32
}

// settle turns the parts of names into name scopes: all but the last, or all of them
// where they name a scope that others are in.
func settle(places []placement) {
	scopes := map[string]bool{}
	join := func(path []string) string { return strings.Join(path, "/") }
	for _, p := range places {
		scopes[join(p.path[:max(len(p.path)-1, 0)])] = true
	}
	for i, p := range places {
		if !scopes[join(p.path)] {
			places[i].path = p.path[:max(len(p.path)-1, 0)]
		}
	}
}

// grow makes the tree of one section. boxes are its boxes in an order of time.
func grow(name string, boxes []int, places []placement) *tree {
	homes := map[string][]string{} // of groups: the common name scope of the members
	for _, b := range boxes {
		for _, key := range groupsOf(places[b]) {
			path, seen := homes[key]
			if !seen {
				homes[key] = places[b].path
			} else {
				homes[key] = common(path, places[b].path)
			}
		}
	}
	root := newTree(name, "section")
	for at, b := range boxes {
		t := root
		t.count, t.sum = t.count+1, t.sum+at
		groups := groupsOf(places[b])
		path := places[b].path
		if len(groups) > 0 {
			path = homes[groups[0]]
		}
		for _, p := range path {
			t = t.child("scope", p, at)
		}
		for _, g := range groups {
			kind, _, _ := strings.Cut(g, " ")
			t = t.child(kind, g, at)
		}
		t.children = append(t.children, &tree{box: b, first: at, sum: at, count: 1})
	}
	root.collapse()
	root.divide()
	return root
}

func newTree(name, kind string) *tree {
	return &tree{name: name, kind: kind, index: map[string]*tree{}}
}

// groupsOf names the frames around a box, the outer one first.
func groupsOf(p placement) (list []string) {
	if p.launch != 0 {
		list = append(list, fmt.Sprintf("launch %d", p.launch))
	}
	if p.cluster != 0 {
		list = append(list, fmt.Sprintf("cluster %d", p.cluster))
	}
	return list
}

func common(a, b []string) []string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// child is the scope name of t, counting one more box at a place in time.
func (t *tree) child(kind, name string, at int) *tree {
	key := kind + "/" + name
	c := t.index[key]
	if c == nil {
		c = newTree(name, kind)
		c.first = at
		t.index[key] = c
		t.children = append(t.children, c)
	}
	c.count, c.sum = c.count+1, c.sum+at
	return c
}

// collapse joins a name scope that holds one thing with that thing.
func (t *tree) collapse() {
	for i, c := range t.children {
		c.collapse()
		if len(c.children) != 1 || c.kind == "section" {
			continue
		}
		only := c.children[0]
		if only.kind == "scope" {
			only.name = c.name + "." + only.name
		}
		t.children[i] = only
	}
}

// divide splits long lists of items into parts, in their order of time.
func (t *tree) divide() {
	for len(t.children) > maxItems {
		size := max(len(t.children)/maxItems+1, 40)
		var parts []*tree
		for chunk := range slices.Chunk(t.children, size) {
			p := newTree("", "part")
			p.children, p.first = chunk, chunk[0].first
			for _, c := range chunk {
				p.count, p.sum = p.count+c.count, p.sum+c.sum
			}
			p.name = fmt.Sprintf("part %d", len(parts)+1)
			parts = append(parts, p)
		}
		t.children = parts
	}
	for _, c := range t.children {
		c.divide()
	}
}

// mean is the place in time that orders items: an edge against it counts as reversed.
func (t *tree) mean() float64 { return float64(t.sum) / float64(t.count) }
