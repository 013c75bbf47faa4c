package bridge

import (
	"math"
	"testing"

	G "gorgonia.org/gorgonia"
)

// wrongGradients are cases whose gradient, as Gorgonia writes it in ordinary
// ops, is not that of the value.
var wrongGradients = map[string]string{
	"log2":                 "Gorgonia's gradient is wrong",
	"invSqrt":              "Gorgonia's gradient is wrong",
	"outer":                "Gorgonia's gradient is wrong",
	"outer of two lengths": "Gorgonia's gradient has the shape of the other operand",
	"logsumexp":            "Gorgonia's value is another function",
}

// The gradient that Grad writes into the graph, read there as a value like any
// other, is the one that is derived here.
func TestGradientsAsValues(t *testing.T) {
	for _, c := range opCases() {
		if c.noGrad {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			g, x, cost := c.costOf()
			if err := gradOf(cost, x); err != "" {
				t.Skip("gorgonia.Grad fails: ", err)
			}
			norm := must(G.Sum(must(G.Square(x.Deriv()))))
			vm := machine(t, g, WithFetch(norm))
			if err := vm.RunAll(); err != nil {
				if why := wrongGradients[c.name]; why != "" {
					t.Skip(why, ": ", err)
				}
				t.Fatal(err)
			}
			d, err := x.Grad()
			if err != nil {
				t.Fatal(err)
			}
			want := 0.0
			for _, v := range d.Data().([]float32) {
				want += float64(v) * float64(v)
			}
			h, err := hostOf(norm.Value())
			if err != nil {
				t.Fatal(err)
			}
			apart := math.Abs(h.At(0)-want) > 1e-5*max(want, 1)
			switch why := wrongGradients[c.name]; {
			case why != "" && !apart:
				t.Error("the gradients are equal, but: ", why)
			case why != "":
				t.Log("not compared: ", why)
			case apart:
				t.Errorf("sum of squares is %g, want %g", h.At(0), want)
			}
		})
	}
}

// gradOf calls gorgonia.Grad, which panics for some ops.
func gradOf(cost, x *G.Node) (failure string) {
	defer func() {
		if r := recover(); r != nil {
			failure = "it panics"
		}
	}()
	if _, err := G.Grad(cost, x); err != nil {
		return err.Error()
	}
	return ""
}
