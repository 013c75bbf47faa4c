package ir

import (
	"strings"
	"testing"
)

func chain(t *testing.T, n int) *Graph {
	t.Helper()
	b := NewBuilder("chain")
	v := b.Declare(Input, "x", T(F32, 4), nil, nil)
	w := v
	for range n {
		v = b.Add(v, w)
	}
	b.Return(v)
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	return b.Graph()
}

func TestSortFindsCycle(t *testing.T) {
	g := chain(t, 3)
	g.Body[Forward][0].In[1] = g.Body[Forward][2].Out[0]
	err := g.Sort(func(n *Node) int64 { return 0 })
	if err == nil || !strings.Contains(err.Error(), "part of a cycle") {
		t.Errorf("got %v", err)
	}
}

func TestShuffleKeepsOrderOfUses(t *testing.T) {
	b := NewBuilder("wide")
	x := b.Declare(Input, "x", T(F32, 4), nil, nil)
	var leaves []*Value
	for range 16 {
		leaves = append(leaves, b.Mul(x, x))
	}
	for i := 0; i+1 < len(leaves); i += 2 {
		b.Return(b.Add(leaves[i], leaves[i+1]))
	}
	g := b.Graph()
	before := g.String()
	moved := false
	for salt := range uint64(4) {
		if err := g.Shuffle(salt); err != nil {
			t.Fatal(err)
		}
		moved = moved || g.String() != before
		if err := Verify(g, Source); err != nil {
			t.Fatal(err)
		}
	}
	if !moved {
		t.Error("four shuffles left 24 nodes in their order")
	}
}

func TestBuilderErrorsStick(t *testing.T) {
	b := NewBuilder("bad")
	x := b.Declare(Input, "x", T(F32, 4), nil, nil)
	y := b.Declare(Input, "y", T(F32, 3), nil, nil)
	line := 7
	b.Locate(func() Pos { return Pos{"model.go", line} })
	z := b.Named("sum").Add(x, y)
	line = 8
	b.Scope("later").Mul(z, z)
	want := `model.go:7: add "sum": shapes do not broadcast: %x f32[4], %y f32[3]`
	if err := b.Err(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLastWriteCarriesThePrime(t *testing.T) {
	b := NewBuilder("w").In(Update)
	s := b.Declare(State, "s", T(F32), nil, nil)
	first := b.EmitWrite(OpAdd, []*Value{s, s}, nil, s)[0]
	second := b.EmitWrite(OpMul, []*Value{first, s}, nil, s)[0]
	if first.Next != nil || second.Next != s {
		t.Errorf("first writes %v, second %v", first.Next, second.Next)
	}
	if err := Verify(b.Graph(), Training); err != nil {
		t.Error(err)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		u, v, want Unit
		exp        int
	}{
		{"a", "a", "", -1},
		{"", "a", "a", 1},
		{"a", "b", "a b", 1},
		{"a", "a", "a^2", 1},
		{"a^2 b", "b", "a^2", -1},
		{"", "a b^2", "a^-1 b^-2", -1},
	} {
		if got := c.u.times(c.v, c.exp); got != c.want {
			t.Errorf("%q·(%q)^%d = %q, want %q", c.u, c.v, c.exp, got, c.want)
		}
	}
	b := NewBuilder("u")
	s := b.Declare(State, "scale", T(F32), nil, A("role", RoleScale))
	x := b.Declare(Input, "x", T(F32), nil, nil)
	b.Add(b.Mul(x, s), x)
	err := InferUnits(b.Graph())
	if err == nil || err.Error() != "add: %mul has scale unit scale and meets %x, which has scale unit 1" {
		t.Errorf("got %v", err)
	}
}

func TestBind(t *testing.T) {
	b := NewBuilder("sym")
	n := b.Graph().Sym("N")
	x := b.Declare(Input, "x", T(F32, n, 4), nil, nil)
	b.Return(b.Mul(x, x))
	g := b.Graph()
	if err := g.Bind(map[string]int64{"M": 2}); err == nil {
		t.Error("an unknown dimension was accepted")
	}
	if err := g.Bind(map[string]int64{"N": 3}); err != nil {
		t.Fatal(err)
	}
	if got := g.Return[0].Type; got != T(F32, 3, 4) {
		t.Errorf("got %s", got)
	}
}

func TestHoldsIsExact(t *testing.T) {
	if F16.Holds(BF16) || BF16.Holds(F16) || F16.Holds(F32) || !F32.Holds(F16) || !F32.Holds(BF16) {
		t.Error("the table of representable dtypes is wrong")
	}
}
