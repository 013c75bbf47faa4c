package lower_test

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// onDevice has a product with a bias, kernels with one block and with several,
// a table, a weight copy, and two streams.
const onDevice = `graph @d {
  input %x : f16[64,32]
  param %w : f32[32,32] = 0.5
  param %v : f32[32,32] = 0.5
  param %b : f16[32] = 0
  const %c : f32[] = 2
prepare:
  %w.l = cast %w {to=f16} : f16[32,32]
  %v.l = cast %v {to=f16} : f16[32,32]
forward:
  %h = linear %x, %w.l, %b : f16[64,32]
  %r = tanh %h : f16[64,32]
  %y = matmul %r, %v.l {out=f32} : f32[64,32]
  %s = reduce_sum %y {axes=[1]} : f32[64]
backward:
  %dw = matmul %x, %h {ta out=f32} : f32[32,32]
  %dv = matmul %r, %h {ta out=f32} : f32[32,32]
update:
  %bad = any_nonfinite %dw, %dv : bool[]
  %w' = add %w, %dw
  %v' = add %v, %dv
  return %s, %bad
}
`

// Every promise of a Program for a GPU, broken one at a time.
func TestVerifyNoticesOnGPU(t *testing.T) {
	first := func(p *lower.Program, part lower.Part, ok func(s *lower.Step) bool) *lower.Step {
		for i := range p.Parts[part] {
			if s := &p.Parts[part][i]; ok(s) {
				return s
			}
		}
		t.Fatalf("no such step in\n%s", p)
		return nil
	}
	launch := func(kind string) func(p *lower.Program) *lower.Launch {
		return func(p *lower.Program) *lower.Launch {
			for part := range lower.NumParts {
				for i := range p.Parts[part] {
					if l := p.Parts[part][i].Launch; l != nil && strings.HasPrefix(l.Kernel, kind) {
						return l
					}
				}
			}
			t.Fatalf("no kernel %s in\n%s", kind, p)
			return nil
		}
	}
	group, table, rows := launch("cluster"), launch("sums"), launch("row_sum")
	product := func(p *lower.Program) *lower.Step {
		return first(p, lower.Micro, func(s *lower.Step) bool { return s.Gemm != nil && s.Gemm.Epilogue.Bias != 0 })
	}
	id := func(p *lower.Program, name string) lower.BufferID {
		for i := range p.Buffers {
			if p.Buffers[i].Name == name {
				return lower.BufferID(i)
			}
		}
		t.Fatalf("no buffer %s in\n%s", name, p)
		return 0
	}
	retype := func(name string, typ ir.Type) func(p *lower.Program) {
		return func(p *lower.Program) {
			b := &p.Buffers[id(p, name)]
			b.Type, b.Size = typ, typ.Bytes()
		}
	}
	for _, c := range []struct {
		name, want string
		damage     func(p *lower.Program)
	}{
		{"kernel", "which no module has", func(p *lower.Program) { group(p).Kernel = "k" }},
		{"block", "is for 256", func(p *lower.Program) { group(p).Block = 128 }},
		{"empty grid", "over a grid of", func(p *lower.Program) { group(p).Grid[0] = 0 }},
		{"grid without need", "over a grid of", func(p *lower.Program) { group(p).Grid[2] = 2 }},
		{"address missing", "which takes", func(p *lower.Program) { l := group(p); l.Args = l.Args[1:] }},
		{"addresses swapped", "it works on", func(p *lower.Program) { l := rows(p); l.Args[0], l.Args[1] = l.Args[1], l.Args[0] }},
		{"address of another", "which is not one of the step's operands", func(p *lower.Program) { group(p).Args[0] = id(p, "r") }},
		{"operand too many", "never reads", func(p *lower.Program) {
			s := first(p, lower.Micro, func(s *lower.Step) bool { return s.Launch != nil })
			s.In = append(s.In, id(p, "c"))
		}},
		{"short operand", "it works on", retype("r", ir.T(ir.F16, 63, 32))},
		{"dtype of an operand", "it works on", retype("r", ir.T(ir.BF16, 64, 32))},
		{"size in a table", "its row says", func(p *lower.Program) { l := table(p); l.Table[l.Grid[0]].Value = 0 }},
		{"size in a table, smaller", "its row says", func(p *lower.Program) { l := table(p); l.Table[l.Grid[0]].Value-- }},
		{"block of a table", "no block does part 0 of tensor 0", func(p *lower.Program) { table(p).Table[0].Value++ }},
		{"short table", "is not one of", func(p *lower.Program) { l := table(p); l.Table = l.Table[1:] }},
		{"address in a table", "which is not one of the step's operands", func(p *lower.Program) { l := table(p); l.Table[l.Grid[0]+1].Buffer = id(p, "w") }},
		{"place of an input", "share bytes of the const arena", func(p *lower.Program) { p.Buffers[id(p, "c")].Offset = p.Buffers[id(p, "w.l.table")].Offset }},
		{"variable's buffer", "is not its buffer", func(p *lower.Program) { p.Vars[1].Buffer, p.Vars[2].Buffer = p.Vars[2].Buffer, p.Vars[1].Buffer }},
		{"result's buffer", "result %bad", func(p *lower.Program) { p.Outputs[1].Buffer = id(p, "s") }},
		{"copy of another", "does not make the f16 copy of %v", func(p *lower.Program) { p.WeightCopies[0].Var = "v" }},
		{"copy not kept", "nothing fills it", func(p *lower.Program) { p.WeightCopies = p.WeightCopies[1:] }},
		{"not listed as written", "a step writes it: true", func(p *lower.Program) { p.Written = p.Written[1:] }},
		{"factors of two dtypes", "no library multiplies", func(p *lower.Program) { product(p).In[1] = id(p, "w") }},
		{"rows that overlap", "begin every", func(p *lower.Program) { product(p).Gemm.A.LD-- }},
		{"inner dimension", "up to element", func(p *lower.Program) { product(p).Gemm.K-- }},
		{"rows of the result", "up to element", func(p *lower.Program) { product(p).Gemm.M-- }},
		{"tf32 of f16", "a tf32 product", func(p *lower.Program) { product(p).Gemm.TF32 = true }},
		{"tanh", "no library has an epilogue", func(p *lower.Program) { product(p).Gemm.Epilogue.Act = lower.Tanh }},
		{"bias", "the bias", func(p *lower.Program) { product(p).In[2] = id(p, "x") }},
		{"launch of no cluster", "runs no cluster", func(p *lower.Program) {
			first(p, lower.Micro, func(s *lower.Step) bool { return s.Launch != nil }).Runs = nil
		}},
		{"launch of another cluster", "which is no port of its cluster", func(p *lower.Program) {
			a, b := &p.Parts[lower.Micro][0], &p.Parts[lower.Micro][1]
			a.Runs, b.Runs = b.Runs, a.Runs
		}},
		{"cluster without a launch", "none of its launches does", func(p *lower.Program) {
			s := first(p, lower.Micro, func(s *lower.Step) bool { return s.Out[0] == id(p, "dw") })
			c := first(p, lower.Micro, func(s *lower.Step) bool { return s.Out[0] == id(p, "dv") })
			c.In, c.Runs = s.In, append(s.Runs, c.Runs...)
		}},
		{"scratch memory of another cluster", "which is scratch memory of the cluster", func(p *lower.Program) {
			s := first(p, lower.Update, func(s *lower.Step) bool { return strings.HasPrefix(s.Launch.Kernel, "row_sum") })
			s.Runs = first(p, lower.Update, func(s *lower.Step) bool { return len(s.More) > 0 }).Runs
		}},
	} {
		p := lowered(t, onDevice, "sm_90")
		c.damage(p)
		if err := lower.Verify(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ... %s ...", c.name, err, c.want)
		}
	}
}
