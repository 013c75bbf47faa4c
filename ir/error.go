package ir

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Error is a mistake in a graph: where, and one sentence.
type Error struct {
	Pos Pos
	Msg string
	// Unsized names the dimensions without sizes that the mistake is about. The mistake disappears
	// if they are bound to numbers (Graph.Bind).
	Unsized []string
}

// SizesError is the mistake at pos that a type of g has dimensions without sizes. msg says which op
// needs them.
func (g *Graph) SizesError(pos Pos, t Type, msg string) *Error {
	e := &Error{Pos: pos, Msg: g.named(msg)}
	for _, d := range t.Shape.Dims() {
		if d < 0 && d != UnknownDim && int(-d) <= len(g.Syms) {
			if name := g.Syms[-d-1].Name; !slices.Contains(e.Unsized, name) {
				e.Unsized = append(e.Unsized, name)
			}
		}
	}
	switch len(e.Unsized) {
	case 0:
	case 1:
		e.Msg += ": dimension " + e.Unsized[0] + " has no size"
	default:
		e.Msg += ": dimensions " + strings.Join(e.Unsized, ", ") + " have no sizes"
	}
	return e
}

func (e *Error) Error() string {
	if p := e.Pos.String(); p != "" {
		return p + ": " + e.Msg
	}
	return e.Msg
}

// ItOrThem is the pronoun for the dimensions of Unsized.
func (e *Error) ItOrThem() string {
	if len(e.Unsized) > 1 {
		return "them"
	}
	return "it"
}

func nodeError(n *Node, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Pos: n.Pos, Msg: fmt.Sprintf("%s: %s", n.Def().Name, err)}
}

// anyDims finds shapes that an inference printed; see Type.String.
var anyDims = regexp.MustCompile(`\[(\d+|\?|s\d+)(,(\d+|\?|s\d+))*\]`)

// named replaces symbolic dimensions in a message by their names in the graph: rows do not know the
// graph and print s1, s2, ...
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
