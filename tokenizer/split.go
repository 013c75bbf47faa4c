package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is Unicode's property White_Space, which \s stands for in patterns.
func isSpace(r rune) bool { return unicode.Is(unicode.White_Space, r) }

// spaces are the characters of White_Space as the inside of a class.
const spaces = `\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`

// gpt2Pattern splits text for byte-level BPE (Radford et al. 2019, encoder.py).
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// trailing ends the patterns of byte-level BPE: spaces, of which the last goes with
// the word that follows.
const trailing = `\s+(?!\S)|\s+`

// splitter cuts text by a pattern: what it matches and what lies between are words.
// Package regexp has no look-ahead; the patterns that are published have it in their
// last two alternatives only, trailing, where it is what next does.
type splitter struct {
	pattern *regexp.Regexp
	ends    bool // the pattern ended in trailing, which is its last group
}

func newSplitter(pattern string) (*splitter, error) {
	s := &splitter{}
	if rest, ok := strings.CutSuffix(pattern, trailing); ok {
		pattern, s.ends = rest+`(\s+)`, true
	}
	translated, err := translate(pattern)
	if err != nil {
		return nil, err
	}
	if s.pattern, err = regexp.Compile(translated); err != nil {
		return nil, fmt.Errorf("the pattern %q cannot be read: %w", pattern, err)
	}
	return s, nil
}

// translate writes \s and \S as classes of Unicode's spaces.
func translate(pattern string) (string, error) {
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c == '\\' && i+1 < len(pattern) {
			i++
			switch next := pattern[i]; {
			case next == 's' && class:
				b.WriteString(spaces)
			case next == 's':
				b.WriteString("[" + spaces + "]")
			case next == 'S' && !class:
				b.WriteString("[^" + spaces + "]")
			case strings.IndexByte("SwWdDbB", next) >= 0:
				return "", fmt.Errorf("the pattern %q has \\%c, which is not supported", pattern, next)
			default:
				b.WriteByte(c)
				b.WriteByte(next)
			}
			continue
		}
		if c == '[' {
			class = true
		} else if c == ']' {
			class = false
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// next finds the first match in text, whose whole has no match before it.
func (s *splitter) next(text string) (from, to int) {
	at := s.pattern.FindStringSubmatchIndex(text)
	if at == nil {
		return len(text), len(text)
	}
	from, to = at[0], at[1]
	if n := len(at); s.ends && at[n-2] >= 0 && to < len(text) {
		if _, last := utf8.DecodeLastRuneInString(text[from:to]); to-last > from {
			to -= last // the last space goes with what follows
		}
	}
	return from, to
}

// words cuts text; nothing of it is lost.
func (s *splitter) words(text string, out []string) []string {
	for text != "" {
		from, to := s.next(text)
		if to == from { // no match, or an empty one
			return append(out, text)
		}
		if from > 0 {
			out = append(out, text[:from])
		}
		out, text = append(out, text[from:to]), text[to:]
	}
	return out
}

// each applies a cut to all words.
func each(cut func(word string, out []string) []string) func([]string) []string {
	return func(words []string) []string {
		var out []string
		for _, w := range words {
			out = cut(w, out)
		}
		return out
	}
}

// bertWords cuts at spaces, which are lost, and around each punctuation mark: the
// categories P, and the marks of ASCII.
func bertWords(text string, out []string) []string {
	begin := -1
	end := func(i int) {
		if begin >= 0 {
			out = append(out, text[begin:i])
		}
		begin = -1
	}
	for i, r := range text {
		switch {
		case isSpace(r):
			end(i)
		case unicode.IsPunct(r) || r < 0x80 && r > ' ' && r != 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end(i)
			out = append(out, text[i:i+utf8.RuneLen(r)])
		case begin < 0:
			begin = i
		}
	}
	end(len(text))
	return out
}
