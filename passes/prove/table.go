package prove

import (
	"bytes"
	"encoding/binary"
)

// table gives equal keys the same number (hash consing over lists of words). It stores keys as
// varints, because most words are small.
type table struct {
	text  []byte
	keys  []key
	slots []int32 // number + 1; 0: free. Open addressing, the size is a power of two
}

type key struct {
	at   int32 // in text, up to the next key's
	hash uint32
}

func newTable(size int) *table {
	slots := 64
	for slots < 2*size {
		slots *= 2
	}
	return &table{slots: make([]int32, slots), text: make([]byte, 0, 24*size), keys: make([]key, 0, size)}
}

func hashWords(w []int64) uint32 {
	h := uint64(len(w))
	for _, x := range w {
		h = (h ^ uint64(x)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return uint32(h >> 32)
}

// intern returns the number of w, and whether w is new.
func (t *table) intern(w []int64) (id int32, fresh bool) {
	h, end := hashWords(w), len(t.text)
	if id := t.find(h, w); id >= 0 {
		t.text = t.text[:end]
		return id, false
	}
	if 2*len(t.keys) >= len(t.slots) {
		t.grow()
	}
	id = int32(len(t.keys))
	t.keys = append(t.keys, key{int32(end), h})
	t.place(h, id)
	return id, true
}

// has reports whether w has a number.
func (t *table) has(w []int64) bool {
	end := len(t.text)
	id := t.find(hashWords(w), w)
	t.text = t.text[:end]
	return id >= 0
}

// find returns the number of w, whose hash is h, or -1. It leaves w at the end of the text.
func (t *table) find(h uint32, w []int64) int32 {
	end := len(t.text)
	for _, x := range w {
		t.text = binary.AppendVarint(t.text, x)
	}
	for i := h & uint32(len(t.slots)-1); t.slots[i] != 0; i = (i + 1) & uint32(len(t.slots)-1) {
		id := t.slots[i] - 1
		if t.keys[id].hash == h && bytes.Equal(t.key(id, end), t.text[end:]) {
			return id
		}
	}
	return -1
}

// key is the text of a key. end is the end of the last one.
func (t *table) key(id int32, end int) []byte {
	if int(id)+1 < len(t.keys) {
		end = int(t.keys[id+1].at)
	}
	return t.text[t.keys[id].at:end]
}

func (t *table) place(h uint32, id int32) {
	i := h & uint32(len(t.slots)-1)
	for t.slots[i] != 0 {
		i = (i + 1) & uint32(len(t.slots)-1)
	}
	t.slots[i] = id + 1
}

func (t *table) grow() {
	t.slots = make([]int32, 2*len(t.slots))
	for id := range t.keys {
		t.place(t.keys[id].hash, int32(id))
	}
}
