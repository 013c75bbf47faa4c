package arch_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// plainWords lists words that no identifier of a package contains, with the
// field's term for what they once named here. "*" is every package.
var plainWords = map[string]map[string]string{
	"*": {
		"shadow": "weight copy", "shadows": "weight copies", "finisher": "epilogue", "treatment": "decision", "wish": "operand requirement", "wishes": "operand requirement",
		"realise": "materialize", "materialise": "materialize", "optimiser": "optimizer", "ticket": "future", "narrower": "fallback", "exam": "fault injection",
		"ward": "fault injection", "illness": "fault", "sick": "actual", "canvas": "padded input", "stripe": "GEMV", "skinny": "small M", "walker": "strided view",
		"kid": "subgraph", "kids": "subgraphs", "asleep": "inactive", "konst": "constant", "everybodys": "of all ranks", "homeless": "unread", "loners": "isolated",
	},
	"runtime/cpu/kern": {
		"along": "packing tile", "far": "indirect tile", "loose": "unpacked tile", "pair": "VNNI layout", "paired": "VNNI layout",
		"canvas": "padded image", "lay": "pad", "laid": "padded", "stripe": "GEMV", "skinny": "small M", "past": "streaming store",
		"wins": "uses Winograd", "tiny": "subnormal", "rough": "subnormal", "lies": "contiguous", "finisher": "post-op",
		"told": "post-op", "tell": "post-op",
	},
	"runtime/cpu": {
		"lane": "execution context", "lanes": "register file", "flying": "in flight", "landed": "finished", "depart": "begin", "arrive": "await",
		"lent": "aliased", "flawed": "finite check", "flaws": "finite check", "gone": "reduced",
	},
	"cmd/ampc":    {"crew": "rank group", "muster": "join", "speaker": "text model"},
	"ptx":         {"wins": "better", "leader": "extremum"},
	"runtime/gpu": {"ends": "epilogue"},
	"lower":       {"then": "post-ops", "ending": "epilogue", "tell": "post-op"},
	"lower/sm":    {"then": "after"},
	"onnx":        {"away": "external", "lean": "without tensors"},
	"onnx/convert": {
		"spill": "exceeds the range", "spills": "exceeds the range", "spilled": "exceeds the range", "tell": "summarize",
	},
	"view": {"tell": "notify"},
	"passes": {
		"treatment": "decision", "realise": "materialize", "realiser": "materializer", "force": "override",
		"leader": "representative", "tied": "represented", "crossed": "casts before",
		"wish": "operand requirement", "wishes": "operand requirement", "demand": "operand requirement",
		"held": "saved activation", "hold": "saved-activation cost",
	},
	"passes/prove": {"track": "skip group", "twin": "node of the same entity", "demand": "require"},
	"passes/plan":  {"hold": "saved-activation cost", "held": "saved activation"},
}

// plainPhrases lists what no comment, message and page says, with what to write.
var plainPhrases = []struct{ phrase, write string }{
	{`\blow cop(y|ies)\b`, "16-bit copy"},
	{`\bshadow (cop|weight)`, "16-bit copy"},
	{`\bgoes on (with|from)\b`, "continues, or: its epilogue is"},
	{`(?i)(real|material|optim|normal|initial|recogn|quant|synchron|minim|canonical|general|serial|token|special)is(e|es|ed|er|ers|ing|ation)\b`, "the spelling with z"},
	{`\bunless told otherwise\b`, "by default"},
	{`\bspeed of light\b`, "upper bound of speed"},
	{`\b[Tt]he road of\b`, "the pipeline, or how to"},
	{`\bhas no use here\b`, "unused"},
	{`\b(it|that|which|root) is no (float|root|number|tensor|parameter|variable|operand|error)\b`, "is not a"},
	{`\bends in what\b`, "fuses"},
	{`\b(treatments?|illness|finishers?)\b`, "decision, fault, epilogue"},
	{`\bhas unit %s\b`, "has scale unit %s"},
	{`(?i)\b(nobody|somebody|everybody|anybody|whoever)\b`, "nothing, no caller, another node"},
	{`(?i)\bbut for\b`, "except for"},
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
		words := maps.Clone(plainWords["*"])
		maps.Copy(words, plainWords[s.pkg])
		if s.pkg == "ptx/interp" {
			delete(words, "shadow") // shadow memory of the race detector
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

// Comments, messages and pages use plain terms, too.
func TestPhrases(t *testing.T) {
	var rules []*regexp.Regexp
	for _, p := range plainPhrases {
		rules = append(rules, regexp.MustCompile(p.phrase))
	}
	check := func(at, text string) {
		for i, r := range rules {
			if found := r.FindString(text); found != "" {
				t.Errorf("%s: %q: write: %s", at, found, plainPhrases[i].write)
			}
		}
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, c := range s.file.Comments {
			check(s.fset.Position(c.Pos()).String(), c.Text())
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				check(s.fset.Position(l.Pos()).String(), l.Value)
			}
			return true
		})
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(docs, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			check(page+":"+strconv.Itoa(i+1), line)
		}
	}
}
