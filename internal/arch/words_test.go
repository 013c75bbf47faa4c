package arch_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// plainWords lists words that no identifier of a package contains, with the
// field's term for what they once named here. "*" is every package.
var plainWords = map[string]map[string]string{
	"runtime/cpu/kern": {
		"along": "packing tile", "far": "indirect tile", "loose": "unpacked tile", "pair": "VNNI layout", "paired": "VNNI layout",
		"canvas": "padded image", "lay": "pad", "laid": "padded", "stripe": "GEMV", "skinny": "small M", "past": "streaming store",
		"wins": "uses Winograd", "tiny": "subnormal", "rough": "subnormal", "lies": "contiguous", "finisher": "post-op",
		"told": "post-op", "tell": "post-op",
	},
	"ptx":         {"wins": "leads"},
	"runtime/gpu": {"ends": "epilogue"},
	"passes": {
		"treatment": "decision", "realise": "materialize", "realiser": "materializer", "force": "override",
		"leader": "representative", "tied": "represented", "crossed": "casts before",
		"wish": "operand requirement", "wishes": "operand requirement", "demand": "operand requirement",
		"held": "saved activation",
	},
	"passes/plan": {"hold": "saved-activation cost", "held": "saved activation"},
}

// parts are the words of an identifier, in lower case.
func parts(name string) (list []string) {
	start := 0
	for i, r := range name {
		if i > start && (r == '_' || unicode.IsDigit(r) || unicode.IsUpper(r) && !unicode.IsUpper(rune(name[i-1]))) {
			list = append(list, strings.ToLower(name[start:i]))
			start = i
		}
	}
	return append(list, strings.ToLower(name[start:]))
}

// Identifiers use the field's terms.
func TestWords(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		words := plainWords[s.pkg]
		if words == nil {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			for word, term := range words {
				if slices.Contains(parts(id.Name), word) {
					t.Errorf("%s: %s: the field says %s", s.fset.Position(id.Pos()), id.Name, term)
				}
			}
			return true
		})
	}
}
