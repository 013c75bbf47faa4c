package ir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
)

// TestSentences pins every message about a bad graph. A section holds a whole
// graph, or only declarations and nodes (the position is left out then). Its
// name says what follows reading: grad- asks the last node for its gradient,
// unit- infers units, source- and verify- verify the graph as a source and as
// a mixed one; want.NAME is the message.
func TestSentences(t *testing.T) {
	var said []string
	golden.Run(t, "../testdata/errors", func(t *testing.T, c *golden.Case) golden.Result {
		r := golden.Result{Sections: map[string]string{}}
		for _, name := range c.Sections() {
			if strings.HasPrefix(name, "want.") {
				continue
			}
			msg := sentence(name, c.Section(name))
			if msg == "" {
				t.Errorf("%s: no error", name)
			}
			said = append(said, msg)
			r.Sections["want."+name] = msg + "\n"
		}
		return r
	})
	if t.Failed() {
		return
	}
	for _, s := range sentences(t) {
		if !s.matched(said) && unsaid[s.text] == "" {
			t.Errorf("%s: no case in testdata/errors produces %q", s.pos, s.text)
		}
		if s.matched(said) && unsaid[s.text] != "" {
			t.Errorf("%s: %q is produced although the list of exceptions says: %s", s.pos, s.text, unsaid[s.text])
		}
	}
}

// unsaid are sentences that no text can produce, and why.
var unsaid = map[string]string{
	"%s: its gradient reads %s, which it does not have":                        "custom ops alone: see TestOpaqueGradients",
	"has %d results, the node %d":                                              "a pass broke the graph",
	"result %s is not linked to its node":                                      "a pass broke the graph",
	"result %s is %s, recorded as %s":                                          "a pass broke the graph",
	"%s is written twice: only the last write carries the prime":               "a pass broke the graph",
	"%s: %s is a tensor of another model than %q":                              "answers calls",
	"%s: %s is a tensor of another model than %q, made at %s":                  "answers calls",
	"name %s: names that begin with %q are the compiler's own: choose another": "answers calls",
	"%s: the last step of %s needs a known rank":                               "the layers of the facade ask",
	"linear_scan: needs the size of axis %d of %s, which has type %s":          "a target without the kernel asks",
	"a recurrence takes x[S,B,I] and r[D,H,·], got %s %s and %s %s":            "the layers of the facade ask",
}

// elsewhere are files whose messages answer calls, not texts.
var elsewhere = map[string]string{
	"batch.go":   "answers Rebatch",
	"equal.go":   "says where two graphs differ",
	"rewrite.go": "answers Sort and Bind",
	"einsum.go":  "answers Einsum",
}

func sentence(name, src string) string {
	whole := strings.HasPrefix(src, "graph")
	if !whole {
		src = wrap(src)
	}
	g, err := ir.Parse("e.ir", []byte(src))
	if err == nil && strings.HasPrefix(name, "unit-") {
		err = ir.InferUnits(g)
	}
	if err == nil && strings.HasPrefix(name, "source-") {
		err = ir.Verify(g, ir.Source)
	}
	if err == nil && strings.HasPrefix(name, "verify-") {
		err = ir.Verify(g, ir.Mixed)
	}
	if err == nil && strings.HasPrefix(name, "grad-") {
		err = gradError(g)
	}
	if err == nil {
		return ""
	}
	if whole {
		return err.Error()
	}
	return regexp.MustCompile(`^e\.ir:\d+: `).ReplaceAllString(err.Error(), "")
}

// wrap makes a graph of declarations and nodes.
func wrap(src string) string {
	var head, body strings.Builder
	section := "forward:\n"
	for _, line := range strings.SplitAfter(src, "\n") {
		switch {
		case strings.HasSuffix(strings.TrimSpace(line), ":"):
			section = line
		case strings.HasPrefix(line, "%"):
			body.WriteString(line)
		default:
			head.WriteString(line)
		}
	}
	if body.Len() == 0 {
		section = ""
	}
	return "graph @e {\n" + head.String() + section + body.String() + "}\n"
}

func gradError(g *ir.Graph) error {
	nodes := g.Body[ir.Forward]
	n := nodes[len(nodes)-1]
	b := ir.Edit(g)
	d := make([]*ir.Value, len(n.Out))
	for i, v := range n.Out {
		d[i] = b.Declare(ir.Input, "d"+strconv.Itoa(i), v.Type, nil, nil)
	}
	if f := n.Def().Grad; f != nil {
		f(b, n, d)
	} else {
		n.Def().Expand(b, n)
	}
	return b.Err()
}

// message is a format string of this package that reports a mistake.
type message struct {
	text string
	pos  token.Position
	re   *regexp.Regexp
}

func (m *message) matched(said []string) bool {
	for _, s := range said {
		if m.re.MatchString(s) {
			return true
		}
	}
	return false
}

var verb = regexp.MustCompile(`%(\\\[\d\\\])?[a-zA-Z]`)

// sentences finds the formats of fmt.Errorf, Fail, needsSizes, fail and errorf in the
// package's source.
func sentences(t *testing.T) []*message {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var list []*message
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") || elsewhere[p] != "" {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if text, ok := format(call); ok {
					list = append(list, &message{text, fset.Position(call.Pos()), pattern(text)})
				}
			}
			return true
		})
	}
	if len(list) < 100 {
		t.Fatalf("found only %d sentences", len(list))
	}
	return list
}

// format returns the format string of a call that reports a mistake; formats
// that only carry another message are none.
func format(call *ast.CallExpr) (string, bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	arg := map[string]int{"Errorf": 0, "Fail": 0, "fail": 0, "errorf": 1, "needsSizes": 1}
	i, ok := arg[sel.Sel.Name]
	if !ok || i >= len(call.Args) {
		return "", false
	}
	lit, ok := call.Args[i].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	words := regexp.MustCompile(`%[a-z]|[^a-zA-Z]`).ReplaceAllString(text, "")
	return text, err == nil && words != ""
}

func pattern(text string) *regexp.Regexp {
	q := strings.ReplaceAll(regexp.QuoteMeta(text), "%%", "%")
	return regexp.MustCompile(verb.ReplaceAllString(q, `(?s:.*)`))
}
