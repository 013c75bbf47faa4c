package lower

import (
	"testing"

	"ampc/ir"
)

// Verify rejects a kernel over rows whose prologue computes, stores or reads other values than the nodes of its cluster.
func TestVerifyPrologues(t *testing.T) {
	const source = `graph @rows {
  input %x : f32[8,16]
  input %m : f32[8,16]
forward:
  %s = sub %x, %m {cluster=1 launch=1 out=bf16} : bf16[8,16]
  %q = abs %s {cluster=1 launch=1} : bf16[8,16]
  %y = reduce_mean %q {axes=[-1] launch=1 out=f32} : f32[8]
  return %y, %s
}
`
	for name, change := range map[string]func(s *Step){
		"nothing":                     nil,
		"another register is reduced": func(s *Step) { s.Kernel.Fusion.Made-- },
		"the operand is not rounded": func(s *Step) {
			f := &s.Kernel.Fusion
			f.Made = f.Prologue.Code[f.Made].A
		},
		"another op in the chain": func(s *Step) {
			for i := range s.Kernel.Fusion.Prologue.Code {
				if in := &s.Kernel.Fusion.Prologue.Code[i]; in.Op == ir.PAbs {
					in.Op = ir.PNeg
				}
			}
		},
		"operands of the chain are exchanged": func(s *Step) {
			g := s.Kernel.Fusion.Prologue
			g.Loads[0], g.Loads[1] = g.Loads[1], g.Loads[0]
		},
		"a result of the chain is another one": func(s *Step) { s.Kernel.Fusion.Prologue.Stores[0].Reg = s.Kernel.Fusion.Made },
		"a result of the chain is not stored": func(s *Step) {
			s.Kernel.Fusion.Prologue.Stores = nil
		},
		"other rows are reduced":               func(s *Step) { s.Kernel.Node.Attrs = s.Kernel.Node.Attrs.With("axes", []int64{0}) },
		"the kernel has an operand of its own": func(s *Step) { s.In[0] = s.In[1] },
		"there is no chain":                    func(s *Step) { s.Kernel.Fusion = NormFusion{} },
	} {
		p, err := Lower(parse(t, source), CPU)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(&p.Parts[Micro][0])
		}
		if err := Verify(p); (err == nil) != (change == nil) {
			t.Errorf("%s: Verify says %v", name, err)
		}
	}
}
