package interp

import (
	"errors"
	"strings"
	"testing"

	"ampc/ptx"
)

const head = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a)\n.maxntid 64, 1, 1\n{\n" +
	".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .f32 %f<4>; .shared .align 16 .b8 s[256];\n" +
	"ld.param.u64 %d0, [a]; cvta.to.global.u64 %d0, %d0; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;\n" +
	"mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r2, %r1, %r2; mov.u32 %r3, %ctaid.x;\n"

// ownWord points %r4 to a word of each warp; firstLane writes there in one lane.
const (
	ownWord   = "st.shared.u32 [%r2], %r0; bar.sync 0; shr.u32 %r4, %r0, 5; shl.b32 %r4, %r4, 2; add.u32 %r4, %r1, %r4; "
	firstLane = "and.b32 %r6, %r0, 31; setp.eq.u32 %p0, %r6, 0; @%p0 st.shared.u32 [%r4], %r5; "
)

// runBody executes a body over two blocks of 64 threads and a buffer of 64 words, all written.
func runBody(t *testing.T, body string, opt Options) (Stats, error) {
	t.Helper()
	m, err := ptx.Parse(head + body + "\n}\n")
	if err == nil {
		err = ptx.Verify(m)
	}
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	p, err := Compile(m.Kernels[0])
	if err != nil {
		t.Fatal(err)
	}
	mem := NewMemory()
	addr := mem.Alloc(256)
	if err := mem.Fill(addr, 0, 256); err != nil {
		t.Fatal(err)
	}
	return p.Run(mem, Config{Grid: [3]int{2, 1, 1}, Block: 64, Args: []uint64{addr}}, opt)
}

// TestFaults: each body does one wrong thing, and is told so.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		kind FaultKind
		body string
	}{
		{"past the end", OutOfBounds, "ld.global.u32 %r4, [%d1+4]; ret;"},
		{"before the start", OutOfBounds, "ld.global.u32 %r4, [%d0+-4]; ret;"},
		{"past shared memory", OutOfBounds, "ld.shared.u32 %r4, [%r2+256]; ret;"},
		{"odd address", Misaligned, "ld.global.u32 %r4, [%d0+2]; ret;"},
		{"vector at word", Misaligned, "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d0+4]; ret;"},
		{"shared never written", Uninitialized, "ld.shared.u32 %r4, [%r2]; ret;"},
		{"register written by some lanes", Uninitialized, "setp.lt.u32 %p0, %r0, 5; @%p0 mov.u32 %r4, 1; add.u32 %r5, %r4, 1; ret;"},
		{"all write one word", Race, "st.global.u32 [%d0], %r0; ret;"},
		{"blocks write the same words", Race, "st.global.u32 [%d1], %r0; ret;"},
		{"read of a neighbour's word", Race, "setp.eq.u32 %p0, %r3, 0; @%p0 bra L; ret; L: st.global.u32 [%d1], %r0; xor.b32 %r4, %r0, 1; mul.wide.u32 %d2, %r4, 4; add.u64 %d2, %d0, %d2; ld.global.u32 %r5, [%d2]; ret;"},
		{"shared without a barrier", Race, "st.shared.u32 [%r2], %r0; bar.sync 0; st.shared.u32 [%r2], %r3; xor.b32 %r4, %r2, 128; ld.shared.u32 %r5, [%r4]; ret;"},
		{"write after others read", Race, "st.shared.u32 [%r2], %r0; bar.sync 0; ld.shared.u32 %r5, [s]; st.shared.u32 [s], %r0; ret;"},
		{"write after the warp's lanes read", Race, ownWord + "ld.shared.u32 %r5, [%r4]; " + firstLane + "ret;"},
		{"write after lanes of two warps read", Race, ownWord + "ld.shared.u32 %r5, [s]; bar.warp.sync 0xffffffff; setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [s], %r5; ret;"},
		{"some lanes shuffle", Divergence, "setp.lt.u32 %p0, %r0, 7; @!%p0 bra L; shfl.sync.bfly.b32 %r4, %r0, 1, 31, 0xffffffff; L: ret;"},
		{"mask names too few", Divergence, "shfl.sync.bfly.b32 %r4, %r0, 1, 31, 1; ret;"},
		{"half a warp at the barrier", Divergence, "setp.lt.u32 %p0, %r0, 16; @%p0 bra L; bar.sync 0; L: ret;"},
		{"one warp leaves early", Divergence, "setp.lt.u32 %p0, %r0, 32; @%p0 ret; bar.sync 0; ret;"},
		{"warps at different barriers", Divergence, "setp.lt.u32 %p0, %r0, 32; @%p0 bra L; bar.sync 0; ret; L: bar.sync 1; ret;"},
		{"endless loop", Runaway, "L: bra L;"},
	} {
		_, err := runBody(t, c.body, Options{MaxSteps: 10000})
		var f *Fault
		if !errors.As(err, &f) || f.Kind != c.kind {
			t.Errorf("%s: %v, want %s", c.name, err, c.kind)
		} else if c.kind != Runaway && (f.Line == 0 || !strings.Contains(err.Error(), "`")) {
			t.Errorf("%s: no place in %v", c.name, err)
		}
	}
}

