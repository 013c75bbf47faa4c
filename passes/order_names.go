package passes

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// rankNames ranks the nodes by name.
func (o *orderer) rankNames(nodes int) {
	r := &nameRanks{end: make([]int, 0, nodes)}
	for _, n := range o.g.Nodes {
		if len(r.end) == sampledNames {
			r.text = slices.Grow(r.text, nodes/sampledNames*len(r.text))
		}
		r.text = n.AppendName(r.text) // a next value has the same rank as its variable's name
		r.end = append(r.end, len(r.text))
	}
	all := make([]namedNode, nodes)
	for id := range all {
		all[id].id = int32(id)
	}
	r.sort(all, 0)
	for i, x := range all {
		o.name[x.id] = int32(i)
	}
}

// sampledNames is the number of names from whose length that of all is estimated.
const sampledNames = 1024

// nameRanks are the names of all nodes, one after the other.
type nameRanks struct {
	text []byte
	end  []int // by node ID
}

// namedNode is a node and eight bytes of its name.
type namedNode struct {
	key uint64
	id  int32
}

// sort sorts nodes whose names begin with the same bytes, depth of them, eight bytes at a time: most
// names of a large graph begin alike, and numbers are compared faster than strings. Equal names, which
// only nodes without results have, are in the order of the nodes.
func (r *nameRanks) sort(list []namedNode, depth int) {
	more := false
	for i := range list {
		rest := r.rest(list[i].id, depth)
		more = more || len(rest) > 0
		list[i].key = firstBytes(rest)
	}
	slices.SortFunc(list, func(a, b namedNode) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Compare(a.id, b.id)
	})
	if !more {
		return
	}
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].key == list[from].key {
			to++
		}
		if to-from > 1 {
			r.sort(list[from:to], depth+8)
		}
		from = to
	}
}

// rest is the name of a node without its first bytes.
func (r *nameRanks) rest(id int32, depth int) []byte {
	from := 0
	if id > 0 {
		from = r.end[id-1]
	}
	name := r.text[from:r.end[id]]
	return name[min(depth, len(name)):]
}

// firstBytes is a number that orders as the first eight bytes of s, which has no zero bytes.
func firstBytes(s []byte) uint64 {
	if len(s) >= 8 {
		return binary.BigEndian.Uint64(s)
	}
	key := uint64(0)
	for i, c := range s {
		key |= uint64(c) << (56 - 8*i)
	}
	return key
}
