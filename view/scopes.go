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
	// Items are the direct members: box i is i, scope i is -1-i.
	Items []int `json:"items"`
	// Rows are indices in Items, from top to bottom and from left to right. A larger number is a
	// bend of an edge.
	Rows [][]int `json:"rows"`
	X    []int   `json:"x"` // center of every item and bend, in pixels
	// Edges are pairs of indices in Items, the reader second, with the bends in between.
	Edges [][]int `json:"edges"`
}

// tree holds a section's boxes in nested scopes, before layout.
type tree struct {
	name, kind string
	box        int // for a leaf, which has no children
	children   []*tree
	index      map[string]*tree
	first      int // the smallest position in time of a box inside
	sum, count int // sum and number of the positions of all boxes inside
}

// maxItems is the number of items above which a scope is divided into parts: the time of a layout
// grows faster than its items. Sets of items are bits of a word.
const maxItems = 60

// nameParts splits a value's name. A gradient has the parts of its value, an optimizer's moment
// those of its parameter, and a cast those of its operand.
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

// placement says where a box belongs: its name scope, its launch and its cluster.
type placement struct {
	path            []string
	launch, cluster int32
}

// settle turns the parts of names into name scopes: all parts but the last, or all of them if other
// values are in a scope of that name.
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

// grow builds the tree of one section. boxes are its boxes in order of time.
func grow(name string, boxes []int, places []placement) *tree {
	homes := map[string][]string{} // by group: the common name scope of the members
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

// groupsOf names the groups around a box, the outermost first.
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

// child returns the scope of that name in t, and counts one more box at a position in time.
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

// collapse merges a name scope that has a single member with that member.
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

// divide splits long lists of items into parts, in order of time.
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

// mean is the position in time by which items are ordered; an edge against this order counts as
// reversed.
func (t *tree) mean() float64 { return float64(t.sum) / float64(t.count) }
