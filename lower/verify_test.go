package lower

import (
	"strings"
	"testing"

	"ampc/ir"
)

const twoParts = `graph @p {
  input %x : f32[8,16]
  param %w : f32[16,16] = ones()
  state %acc : f32[16,16]
  state %stat : f32[16]
  const %first : bool[] = 0
prepare:
  %wl = cast %w {to=f16} : f16[16,16]
  %wt = transpose %wl {perm=[1,0]} : f16[16,16]
forward:
  %xl = cast %x {to=f16} : f16[8,16]
  %h = matmul %xl, %wl : f16[8,16]
  %a = relu %h : f16[8,16]
  %y = matmul %a, %wt {out=f32} : f32[8,16]
backward:
  %d = matmul %xl, %a {ta out=f32} : f32[16,16]
  %acc' = accum %acc, %d {first=%first}
update:
  %e = square %d : f32[16,16]
  %s = reduce_mean %e {axes=[0]} : f32[16]
  %stat' = add %stat, %s
  %w' = sub %w, %acc
  return %y, %w
}
`

func parse(t testing.TB, src string) *ir.Graph {
	t.Helper()
	g, err := ir.Parse("t.ir", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func lowered(t testing.TB, src string) *Program {
	t.Helper()
	p, err := Lower(parse(t, src), CPU)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Program) find(t testing.TB, name string) *Buffer {
	t.Helper()
	for i := range p.Buffers {
		if p.Buffers[i].Name == name {
			return &p.Buffers[i]
		}
	}
	t.Fatalf("no buffer %s in\n%s", name, p)
	return nil
}

// What prepare computes must outlive micro, which repeats; what update reads
// must outlive the end of micro.
func TestLifetimesAcrossParts(t *testing.T) {
	p := lowered(t, twoParts)
	micro := int32(len(p.Parts[Prepare])+len(p.Parts[Micro])) - 1
	if b := p.find(t, "wt"); b.Live.To < micro {
		t.Errorf("%%wt ends at %d, micro at %d", b.Live.To, micro)
	}
	if b := p.find(t, "d"); b.Live.To <= micro {
		t.Errorf("%%d is read in update and ends at %d, micro at %d", b.Live.To, micro)
	}
	if len(p.WeightCopies) != 1 || p.WeightCopies[0].Var != "w" || p.find(t, "wl").Arena != StateArena {
		t.Errorf("weight copies: %+v", p.WeightCopies)
	}
}

// Every promise of Verify, broken one at a time.
func TestVerifyNotices(t *testing.T) {
	id := func(p *Program, name string) BufferID {
		for i := range p.Buffers {
			if p.Buffers[i].Name == name {
				return BufferID(i)
			}
		}
		t.Fatal(name)
		return 0
	}
	for _, c := range []struct {
		name, want string
		damage     func(p *Program)
	}{
		{"overlap", "share bytes of the work arena", func(p *Program) { p.Buffers[id(p, "y")].Offset = p.find(t, "xl").Offset }},
		{"prepare overwritten", "share bytes", func(p *Program) {
			wt := p.find(t, "wt")
			p.Buffers[id(p, "h")].Offset = wt.Offset
		}},
		{"short life", "planned to live", func(p *Program) { p.Buffers[id(p, "wt")].Live.To = 1 }},
		{"alignment", "not a multiple of 256", func(p *Program) { p.Buffers[id(p, "h")].Offset += 2 }},
		{"outside", "beyond the work arena", func(p *Program) { p.Arenas[WorkArena] = 256 }},
		{"size", "bytes for", func(p *Program) { p.Buffers[id(p, "h")].Size *= 2 }},
		{"read first", "is read before it is written", func(p *Program) {
			m := p.Parts[Micro]
			m[0], m[1] = m[1], m[0]
		}},
		{"never written", "is never written", func(p *Program) {
			p.Outputs[0].Buffer = BufferID(len(p.Buffers))
			p.Buffers = append(p.Buffers, Buffer{Name: "ghost", Type: ir.T(ir.F32, 8, 16), Arena: WorkArena, Root: p.Outputs[0].Buffer, Size: 512})
		}},
		{"writes an input", "lies in the input arena", func(p *Program) { p.Parts[Micro][0].Out[0] = id(p, "x") }},
		{"no description", "no description", func(p *Program) { p.Parts[Micro][1].Gemm = nil }},
		{"two streams", "nothing orders them", func(p *Program) { p.Parts[Micro][1].Stream = 1 }},
		{"no event", "nothing has recorded", func(p *Program) {
			p.Events = 1
			p.Parts[Micro][1].Stream, p.Parts[Micro][1].Wait = 1, []EventID{1}
		}},
		{"leading dimension", "accesses elements", func(p *Program) { p.Parts[Micro][1].Gemm.A.LD *= 3 }},
		{"load outside", "accesses elements", func(p *Program) {
			for i := range p.Parts[Update] {
				if g := p.Parts[Update][i].Cluster; g != nil {
					g.Loads[0].Offset++
					return
				}
			}
		}},
		{"overwrites what it needs", "overwrites its operand", func(p *Program) { p.Parts[Micro][1].Out[0] = p.Parts[Micro][1].In[0] }},
	} {
		p := lowered(t, twoParts)
		c.damage(p)
		if err := Verify(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ... %s ...", c.name, err, c.want)
		}
	}
}

// Results that lie over operands although something still needs those.
func TestVerifyNoticesEarlyReuse(t *testing.T) {
	for _, c := range []struct{ name, src, moved, onto string }{
		{"a returned value under the last step", `graph @r {
  input %x : f32[4]
forward:
  %a = neg %x : f32[4]
  %b = abs %a : f32[4]
  return %a, %b
}
`, "b", "a"},
		{"a value of prepare under the last step of micro", `graph @r {
  input %x : f32[4]
  const %s : f32[4] = 1
prepare:
  %a = neg %s : f32[4]
forward:
  %b = add %a, %x : f32[4]
  return %b
}
`, "b", "a"},
		{"two results of one step", `graph @r {
  input %x : f32[4]
forward:
  %y = neg %x : f32[4]
  %a = neg %y {cluster=1} : f32[4]
  %b = abs %y {cluster=1} : f32[4]
  %c = add %a, %b : f32[4]
  return %c
}
`, "b", "a"},
	} {
		p := lowered(t, c.src)
		p.find(t, c.moved).Offset = p.find(t, c.onto).Offset
		if err := Verify(p); err == nil || !strings.Contains(err.Error(), "share bytes") {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestStreamsWithEventsVerify(t *testing.T) {
	p := lowered(t, twoParts)
	m := p.Parts[Micro]
	p.Events = 2
	m[0].Record = 1
	for i := 1; i < len(m); i++ {
		m[i].Stream = 1
	}
	m[1].Wait = []EventID{1}
	if err := Verify(p); err != nil {
		t.Error(err)
	}
}

func TestCheckNamesWhatCannotBeLowered(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"graph @s {\n  dim N\n  input %x : f32[N]\nforward:\n  %y = relu %x : f32[N]\n  return %y\n}\n", "t.ir:3: %x has type f32[N]: dimension N has no size"},
		{"graph @s {\n  input %x : f32[4,2]\nforward:\n  %y = reduce_scatter %x {axis=1 ranks=1} : f32[4,2]\n  return %y\n}\n", "t.ir:4: reduce_scatter: no rule lowers it for cpu"},
	} {
		if _, err := Lower(parse(t, c.src), CPU); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
