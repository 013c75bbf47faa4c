package generate

import (
	"strings"
	"unicode/utf8"
)

// Text turns tokens into text as they come: a character whose bytes are in several
// tokens appears with the last of them.
type Text struct {
	decode func(ids []int32) string
	ids    []int32
	shown  string
}

// NewText continues the tokens before, whose text is not returned. decode is that of a
// tokenizer.
func NewText(decode func(ids []int32) string, before []int32) *Text {
	t := &Text{decode: decode, ids: append([]int32(nil), before...)}
	t.shown = strings.TrimRight(decode(t.ids), string(utf8.RuneError))
	return t
}

// Add returns what a token adds to the text, "" where its character is not complete.
func (t *Text) Add(id int32) string {
	t.ids = append(t.ids, id)
	text := t.decode(t.ids)
	if !strings.HasPrefix(text, t.shown) || strings.HasSuffix(text, string(utf8.RuneError)) {
		return ""
	}
	added := text[len(t.shown):]
	t.shown = text
	return added
}
