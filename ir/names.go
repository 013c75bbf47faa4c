package ir

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// CheckName returns what is wrong with s as the name of a graph, a value or a scope, or nil. A name
// is UTF-8 and prints in one line, because files contain it as JSON and terminals show it.
func CheckName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("want a name")
	case plain(s):
		return nil
	case !utf8.ValidString(s):
		return fmt.Errorf("the name %q is not UTF-8", s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the name %q has a character that does not print", s)
		}
	}
	return nil
}

// plain reports whether s consists of characters of ASCII that print.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// CheckDimName returns what is wrong with s as the name of a dimension, or nil: shapes print it
// without quotes.
func CheckDimName(s string) error {
	if _, err := strconv.ParseInt(s, 10, 64); !isIdent(s) || err == nil {
		return fmt.Errorf("the dimension's name %q is not a word of letters, digits, and _ . - /", s)
	}
	return nil
}

// Printable is a name in messages: unchanged, or quoted if a terminal would not print it.
func Printable(name string) string {
	if CheckName(name) != nil {
		return strconv.Quote(name)
	}
	return name
}
