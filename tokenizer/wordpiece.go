package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// wordPiece takes the longest token that a word begins with, then that of the rest
// (Devlin et al. 2018, tokenization.py).
type wordPiece struct {
	vocab   map[string]int32
	prefix  string // of tokens that continue a word: ##
	unknown int32
	longest int // characters of a word; longer ones are unknown
}

func (p *wordPiece) encode(word string, out []int32) []int32 {
	if utf8.RuneCountInString(word) > p.longest {
		return append(out, p.unknown)
	}
	begin, at := len(out), 0
	for at < len(word) {
		id, n := p.longestToken(word[at:], at > 0)
		if n == 0 {
			return append(out[:begin], p.unknown)
		}
		out, at = append(out, id), at+n
	}
	return out
}

// longestToken is the longest token that s begins with, and its bytes of s; 0 where
// there is none.
func (p *wordPiece) longestToken(s string, inside bool) (id int32, n int) {
	for end := len(s); end > 0; end-- {
		if end < len(s) && !utf8.RuneStart(s[end]) {
			continue
		}
		token := s[:end]
		if inside {
			token = p.prefix + token
		}
		if id, ok := p.vocab[token]; ok {
			return id, end
		}
	}
	return 0, 0
}

// bertNormalizer is what BERT does to a text before it is split.
type bertNormalizer struct{ clean, chinese, accents, lower bool }

func (n bertNormalizer) normalize(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case n.clean && (r == 0 || r == utf8.RuneError || isControl(r)):
		case n.clean && isSpace(r):
			b.WriteByte(' ')
		case n.chinese && isChinese(r):
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	text = b.String()
	if n.accents {
		text = stripAccents(text)
	}
	if n.lower {
		text = lower(text)
	}
	return text
}

// stripAccents decomposes characters and leaves their marks out.
func stripAccents(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(text))
}

// lower is Unicode's lower case of each character; of those whose lower case is
// several, there is one.
func lower(text string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if r == 'İ' {
			return r
		}
		return unicode.ToLower(r)
	}, text), "İ", "i\u0307")
}

// isControl is what BERT leaves out: control, format, private use, but no spaces of
// lines and tabs.
func isControl(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// isChinese is the blocks of CJK ideographs that BERT puts spaces around.
func isChinese(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2b73f ||
		r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf || r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}
