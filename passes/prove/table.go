package prove

// table gives equal keys one number: hash consing over lists of words.
type table struct {
	words []int64
	keys  []key
	slots []int32 // a number plus 1; 0: free. Open addressing, a power of two
}

type key struct {
	at, n int32 // in words
	hash  uint64
}

func newTable(size int) *table {
	slots := 1024
	for slots < 2*size {
		slots *= 2
	}
	return &table{slots: make([]int32, slots), words: make([]int64, 0, 8*size), keys: make([]key, 0, size)}
}

func hashWords(w []int64) uint64 {
	h := uint64(len(w))
	for _, x := range w {
		h = (h ^ uint64(x)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return h
}

// intern returns the number of w, and whether w is new.
func (t *table) intern(w []int64) (id int32, fresh bool) {
	if id := t.find(w); id >= 0 {
		return id, false
	}
	if 2*len(t.keys) >= len(t.slots) {
		t.grow()
	}
	id = int32(len(t.keys))
	k := key{int32(len(t.words)), int32(len(w)), hashWords(w)}
	t.words = append(t.words, w...)
	t.keys = append(t.keys, k)
	t.place(k.hash, id)
	return id, true
}

// find returns the number of w, -1 where it has none.
func (t *table) find(w []int64) int32 {
	h := hashWords(w)
	for i := h & uint64(len(t.slots)-1); t.slots[i] != 0; i = (i + 1) & uint64(len(t.slots)-1) {
		id := t.slots[i] - 1
		if k := &t.keys[id]; k.hash == h && t.equal(k, w) {
			return id
		}
	}
	return -1
}

func (t *table) equal(k *key, w []int64) bool {
	if int(k.n) != len(w) {
		return false
	}
	for i, x := range t.words[k.at : k.at+k.n] {
		if x != w[i] {
			return false
		}
	}
	return true
}

func (t *table) place(h uint64, id int32) {
	i := h & uint64(len(t.slots)-1)
	for t.slots[i] != 0 {
		i = (i + 1) & uint64(len(t.slots)-1)
	}
	t.slots[i] = id + 1
}

func (t *table) grow() {
	t.slots = make([]int32, 2*len(t.slots))
	for id := range t.keys {
		t.place(t.keys[id].hash, int32(id))
	}
}
