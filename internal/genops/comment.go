package main

import (
	"go/ast"
	"regexp"
	"strings"

	"ampc/ir"
)

// labels are the lines that every op's comment has, in this order.
var labels = []string{"Shapes", "DTypes", "Errors", "PyTorch"}

var labelled = regexp.MustCompile(`^\s*- (\w+): (.*)$`)

// comment is a method's comment with the lines that its row answers: an
// elementwise row says of itself what it takes.
func comment(m *ast.FuncDecl) []string {
	var out []string
	lines := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(m.Doc.Text()), "\n") {
		if part := labelled.FindStringSubmatch(line); part != nil {
			lines[part[1]] = part[2]
		} else {
			out = append(out, line)
		}
	}
	for label, text := range fromRow(m) {
		if lines[label] == "" {
			lines[label] = text
		}
	}
	if out[len(out)-1] != "" {
		out = append(out, "")
	}
	for _, label := range labels {
		if lines[label] != "" {
			out = append(out, "  - "+label+": "+lines[label])
		}
	}
	return out
}

// fromRow is what the row of an elementwise op says about shapes and dtypes.
func fromRow(m *ast.FuncDecl) map[string]string {
	d := rowOf(m)
	if d == nil || d.Elem == nil {
		return nil
	}
	kind, same := kinds(&d.In[0]), true
	for i := range d.In {
		same = same && kinds(&d.In[i]) == kind
	}
	if !same {
		return nil
	}
	result := resultOf(d)
	if len(d.In) == 1 {
		return map[string]string{"Shapes": "x[...] to the same.", "DTypes": kind + "; " + result, "Errors": "x is not " + article(kind) + "."}
	}
	errors := "shapes that do not broadcast"
	if kind != "any" {
		errors += ", or an operand that is not " + article(kind)
	}
	return map[string]string{"Shapes": "the operands broadcast, as in PyTorch.", "DTypes": kind + "; " + result, "Errors": errors + "."}
}

// rowOf finds the row whose constant the method's body names, nil where it names none or several.
func rowOf(m *ast.FuncDecl) *ir.Def {
	var found *ir.Def
	ast.Inspect(m.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if name, is := strings.CutPrefix(nameOf(id, ok), "Op"); is {
			for _, op := range ir.Ops() {
				if strings.EqualFold(strings.ReplaceAll(op.String(), "_", ""), name) {
					found = op.Def()
				}
			}
		}
		return true
	})
	return found
}

func nameOf(id *ast.Ident, ok bool) string {
	if !ok {
		return ""
	}
	return id.Name
}

func kinds(o *ir.Operand) string {
	k := o.Kinds
	if k == 0 {
		k = ir.KFloat
	}
	var s []string
	for _, x := range []struct {
		kind ir.Kinds
		name string
	}{{ir.KFloat, "float"}, {ir.KInt, "integer"}, {ir.KBool, "bool"}} {
		if k&x.kind != 0 {
			s = append(s, x.name)
		}
	}
	if len(s) == 3 {
		return "any"
	}
	return strings.Join(s, " or ")
}

func article(kind string) string {
	var s []string
	for _, k := range strings.Split(kind, " or ") {
		s = append(s, map[string]string{"float": "a float", "integer": "an integer", "bool": "a bool"}[k])
	}
	return strings.Join(s, " or ")
}

// resultOf says which dtype the row's result has, from what it makes of sample operands.
func resultOf(d *ir.Def) string {
	n := &ir.Node{Op: opOf(d)}
	for i := range d.In {
		t := ir.T(ir.F16, 2)
		if k := d.In[i].Kinds; k != 0 && k&ir.KFloat == 0 {
			t = ir.T(ir.I32, 2)
		}
		n.In = append(n.In, &ir.Value{Name: d.In[i].Name, Type: t})
	}
	types, err := d.Infer(n)
	switch {
	case err == nil && types[0].DType == ir.Bool:
		return "the result is bool."
	case err == nil && d.Class == ir.Keep:
		return "computed in f32, stored so unless a policy says less."
	case len(d.In) == 1:
		return "the result has x's."
	}
	return "the result has the wider one."
}

func opOf(d *ir.Def) ir.Op {
	op, _ := ir.OpNamed(d.Name)
	return op
}
