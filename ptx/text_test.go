package ptx

import (
	"strings"
	"testing"
)

// sampleModule has every syntactic shape: guards, vectors, shared memory, labels, immediates.
func sampleModule(t testing.TB) *Module {
	t.Helper()
	b := newBuilder(SM80, "sample", 64)
	p := b.param("in")
	sh := b.shared("buf", 16, 256)
	tid := b.special("%tid.x")
	x := b.loadF(p, -16, Float16, 8)
	b.storeTo("shared", b.iadd(sh, b.imul(tid, I(4))), 0, Float32, x[:1])
	b.Do("bar.sync", I(0))
	b.when(b.Do("setp.lt.u32", tid, I(5)), func() {
		b.storeF(p, 32, BFloat16, x)
		b.Do("st.global.f64", Addr{Base: p}, b.Do("mov.f64", Db(-2.5)))
	})
	k, err := b.kernel()
	if err != nil {
		t.Fatal(err)
	}
	return &Module{Flavour: SM80, Kernels: []*Kernel{k}}
}

func TestTextRoundTrips(t *testing.T) {
	text := sampleModule(t).Text()
	m, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(m); err != nil {
		t.Fatal(err)
	}
	if again := m.Text(); again != text {
		t.Errorf("printed:\n%s\nafter parsing:\n%s", text, again)
	}
}

func TestParseIsFreeOfLayout(t *testing.T) {
	m, err := Parse(`.version 7.0 .target sm_80 .address_size 64 // comment
	.visible .entry k(.param .u64 a) .maxntid 32,1,1 { .reg .b64 %d<2>; .reg .u32 %r<1>; /* two
	lines */ ld.param.u64 %d0,[a]; cvta.to.global.u64 %d1,%d0; ld.global.u32 %r0,[%d1+4]; st.global.u32 [%d1],%r0; ret; }`)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(m); err != nil {
		t.Fatal(err)
	}
	if k := m.Kernel("k"); k == nil || len(k.Body) != 5 || k.Body[4].Line != 3 {
		t.Errorf("parsed %+v", k)
	}
}

// TestFaultsAreFound: each text breaks one rule; the message says which.
func TestFaultsAreFound(t *testing.T) {
	const head = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n" +
		".reg .pred %p<2>; .reg .b16 %h<2>; .reg .b32 %r<4>; .reg .b64 %d<2>; .reg .f32 %f<3>; .shared .align 4 .b8 s[64];\n" +
		"mov.u32 %r0, 1; mov.u32 %r1, 2; ld.param.u64 %d0, [a]; mov.f32 %f0, 0f3F800000; setp.eq.u32 %p0, %r0, %r1;\n"
	for _, c := range []struct{ body, want string }{
		{"add.u32 %r2, %r0; ret;", "operands"},
		{"add.u32 %r2, %r0, %f0; ret;", "want .u32"},
		{"add.rn.f32 %f1, %f0, 1; ret;", "want a .f32 constant"},
		{"add.u32 %r9, %r0, %r1; ret;", "not declared"},
		{"add.u32 %r2, %r0, %r3; ret;", "never written"},
		{"bra nowhere;", "not placed"},
		{"L: L: ret;", "placed twice"},
		{"@%r0 ret; ret;", "not a predicate"},
		{"@%p0 bar.sync 0; ret;", "branch around"},
		{"cvt.rn.bf16.f32 %h0, %f0; ret;", "needs PTX"},
		{"ld.global.u32 %r2, [%f0]; ret;", "not an address register"},
		{"ld.shared.u32 %r2, [t]; ret;", "not a shared variable"},
		{"ld.param.u64 %d1, [b]; ret;", "not a parameter"},
		{"add.u32 %r2, %r0, %r1;", "does not end"},
		{"ld.global.v2.u32 {%r2}, [%d0]; ret;", "2 registers"},
		{"mov.u16 %h0, 70000; ret;", "does not fit"},
	} {
		m, err := Parse(head + c.body + "\n}\n")
		if err == nil {
			err = Verify(m)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.body, err, c.want)
		}
	}
	for _, c := range []struct{ body, want string }{
		{"frobnicate.u32 %r0; ret;", "unknown instruction"},
		{"add.ftz.f32 %f0, %f0, %f0; ret;", "unknown instruction"},
		{"add.f32 %f0, %f0, %f0; ret;", "unknown instruction"},
		{"mov.u32 %x0, 1; ret;", "unknown register"},
	} {
		if _, err := Parse(head + c.body + "\n}\n"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.body, err, c.want)
		}
	}
	big := strings.Replace(head, "s[64]", "s[50000]", 1) + "ret;\n}\n"
	if m, err := Parse(big); err != nil || Verify(m) == nil {
		t.Errorf("50000 bytes of shared memory pass (parse error %v)", err)
	}
	for _, limits := range []string{".minnctapersm 2", ".maxntid 256, 1, 1 .minnctapersm 5", ".maxntid 2048, 1, 1"} {
		if m, err := Parse(strings.Replace(head, "\n{", limits+"\n{", 1) + "ret;\n}\n"); err != nil || Verify(m) == nil {
			t.Errorf("%s passes (parse error %v)", limits, err)
		}
	}
}

// TestBuilderRefuses: operands of the wrong type and instructions the flavour lacks.
func TestBuilderRefuses(t *testing.T) {
	for _, c := range []struct {
		want string
		emit func(b *builder)
	}{
		{"want .f32", func(b *builder) { b.Do("add.rn.f32", b.special("%tid.x"), Fl(1)) }},
		{"needs PTX", func(b *builder) { b.Do("cvt.rn.bf16.f32", b.floatConst(1)) }},
		{"unknown instruction", func(b *builder) { b.Do("add.f32", b.floatConst(1), b.floatConst(2)) }},
		{"nested", func(b *builder) {
			p := b.Do("setp.eq.u32", b.special("%tid.x"), I(0))
			b.When(p, true, func() { b.When(p, true, func() {}) })
		}},
	} {
		b := newBuilder(SM70, "k", 32)
		c.emit(b)
		if _, err := b.kernel(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

func TestFlavourFor(t *testing.T) {
	for cc, want := range map[[2]int]Flavour{{7, 0}: SM70, {7, 5}: SM70, {8, 6}: SM80, {9, 0}: SM90, {12, 0}: SM90} {
		if got, err := FlavourFor(cc[0], cc[1]); err != nil || got != want {
			t.Errorf("%v: %v %v", cc, got, err)
		}
	}
	if _, err := FlavourFor(6, 1); err == nil {
		t.Error("6.1 is accepted")
	}
}
