package ir

import (
	"fmt"
	"strings"
)

// Reserved is the prefix of variables that the compiler declares.
const Reserved = "amp."

// Guarded returns the builder for a user: it refuses values of other graphs, and
// names that begin with Reserved.
func (b *Builder) Guarded() *Builder { c := *b; c.guarded = true; return &c }

// NextName returns the name that Named has set for the next node's first result, "" for none.
func (b *Builder) NextName() string { return b.next }

// owns reports whether v is a value of the graph that is being built.
func (b *Builder) owns(v *Value) bool {
	return v != nil && (b.names.get(v.Name) == v || v.Next != nil && b.names.next(v.Next) == v)
}

// CheckOwn returns an error if v is a value of another graph.
func (b *Builder) CheckOwn(what string, v *Value) error {
	if b.owns(v) {
		return nil
	}
	made := v.Pos
	if v.Def != nil {
		made = v.Def.Pos
	}
	if made.File == "" {
		return fmt.Errorf("%s: %s is a tensor of another model than %q", what, v, b.g.Name)
	}
	return fmt.Errorf("%s: %s is a tensor of another model than %q, made at %s", what, v, b.g.Name, made)
}

// own records a mistake if a value that a user passed is of another graph.
func (b *Builder) own(what string, vs ...*Value) bool {
	for _, v := range vs {
		if !b.guarded || b.err != nil || v == nil {
			continue
		}
		if err := b.CheckOwn(what, v); err != nil {
			b.Fail("%v", err)
		}
	}
	return b.err == nil
}

// allowed records a mistake if a user uses a name that is reserved for the compiler.
func (b *Builder) allowed(name string) bool {
	if b.guarded && b.err == nil && strings.HasPrefix(name, Reserved) {
		b.Fail("name %s: names that begin with %q are the compiler's own: choose another", quoteName(name), Reserved)
	}
	return b.err == nil
}
