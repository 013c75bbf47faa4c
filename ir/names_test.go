package ir_test

import (
	"strings"
	"testing"

	"ampc/ir"
)

var badNames = []string{"", "a\xffb", "a\nb", "\x1b[31ma", "a\tb", "a\u202eb", "\u0000", "a\u00a0b"}

func TestNames(t *testing.T) {
	for _, s := range badNames {
		if err := ir.CheckName(s); err == nil || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q: %v", s, err)
		}
		if p := ir.Printable(s); strings.ContainsAny(p, "\n\x1b\t\u202e") || p == "" {
			t.Errorf("%q prints as %s", s, p)
		}
	}
	for _, s := range []string{"a", "h0.attn", "a b", "größe", "层.w", "%a'"} {
		if err := ir.CheckName(s); err != nil || ir.Printable(s) != s {
			t.Errorf("%q: %v, %s", s, err, ir.Printable(s))
		}
	}
	for s, ok := range map[string]bool{"n": true, "batch.size": true, "2d": true, "": false, "12": false, "-1": false, "?": false, "a b": false, "größe": false, "_": false} {
		if err := ir.CheckDimName(s); (err == nil) != ok {
			t.Errorf("dimension %q: %v", s, err)
		}
	}
}

// The builder refuses a bad name wherever one can be given.
func TestBuilderRefusesNames(t *testing.T) {
	for _, s := range badNames {
		for what, build := range map[string]func(b *ir.Builder, x *ir.Value){
			"variable": func(b *ir.Builder, x *ir.Value) { b.Declare(ir.Param, s, x.Type, nil, nil) },
			"scope":    func(b *ir.Builder, x *ir.Value) { b.Scope(s).Relu(x) },
			"result":   func(b *ir.Builder, x *ir.Value) { b.Named(s).Relu(x) },
			"new name": func(b *ir.Builder, x *ir.Value) { b.Rename(b.Relu(x), s) },
		} {
			b := ir.NewBuilder("g")
			build(b, b.Declare(ir.Input, "x", ir.T(ir.F32, 2), nil, nil))
			if b.Err() == nil && (s != "" || what != "result" && what != "scope") { // no name: that of the op
				t.Errorf("%s %q is taken", what, s)
			} else if b.Err() != nil && !strings.Contains(b.Err().Error(), "name") {
				t.Errorf("%s %q: %v", what, s, b.Err())
			}
		}
	}
}
