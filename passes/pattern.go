package passes

import "strings"

// Matches reports whether pattern matches the name of a value: the whole name, or a scope around
// it, which is its first components up to a dot. A * stands for any characters, with dots.
// "h*.attn" matches h3.attn and h3.attn.q.w.
func Matches(pattern, name string) bool {
	if pattern == "" || pattern == "*" {
		return true
	}
	if glob(pattern, name) {
		return true
	}
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '.' && glob(pattern, name[:i]) {
			return true
		}
	}
	return false
}

// glob reports whether p matches all of s. A * stands for any characters.
func glob(p, s string) bool {
	head, rest, star := strings.Cut(p, "*")
	if !star {
		return p == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}
