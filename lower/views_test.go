package lower

import (
	"strings"
	"testing"
)

// viewedGradient writes the gradients of attention into one tensor.
const viewedGradient = `graph @v {
  input %x : f32[2,6,48]
  input %e : f32[2,2,6,8]
forward:
  %all = neg %x : f32[2,6,48]
  %q0, %k0, %v0 = split %all {axis=-1 sizes=[16,16,16] view} : f32[2,6,16], f32[2,6,16], f32[2,6,16]
  %q1 = reshape %q0 {shape=[0,0,2,8]} : f32[2,6,2,8]
  %k1 = reshape %k0 {shape=[0,0,2,8]} : f32[2,6,2,8]
  %v1 = reshape %v0 {shape=[0,0,2,8]} : f32[2,6,2,8]
  %q = transpose %q1 {perm=[0,2,1,3] view} : f32[2,2,6,8]
  %k = transpose %k1 {perm=[0,2,1,3] view} : f32[2,2,6,8]
  %v = transpose %v1 {perm=[0,2,1,3] view} : f32[2,2,6,8]
  %y, %lse = attention %q, %k, %v : f32[2,2,6,8], f32[2,2,6]
backward:
  %dq, %dk, %dv = attention_grad %q, %k, %v, %y, %e, %lse : f32[2,2,6,8], f32[2,2,6,8], f32[2,2,6,8]
  %dq1 = transpose %dq {perm=[0,2,1,3] view} : f32[2,6,2,8]
  %dk1 = transpose %dk {perm=[0,2,1,3] view} : f32[2,6,2,8]
  %dv1 = transpose %dv {perm=[0,2,1,3] view} : f32[2,6,2,8]
  %dq0 = reshape %dq1 {shape=[0,0,16]} : f32[2,6,16]
  %dk0 = reshape %dk1 {shape=[0,0,16]} : f32[2,6,16]
  %dv0 = reshape %dv1 {shape=[0,0,16]} : f32[2,6,16]
  %dall = concat %dq0, %dk0, %dv0 {axis=-1 view} : f32[2,6,48]
  %r = relu %dall : f32[2,6,48]
  return %y, %r
}
`

// step is the step of micro that writes the named buffer.
func (p *Program) stepOf(t testing.TB, name string) *Step {
	t.Helper()
	for i := range p.Parts[Micro] {
		for _, id := range p.Parts[Micro][i].Out {
			if p.Buffers[id].Name == name {
				return &p.Parts[Micro][i]
			}
		}
	}
	t.Fatalf("no step writes %s in\n%s", name, p)
	return nil
}

// A marked graph copies nothing; its parts lie where the marks say.
func TestViewsAreStrided(t *testing.T) {
	p := lowered(t, viewedGradient)
	if n := len(p.Parts[Micro]); n != 4 {
		t.Errorf("%d steps, want 4\n%s", n, p)
	}
	for name, want := range map[string]struct {
		root string
		at   int64
	}{"q": {"all", 0}, "k": {"all", 64}, "v": {"all", 128}, "dq": {"dall", 0}, "dk": {"dall", 64}, "dv": {"dall", 128}} {
		b := p.find(t, name)
		if p.Buffers[b.Root].Name != want.root || b.At != want.at || len(b.Strides) != 4 || b.Strides[1] != 8 || b.Strides[2] != 48 {
			t.Errorf("%s: %+v", name, *b)
		}
	}
	if s := p.stepOf(t, "y"); s.Bytes != 2*6*48*4+p.find(t, "y").Size+p.find(t, "lse").Size {
		t.Errorf("attention moves %d bytes", s.Bytes)
	}
}

// Marks are no promise: where they do not hold, elements are copied.
func TestMarksThatDoNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		steps    int
	}{
		"a gradient returned":       {"return %y, %r", "return %y, %r, %dq1", 5},                               // the concatenation copies
		"q returned":                {"return %y, %r", "return %y, %r, %q", 6},                                 // and the split, and one transpose
		"a row of no strides":       {"%y, %lse = att", "%z = softmax %v0 : f32[2,6,16]\n  %y, %lse = att", 6}, // the split, the softmax
		"two readers of a gradient": {"  return %y", "  %z = softmax %dv : f32[2,2,6,8]\n  return %z, %y", 7},
	} {
		p := lowered(t, strings.Replace(viewedGradient, c.from, c.to, 1))
		if n := len(p.Parts[Micro]); n != c.steps {
			t.Errorf("%s: %d steps, want %d\n%s", name, n, c.steps, p)
		}
	}
}

// Every promise about views, broken one at a time.
func TestVerifyNoticesViews(t *testing.T) {
	for _, c := range []struct {
		name, want string
		damage     func(p *Program)
	}{
		{"over another result", "writes %dk over another result", func(p *Program) { move(p.find(t, "dk"), -64) }},
		{"into the next rows", "writes %dv over another result", func(p *Program) { move(p.find(t, "dv"), -32) }},
		{"past the end", "not of the bytes of its root", func(p *Program) { move(p.find(t, "dv"), 4) }},
		{"before the beginning", "not of the bytes of its root", func(p *Program) { move(p.find(t, "q"), -4) }},
		{"offset alone", "not of the bytes of its root", func(p *Program) { p.find(t, "k").Offset += 64 }},
		{"a split element", "begins 2 bytes into", func(p *Program) { move(p.find(t, "k"), -62) }},
		{"rows that lie apart", "strides", func(p *Program) { st := p.find(t, "k").Strides; st[2], st[3] = st[3], st[2] }},
		{"one element twice", "lead to one element twice", func(p *Program) { p.find(t, "k").Strides[2] = 8 }},
		{"strides of another rank", "strides", func(p *Program) { b := p.find(t, "k"); b.Strides = b.Strides[1:] }},
		{"a part missing", "of which 1536 bytes of 2304 have been written", func(p *Program) {
			id := BufferID(len(p.Buffers))
			p.Buffers = append(p.Buffers, Buffer{Name: "elsewhere", Type: p.find(t, "dk").Type, Arena: WorkArena, Root: id, Size: 768, Offset: p.Arenas[WorkArena], Live: Span{0, 9}})
			p.Arenas[WorkArena] += 768
			p.stepOf(t, "dk").Out[1] = id
		}},
		{"a group over a part", "only attention walks", func(p *Program) { p.stepOf(t, "r").In[0] = p.stepOf(t, "dq").Out[0] }},
	} {
		p := lowered(t, viewedGradient)
		for i := range p.Buffers { // values of one shape share nothing
			p.Buffers[i].Strides = append([]int64(nil), p.Buffers[i].Strides...)
		}
		c.damage(p)
		if err := Verify(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ... %s ...", c.name, err, c.want)
		}
	}
}

// move shifts a view within its root.
func move(b *Buffer, bytes int64) { b.At, b.Offset = b.At+bytes, b.Offset+bytes }