// TestOrderIsSeen: the orderings that make the same accesses legal.
func TestOrderIsSeen(t *testing.T) {
	for name, body := range map[string]string{
		"barrier":        "st.shared.u32 [%r2], %r0; bar.sync 0; xor.b32 %r4, %r2, 128; ld.shared.u32 %r5, [%r4]; ret;",
		"warp barrier":   "st.shared.u32 [%r2], %r0; bar.warp.sync 0xffffffff; xor.b32 %r4, %r2, 4; ld.shared.u32 %r5, [%r4]; ret;",
		"lanes read":     ownWord + "ld.shared.u32 %r5, [%r4]; bar.warp.sync 0xffffffff; " + firstLane + "ret;",
		"two barriers":   "st.shared.u32 [%r2], %r0; bar.sync 0; ld.shared.u32 %r5, [s]; bar.sync 0; st.shared.u32 [%r2], %r5; ret;",
		"atomics":        "red.global.add.u32 [%d0], 1; atom.global.max.u32 %r4, [%d0+4], %r0; ret;",
		"own words":      "setp.eq.u32 %p0, %r3, 1; @%p0 ret; st.global.u32 [%d1], %r0; ld.global.u32 %r4, [%d1]; ret;",
		"shared readers": "ld.global.u32 %r4, [%d0]; ret;",
		"loop of lanes":  "mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; setp.le.u32 %p0, %r4, %r0; @%p0 bra L; shfl.sync.idx.b32 %r5, %r4, 3, 31, 0xffffffff; ret;",
	} {
		if _, err := runBody(t, body, Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCounts(t *testing.T) {
	st, err := runBody(t, "ld.global.u32 %r4, [%d1]; ret;", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if st.LoadBytes != 2*64*4 || st.StoreBytes != 0 || st.LoadWidths[4] != 128 || st.Steps != 4*(9+2) {
		t.Errorf("%+v", st)
	}
}

func TestBadLaunch(t *testing.T) {
	m, err := ptx.Parse(head + "ret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(m.Kernels[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{
		{Grid: [3]int{1, 1, 1}, Block: 65, Args: []uint64{1}}, {Grid: [3]int{1, 1, 1}, Block: 32},
		{Grid: [3]int{0, 1, 1}, Block: 32, Args: []uint64{1}}, {Grid: [3]int{1, 65536, 1}, Block: 32, Args: []uint64{1}},
	} {
		var f *Fault
		if _, err := p.Run(NewMemory(), cfg, Options{}); !errors.As(err, &f) || f.Kind != BadLaunch {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestMemory(t *testing.T) {
	m := NewMemory()
	a, b := m.Alloc(100), m.Alloc(1)
	if a%256 != 0 || b%256 != 0 || b-a < 100+gap {
		t.Errorf("addresses %#x %#x", a, b)
	}
	if err := m.Read(make([]byte, 1), a); err == nil {
		t.Error("uninitialized byte is read")
	}
	if err := m.Write(a+90, make([]byte, 11)); err == nil {
		t.Error("write past the end")
	}
	if err := m.Free(a + 1); err == nil {
		t.Error("free inside an allocation")
	}
	if err := m.Free(a); err != nil || m.used != 1 {
		t.Errorf("free: %v, %d bytes used", err, m.used)
	}
	if err := m.Write(a, []byte{1}); err == nil {
		t.Error("write after free")
	}
}

func TestTouched(t *testing.T) {
	m, err := ptx.Parse(head + "setp.lt.u32 %p0, %r3, 1; @%p0 bra L; ret; L: ld.global.u32 %r4, [%d1]; st.global.u32 [%d1+512], %r4; ret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(m.Kernels[0])
	if err != nil {
		t.Fatal(err)
	}
	mem := NewMemory()
	addr := mem.Alloc(1024)
	if err := mem.Fill(addr, 0, 1024); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.Run(mem, Config{Grid: [3]int{2, 1, 1}, Block: 64, Args: []uint64{addr}}, Options{Trace: true}); err != nil {
			t.Fatal(err)
		}
		got := mem.Touched()
		if len(got) != 2 || got[0].Addr != addr || got[0].Write || got[1].Addr != addr+512 || !got[1].Write {
			t.Errorf("touched %+v", got)
		}
	}
}
