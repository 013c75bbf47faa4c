package ir

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Error is a mistake in a graph: where, and one sentence.
type Error struct {
	Pos Pos
	Msg string
}

func (e *Error) Error() string {
	if p := e.Pos.String(); p != "" {
		return p + ": " + e.Msg
	}
	return e.Msg
}

func nodeError(n *Node, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{n.Pos, fmt.Sprintf("%s: %s", n.Def().Name, err)}
}

// anyDims finds shapes that an inference printed; see Type.String.
var anyDims = regexp.MustCompile(`\[(\d+|\?|s\d+)(,(\d+|\?|s\d+))*\]`)

// named gives the symbolic dimensions in a message the graph's names: rows see
// no graph and print s1, s2, ...
func (g *Graph) named(msg string) string {
	if len(g.Syms) == 0 {
		return msg
	}
	return anyDims.ReplaceAllStringFunc(msg, func(s string) string {
		dims := strings.Split(s[1:len(s)-1], ",")
		for i, d := range dims {
			if k, err := strconv.Atoi(strings.TrimPrefix(d, "s")); err == nil && d[0] == 's' && 0 < k && k <= len(g.Syms) {
				dims[i] = g.Syms[k-1].Name
			}
		}
		return "[" + strings.Join(dims, ",") + "]"
	})
}
