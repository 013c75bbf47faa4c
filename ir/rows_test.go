package ir

import (
	"strings"
	"testing"
)

// TestGradientRows pins what rows say of gradients, norms and windows.
func TestGradientRows(t *testing.T) {
	for _, op := range Ops() {
		d := op.Def()
		base, _, gradient := strings.Cut(d.Name, "_grad")
		if want, _ := OpNamed(base); gradient && d.GradOf != want {
			t.Errorf("%s is the gradient of %s, want %s", d.Name, d.GradOf, base)
		} else if !gradient && d.GradOf != OpInvalid {
			t.Errorf("%s is called the gradient of %s", d.Name, d.GradOf)
		}
		if d.GradOf == OpInvalid {
			continue
		}
		of := d.GradOf.Def()
		if (d.Norm == nil) != (of.Norm == nil) || d.Norm != nil && *d.Norm != *of.Norm {
			t.Errorf("%s and %s normalize differently: %v, %v", d.Name, of.Name, d.Norm, of.Norm)
		}
		if d.Norm != nil && d.In[1].Name != "dy" {
			t.Errorf("operand 1 of %s is %s: NormOperand takes it for dy", d.Name, d.In[1].Name)
		}
		if (d.Window == nil) != (of.Window == nil) {
			t.Errorf("one of %s and %s has windows", d.Name, of.Name)
		}
		if d.Is(Convolves) && (d.Window == nil || d.Window.Filter == NoArg) {
			t.Errorf("%s convolves without a filter", d.Name)
		}
	}
}
