package ir

import "hash/maphash"

// nameTable maps names to values. It is a list with an index by hash, because a map of a million names
// costs several times as much to fill: entries are written one after the other, and the index holds no
// pointers.
type nameTable struct {
	seed   maphash.Seed
	blocks []*[namesOfBlock]nameEntry // the list, which is never copied
	count  int                        // of its entries
	index  []nameSlot                 // open addressing; its length is a power of two
}

const namesOfBlock = 128

type nameEntry struct {
	name string
	v    *Value // nil: removed
	next *Value // of a variable: its current next value
}

// nameSlot refers to entry at-1; 0 is an empty slot.
type nameSlot struct{ hash, at uint32 }

// newNameTable returns a table with room for count names.
func newNameTable(count int) *nameTable {
	t := &nameTable{seed: maphash.MakeSeed()}
	t.resize(count)
	return t
}

// entry is the entry of number i.
func (t *nameTable) entry(i uint32) *nameEntry { return &t.blocks[i/namesOfBlock][i%namesOfBlock] }

// reserve makes room for count more names.
func (t *nameTable) reserve(count int) {
	if count += t.count; 2*count > len(t.index) {
		t.resize(count)
	}
}

// resize makes the index large enough for count names.
func (t *nameTable) resize(count int) {
	size := 16
	for size < 2*count { // at most half of it is used
		size *= 2
	}
	old := t.index
	t.index = make([]nameSlot, size)
	for _, s := range old {
		if s.at != 0 {
			*t.free(s.hash) = s
		}
	}
}

// free is the first empty slot for a hash.
func (t *nameTable) free(hash uint32) *nameSlot {
	for i := hash; ; i++ {
		if s := &t.index[i&uint32(len(t.index)-1)]; s.at == 0 {
			return s
		}
	}
}

// find returns the entry of a name, or nil and the empty slot where it belongs.
func (t *nameTable) find(name string, hash uint32) (*nameEntry, *nameSlot) {
	for i := hash; ; i++ {
		s := &t.index[i&uint32(len(t.index)-1)]
		if s.at == 0 {
			return nil, s
		}
		if s.hash == hash {
			if e := t.entry(s.at - 1); e.name == name {
				return e, s
			}
		}
	}
}

func (t *nameTable) hash(name string) uint32 { return uint32(maphash.String(t.seed, name)) }

// get returns the value of a name, nil if it has none.
func (t *nameTable) get(name string) *Value {
	if e, _ := t.find(name, t.hash(name)); e != nil {
		return e.v
	}
	return nil
}

// set gives a name a value, or none if v is nil.
func (t *nameTable) set(name string, v *Value) {
	hash := t.hash(name)
	e, slot := t.find(name, hash)
	switch {
	case e != nil:
		if e.v != v {
			e.v, e.next = v, nil
		}
		return
	case v == nil:
		return
	}
	if t.count%namesOfBlock == 0 {
		t.blocks = append(t.blocks, new([namesOfBlock]nameEntry))
	}
	*t.entry(uint32(t.count)) = nameEntry{name: name, v: v}
	t.count++
	*slot = nameSlot{hash, uint32(t.count)}
	if 2*t.count > len(t.index) {
		t.reserve(t.count)
	}
}

// next is the current next value of a variable, nil if it has none.
func (t *nameTable) next(variable *Value) *Value {
	if e, _ := t.find(variable.Name, t.hash(variable.Name)); e != nil && e.v == variable {
		return e.next
	}
	return nil
}

// setNext gives a variable a next value, or none if v is nil, and returns the one before.
func (t *nameTable) setNext(variable, v *Value) (before *Value) {
	e, _ := t.find(variable.Name, t.hash(variable.Name))
	if e == nil || e.v != variable {
		return nil // of another graph: a guarded builder refuses it
	}
	before, e.next = e.next, v
	return before
}

// equal reports whether both tables give the same names the same values, and the same next ones.
func (t *nameTable) equal(u *nameTable) bool {
	return t.within(u) && u.within(t)
}

func (t *nameTable) within(u *nameTable) bool {
	for i := range uint32(t.count) {
		if e := t.entry(i); e.v != nil && (u.get(e.name) != e.v || u.next(e.v) != e.next) {
			return false
		}
	}
	return true
}
