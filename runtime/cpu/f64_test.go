package cpu

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// Kernels that know no f64 refuse it: they would read it as f32.
func TestF64IsRefused(t *testing.T) {
	b := open(t, 1)
	for name, body := range map[string]string{
		"gemm":    "input %a : f64[2,3]\n  input %b : f64[3,2]\nforward:\n  %y = matmul %a, %b : f64[2,2]",
		"softmax": "input %a : f64[4]\nforward:\n  %y = softmax %a {axis=0} : f64[4]",
		"conv":    "input %a : f64[1,1,4,4]\n  input %b : f64[1,1,3,3]\nforward:\n  %y = conv %a, %b : f64[1,1,2,2]",
	} {
		g, err := ir.Parse("t.ir", []byte("graph @t {\n  "+body+"\n  return %y\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := lower.Lower(g, lower.CPU)
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.NewStore(p.Vars)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Load(p, s); err == nil || !strings.Contains(err.Error(), "kernel for f64") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
