package dataset

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Vocab numbers characters. Number 0 stands for every character it does not hold.
type Vocab struct {
	runes []rune
	ids   map[rune]int32
}

// NewVocab numbers the most frequent characters of a text, at most size-1 of
// them, in order of code point so that the numbers depend on the set alone.
func NewVocab(text string, size int) Vocab {
	count := map[rune]int{}
	for _, r := range text {
		count[r]++
	}
	delete(count, utf8.RuneError)
	runes := slices.SortedFunc(maps.Keys(count), func(a, b rune) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	runes = runes[:min(len(runes), size-1)]
	slices.Sort(runes)
	return vocabOf(append([]rune{utf8.RuneError}, runes...))
}

func vocabOf(runes []rune) Vocab {
	v := Vocab{runes, make(map[rune]int32, len(runes))}
	for i, r := range runes {
		v.ids[r] = int32(i)
	}
	return v
}

// Len is the number of characters, the one for unknown ones included.
func (v Vocab) Len() int { return len(v.runes) }

// Encode returns one number per character.
func (v Vocab) Encode(text string) []int32 {
	out := make([]int32, 0, len(text))
	for _, r := range text {
		out = append(out, v.ids[r]) // 0 where absent
	}
	return out
}

// Decode is the reverse of Encode; numbers out of range print as unknown.
func (v Vocab) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 0 || int(id) >= len(v.runes) {
			id = 0
		}
		b.WriteRune(v.runes[id])
	}
	return b.String()
}

// Marshal returns the vocabulary as text for a checkpoint's metadata.
func (v Vocab) Marshal() string {
	b, _ := json.Marshal(string(v.runes)) // a string always marshals
	return string(b)
}

// UnmarshalVocab reads what Marshal wrote.
func UnmarshalVocab(s string) (Vocab, error) {
	var text string
	if err := json.Unmarshal([]byte(s), &text); err != nil {
		return Vocab{}, errors.New("vocabulary: not a JSON string")
	}
	runes := []rune(text)
	if len(runes) == 0 || runes[0] != utf8.RuneError {
		return Vocab{}, errors.New("vocabulary: does not begin with the unknown character")
	}
	v := vocabOf(runes)
	if len(v.ids) != len(runes) {
		return Vocab{}, errors.New("vocabulary: a character appears twice")
	}
	return v, nil
}
