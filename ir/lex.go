package ir

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF   tokenKind = iota
	tokIdent           // also numbers: identifiers and numbers share their alphabet
	tokString
	tokValue // %name; text is the name, prime is set for %name'
	tokPunct // one of {}[](),:=|@
)

type token struct {
	kind  tokenKind
	text  string
	prime bool
	line  int
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "the end of the text"
	case tokString:
		return strconv.Quote(t.text)
	case tokValue:
		return quoteName(t.text)
	}
	return strconv.Quote(t.text)
}

// valueText is the text of a value's name.
func (t token) valueText() string {
	if t.prime {
		return quoteName(t.text) + "'"
	}
	return quoteName(t.text)
}

// lexer splits the text form into tokens; line ends are white space.
type lexer struct {
	file string
	src  []byte
	pos  int
	line int
}

func (l *lexer) errorf(line int, format string, args ...any) error {
	return &Error{Pos: Pos{l.file, line}, Msg: fmt.Sprintf(format, args...)}
}

func (l *lexer) skipSpace() {
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == '\n':
			l.line++
			l.pos++
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case c == ';':
			for l.pos < len(l.src) && l.src[l.pos] != '\n' {
				l.pos++
			}
		default:
			return
		}
	}
}

func (l *lexer) next() (token, error) {
	l.skipSpace()
	if l.pos >= len(l.src) {
		return token{kind: tokEOF, line: l.line}, nil
	}
	switch c := l.src[l.pos]; {
	case c == '%':
		return l.value()
	case c == '"':
		s, err := l.quoted()
		return token{kind: tokString, text: s, line: l.line}, err
	case identByte(c) || c == '+' || c == '?' || c == '*':
		start := l.pos
		l.pos++
		for l.pos < len(l.src) && (identByte(l.src[l.pos]) || l.src[l.pos] == '+') {
			l.pos++
		}
		return token{kind: tokIdent, text: string(l.src[start:l.pos]), line: l.line}, nil
	case strings.IndexByte("{}[](),:=|@", c) >= 0:
		l.pos++
		return token{kind: tokPunct, text: string(c), line: l.line}, nil
	default:
		r, n := utf8.DecodeRune(l.src[l.pos:])
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) {
			return token{}, l.errorf(l.line, "not the text of a graph: byte %x", c)
		}
		return token{}, l.errorf(l.line, "unexpected character %q", r)
	}
}

func (l *lexer) value() (token, error) {
	t := token{kind: tokValue, line: l.line}
	l.pos++
	if l.pos < len(l.src) && l.src[l.pos] == '"' {
		s, err := l.quoted()
		if err != nil {
			return t, err
		}
		if err := CheckName(s); err != nil {
			return t, l.errorf(l.line, "%v", err)
		}
		t.text = s
	} else {
		start := l.pos
		for l.pos < len(l.src) && identByte(l.src[l.pos]) {
			l.pos++
		}
		t.text = string(l.src[start:l.pos])
	}
	if t.text == "" {
		return t, l.errorf(l.line, "%% without a name")
	}
	if l.pos < len(l.src) && l.src[l.pos] == '\'' {
		l.pos++
		t.prime = true
	}
	return t, nil
}

func (l *lexer) quoted() (string, error) {
	start := l.pos
	for l.pos++; l.pos < len(l.src) && l.src[l.pos] != '\n'; l.pos++ {
		switch l.src[l.pos] {
		case '\\':
			l.pos++
		case '"':
			l.pos++
			s, err := strconv.Unquote(string(l.src[start:l.pos]))
			if err != nil {
				return "", l.errorf(l.line, "bad string %s", l.src[start:l.pos])
			}
			return s, nil
		}
	}
	return "", l.errorf(l.line, "string without an end")
}

func scalarValue(text string) any {
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && text != "-0" { // which is a float
		return n
	}
	if d, ok := DTypeOf(text); ok {
		return d
	}
	if text != "" && strings.ContainsAny(text[:1], "0123456789+-.") || text == "inf" || text == "nan" {
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			return x
		}
	}
	return text
}
