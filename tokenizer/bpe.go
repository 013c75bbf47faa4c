package tokenizer

import (
	"container/heap"
	"fmt"
	"unicode/utf8"
)

// bpe is byte-pair encoding (Sennrich et al. 2016): of all neighbours, those that were
// merged first in training are merged first, from left to right.
type bpe struct {
	vocab    map[string]int32
	ranks    map[[2]int32]merge
	byteIDs  [256]int32 // of <0x00> to <0xFF>; nil without fallback
	fallback bool
	bytes    bool // words are bytes, not characters: byte-level
	whole    bool // a word of the vocabulary is one token, whatever the merges
	unknown  int32
	fuse     bool // unknown characters in a row are one token
}

type merge struct{ rank, id int32 }

// symbols are the ids that a word begins with.
func (b *bpe) symbols(word string) []int32 {
	ids := make([]int32, 0, len(word))
	if b.bytes {
		for i := range len(word) {
			ids = append(ids, b.byteIDs[word[i]])
		}
		return ids
	}
	lost := false // the character before was unknown
	for i, r := range word {
		_, size := utf8.DecodeRuneInString(word[i:])
		id, ok := b.vocab[string(r)]
		switch {
		case ok:
			ids, lost = append(ids, id), false
		case b.fallback:
			for _, c := range []byte(word[i : i+size]) {
				ids = append(ids, b.byteIDs[c])
			}
		case b.unknown >= 0 && !(lost && b.fuse):
			ids, lost = append(ids, b.unknown), true
		}
	}
	return ids
}

// encode appends the ids of a word.
func (b *bpe) encode(word string, out []int32) []int32 {
	if b.whole {
		if id, ok := b.vocab[word]; ok {
			return append(out, id)
		}
	}
	ids := b.symbols(word)
	if len(ids) < 2 {
		return append(out, ids...)
	}
	m := &merging{ids: ids, prev: make([]int32, len(ids)), next: make([]int32, len(ids))}
	for i := range ids {
		m.prev[i], m.next[i] = int32(i-1), int32(i+1)
	}
	for i := range len(ids) - 1 {
		m.offer(b, int32(i))
	}
	for len(m.queue) > 0 {
		p := heap.Pop(m).(pair)
		j := m.next[p.at]
		if m.ids[p.at] != p.left || int(j) >= len(ids) || m.ids[j] != p.right {
			continue // one of them was merged before
		}
		m.ids[p.at], m.ids[j] = p.id, -1
		after := m.next[j]
		m.next[p.at] = after
		if int(after) < len(ids) {
			m.prev[after] = p.at
			m.offer(b, p.at)
		}
		if m.prev[p.at] >= 0 {
			m.offer(b, m.prev[p.at])
		}
	}
	for i := int32(0); int(i) < len(ids); i = m.next[i] {
		out = append(out, m.ids[i])
	}
	return out
}

// pair is a merge that may be done.
type pair struct {
	merge
	at, left, right int32
}

// merging is a word while it is merged: a list of ids, and the merges in their order.
type merging struct {
	ids, prev, next []int32
	queue           []pair
}

func (m *merging) offer(b *bpe, at int32) {
	left, right := m.ids[at], m.ids[m.next[at]]
	if to, ok := b.ranks[[2]int32{left, right}]; ok {
		heap.Push(m, pair{to, at, left, right})
	}
}

func (m *merging) Len() int { return len(m.queue) }
func (m *merging) Less(i, j int) bool {
	a, b := m.queue[i], m.queue[j]
	return a.rank < b.rank || a.rank == b.rank && a.at < b.at
}
func (m *merging) Swap(i, j int) { m.queue[i], m.queue[j] = m.queue[j], m.queue[i] }
func (m *merging) Push(x any)    { m.queue = append(m.queue, x.(pair)) }
func (m *merging) Pop() any {
	last := m.queue[len(m.queue)-1]
	m.queue = m.queue[:len(m.queue)-1]
	return last
}

// addMerges ranks the merges, each a pair of tokens.
func (b *bpe) addMerges(merges [][2]string) error {
	b.ranks = make(map[[2]int32]merge, len(merges))
	for rank, m := range merges {
		left, ok := b.vocab[m[0]]
		right, both := b.vocab[m[1]]
		id, joined := b.vocab[m[0]+m[1]]
		if !ok || !both || !joined {
			return fmt.Errorf("merge %d, %q and %q: not all of it is in the vocabulary", rank+1, m[0], m[1])
		}
		if _, twice := b.ranks[[2]int32{left, right}]; !twice {
			b.ranks[[2]int32{left, right}] = merge{int32(rank), id}
		}
	}
	return nil
}

// byteRunes are the characters that byte-level vocabularies spell bytes with: itself
// where it prints, else one from U+0100 on (Radford et al. 2019, encoder.py).
var byteRunes = func() (runes [256]rune) {
	n := rune(0)
	for c := range 256 {
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			runes[c] = rune(c)
		} else {
			runes[c] = 256 + n
			n++
		}
	}
	return runes
}()

var runeBytes = func() map[rune]byte {
	m := map[rune]byte{}
	for c, r := range byteRunes {
		m[r] = byte(c)
	}
	return m
}()

// unspell is the inverse of spell; a character that stands for no byte stays.
func unspell(token string, out []byte) []byte {
	for _, r := range token {
		if c, ok := runeBytes[r]; ok {
			out = append(out, c)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// byteLevel makes b one over bytes.
func (b *bpe) byteLevel() error {
	b.bytes = true
	for c, r := range byteRunes {
		id, ok := b.vocab[string(r)]
		if !ok {
			return fmt.Errorf("the vocabulary lacks %q, which stands for the byte 0x%02x", string(r), c)
		}
		b.byteIDs[c] = id
	}
	return nil
}

// byteFallback makes characters that are not in the vocabulary bytes.
func (b *bpe) byteFallback() error {
	b.fallback = true
	for c := range 256 {
		id, ok := b.vocab[fmt.Sprintf("<0x%02X>", c)]
		if !ok {
			return fmt.Errorf("the vocabulary lacks <0x%02X>, which its byte_fallback needs", c)
		}
		b.byteIDs[c] = id
	}
	return nil
}
