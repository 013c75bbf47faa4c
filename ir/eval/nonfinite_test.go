package eval

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"ampc/ir"
)

// special are the kinds of number that are not finite.
var special = []struct {
	kind ir.Numbers
	x    float64
}{{ir.PosInf, math.Inf(1)}, {ir.NegInf, math.Inf(-1)}, {ir.NaN, math.NaN()}}

func numbersOf(x float64) ir.Numbers {
	switch {
	case x != x:
		return ir.NaN
	case math.IsInf(x, 1):
		return ir.PosInf
	case math.IsInf(x, -1):
		return ir.NegInf
	}
	return ir.Finite
}

// found is the set of the numbers among the elements of the float results.
func found(out []*Tensor) ir.Numbers {
	var s ir.Numbers
	for _, t := range out {
		for _, x := range t.F {
			s |= numbersOf(x)
		}
	}
	return s
}

// nonfinite puts every kind of Inf and NaN at every position of every float
// operand, beside the case's numbers, beside zeros, and beside infinities of
// either sign: what the row says that it hands on must be there, and results
// that it calls finite must be so.
func (k *bench) nonfinite(t *testing.T) {
	t.Helper()
	for i, v := range k.node.In {
		if v == nil || !v.Type.DType.Float() {
			continue
		}
		for _, s := range special {
			k.keep(i, s.kind)
			for _, others := range []float64{math.NaN(), 0, math.Inf(1), math.Inf(-1)} { // NaN: as in the case
				k.inject(t, i, s.kind, s.x, others)
			}
		}
	}
}

// handed collects, by row, operand and kind, what the nodes of all cases hand on.
var handed = map[ir.Op]map[string]map[ir.Numbers]ir.Numbers{}

func (k *bench) keep(i int, kind ir.Numbers) {
	op, name := k.c.op, k.node.OperandDef(i).Name
	if handed[op] == nil {
		handed[op] = map[string]map[ir.Numbers]ir.Numbers{}
	}
	if handed[op][name] == nil {
		handed[op][name] = map[ir.Numbers]ir.Numbers{}
	}
	handed[op][name][kind] |= k.node.HandsOn(i, kind)
}

var trailing = regexp.MustCompile(" +\n")

// handedTable is a line for every row that keeps some Inf or NaN of an operand
// in all its cases, and for each kind what it leaves; "-" where it may be lost.
func handedTable() string {
	var b strings.Builder
	b.WriteString("# What an Inf or NaN in an operand is certain to leave in a result: written by the tests of ir/eval under -update.\n")
	for _, op := range ir.Ops() {
		for _, o := range op.Def().In {
			row := handed[op][o.Name]
			if row == nil || (row[ir.PosInf]&row[ir.NegInf]&row[ir.NaN])&ir.Finite != 0 {
				continue
			}
			fmt.Fprintf(&b, "%-24s%-10s", op, o.Name)
			for _, s := range special {
				left := row[s.kind].String()
				if row[s.kind]&ir.Finite != 0 {
					left = "-"
				}
				fmt.Fprintf(&b, "  %s: %-20s", s.kind, left)
			}
			b.WriteString("\n")
		}
	}
	return trailing.ReplaceAllString(b.String(), "\n")
}

// inject runs the node with x at one position of operand i after the other.
func (k *bench) inject(t *testing.T, i int, kind ir.Numbers, x, others float64) {
	t.Helper()
	in := make([]*Tensor, len(k.c.in))
	for j, c := range k.c.in {
		if c == nil {
			continue
		}
		in[j] = c.Clone()
		for e := range in[j].F {
			if others == others {
				in[j].F[e] = others
			}
		}
	}
	claim := k.node.HandsOn(i, kind)
	for e := range in[i].F {
		old := in[i].F[e]
		in[i].F[e] = x
		out, err := Node(k.node, in, Options{})
		in[i].F[e] = old
		if err != nil {
			t.Fatal(err)
		}
		if claim&ir.Finite == 0 && found(out)&claim == 0 {
			t.Errorf("%s: %v at element %d of operand %d, others %v: the row says that some element of a result is %s, there is none", k.c.op, kind, e, i, others, claim)
			return
		}
		for j, r := range out {
			if k.resultIsFinite(j) && found([]*Tensor{r})&ir.Nonfinite != 0 {
				t.Errorf("%s: %v in operand %d leaves %s in result %d, which the row calls finite", k.c.op, kind, i, found([]*Tensor{r}), j)
				return
			}
		}
	}
}

func (k *bench) resultIsFinite(j int) bool {
	outs := k.node.Def().Out
	return j < len(outs) && outs[j].Finite
}
