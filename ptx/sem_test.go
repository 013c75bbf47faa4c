package ptx

import (
	"math"
	"testing"
)

// TestTableIsSane walks every row: a compute row computes, slots name known types.
func TestTableIsSane(t *testing.T) {
	for name, op := range ops {
		needsEval := op.Kind == Compute || op.Kind == Atomic || op.Kind == Reduction || op.Kind == Redux
		if needsEval != (op.Eval != nil) {
			t.Errorf("%s: kind %d, has meaning: %v", name, op.Kind, op.Eval != nil)
		}
		for i, s := range op.Slots {
			if _, ok := typeInfo[s.Type]; !ok {
				t.Errorf("%s: operand %d has unknown type %q", name, i+1, s.Type)
			}
		}
	}
	if n := len(ops); n < 400 {
		t.Errorf("only %d instructions", n)
	}
}

// eval runs one instruction's meaning.
func eval(t *testing.T, name string, args ...uint64) uint64 {
	t.Helper()
	op := ops[name]
	if op == nil {
		t.Fatalf("no instruction %s", name)
	}
	var a [4]uint64
	copy(a[:], args)
	return op.Eval(a[0], a[1], a[2], a[3])
}

func fbits(f float32) uint64 { return uint64(math.Float32bits(f)) }

func TestIntegerMeaning(t *testing.T) {
	neg := func(x int32) uint64 { return uint64(uint32(x)) }
	for _, c := range []struct {
		name string
		args []uint64
		want uint64
	}{
		{"add.u32", []uint64{0xffffffff, 2}, 1},
		{"sub.u16", []uint64{0, 1}, 0xffff},
		{"mul.hi.u32", []uint64{0xffffffff, 0xffffffff}, 0xfffffffe},
		{"mul.hi.s32", []uint64{neg(-2), 3}, 0xffffffff},
		{"mul.hi.u64", []uint64{1 << 63, 4}, 2},
		{"mul.hi.s64", []uint64{^uint64(0), 5}, ^uint64(0)},
		{"mul.wide.u32", []uint64{0xffffffff, 2}, 0x1fffffffe},
		{"mul.wide.s32", []uint64{neg(-3), 5}, ^uint64(14)},
		{"mad.wide.u32", []uint64{3, 4, 1 << 40}, 1<<40 + 12},
		{"div.s32", []uint64{neg(-7), 2}, neg(-3)},
		{"rem.s32", []uint64{neg(-7), 2}, neg(-1)},
		{"div.u64", []uint64{^uint64(0), 2}, 1<<63 - 1},
		{"min.u64", []uint64{1 << 63, 1}, 1},
		{"min.s64", []uint64{1 << 63, 1}, 1 << 63},
		{"max.s16", []uint64{0xffff, 1}, 1},
		{"shl.b32", []uint64{1, 32}, 0},
		{"shl.b32", []uint64{1, 31}, 1 << 31},
		{"shr.s32", []uint64{neg(-8), 40}, 0xffffffff},
		{"shr.u32", []uint64{neg(-8), 28}, 0xf},
		{"shf.l.wrap.b32", []uint64{0x80000000, 1, 1}, 3},
		{"shf.r.wrap.b32", []uint64{1, 3, 1}, 0x80000000},
		{"bfe.u32", []uint64{0xabcd1234, 8, 8}, 0x12},
		{"bfe.s32", []uint64{0x8000, 8, 8}, 0xffffff80},
		{"popc.b32", []uint64{0xf0f0}, 8},
		{"clz.b32", []uint64{1}, 31},
		{"prmt.b32", []uint64{0x33221100, 0x77665544, 0x7531}, 0x77553311},
		{"cvt.s64.s32", []uint64{neg(-1)}, ^uint64(0)},
		{"cvt.u32.u8", []uint64{0x1ff}, 0xff},
		{"setp.lt.s32", []uint64{neg(-1), 0}, 1},
		{"setp.lt.u32", []uint64{neg(-1), 0}, 0},
		{"setp.ge.u64", []uint64{1 << 63, 1}, 1},
		{"selp.b32", []uint64{5, 6, 0}, 6},
		{"atom.global.cas.b32", []uint64{5, 5, 9}, 9},
		{"atom.global.cas.b32", []uint64{4, 5, 9}, 4},
	} {
		if got := eval(t, c.name, c.args...); got != c.want {
			t.Errorf("%s %x = %#x, want %#x", c.name, c.args, got, c.want)
		}
	}
}

func TestFloatMeaning(t *testing.T) {
	nan, inf := fbits(float32(math.NaN())), fbits(float32(math.Inf(1)))
	for _, c := range []struct {
		name string
		args []uint64
		want uint64
	}{
		{"add.rn.f32", []uint64{inf, fbits(float32(math.Inf(-1)))}, 0x7fffffff},
		{"min.f32", []uint64{nan, fbits(2)}, fbits(2)},
		{"max.NaN.f32", []uint64{nan, fbits(2)}, 0x7fffffff},
		{"max.f32", []uint64{1 << 31, 0}, 0},
		{"min.f32", []uint64{0, 1 << 31}, 1 << 31},
		{"copysign.f32", []uint64{1 << 31, fbits(3)}, fbits(-3)},
		{"setp.ne.f32", []uint64{nan, fbits(1)}, 0},
		{"setp.neu.f32", []uint64{nan, fbits(1)}, 1},
		{"setp.num.f32", []uint64{fbits(1), fbits(1)}, 1},
		{"testp.finite.f32", []uint64{inf}, 0},
		{"cvt.rzi.s32.f32", []uint64{fbits(-1e10)}, 0x80000000},
		{"cvt.rzi.u32.f32", []uint64{fbits(-3)}, 0},
		{"cvt.rni.s32.f32", []uint64{fbits(2.5)}, 2},
		{"cvt.rzi.s32.f32", []uint64{nan}, 0},
		{"cvt.rn.f16.f32", []uint64{fbits(65520)}, 0x7c00},
		{"cvt.rn.bf16.f32", []uint64{nan}, 0x7fff},
		{"cvt.rn.f16x2.f32", []uint64{fbits(1), fbits(2)}, 0x3c004000},
		{"cvt.rn.f32.u64", []uint64{1 << 63}, fbits(1 << 63)},
		{"sqrt.rn.f32", []uint64{fbits(2)}, fbits(float32(math.Sqrt2))},
	} {
		if got := eval(t, c.name, c.args...); got != c.want {
			t.Errorf("%s %x = %#x, want %#x", c.name, c.args, got, c.want)
		}
	}
}

// TestFMA32 compares with a sum carried in 128 exact bits' worth of big arithmetic: cases where
// rounding twice would go wrong.
func TestFMA32(t *testing.T) {
	// a*b = 1 + 2^-23 + 2^-24-ish tails: pick a tie of f32 broken only by a tiny addend.
	a, b := float32(1+0x1p-12), float32(1+0x1p-12) // 1 + 2^-11 + 2^-24
	tie := float32(0x1p-80)
	if got, want := fma32(a, b, tie), float32(1+0x1p-11+0x1p-23); got != want {
		t.Errorf("upward tie break: %x, want %x", got, want)
	}
	if got, want := fma32(a, b, -tie), float32(1+0x1p-11); got != want {
		t.Errorf("downward tie break: %x, want %x", got, want)
	}
	if got := fma32(float32(math.Inf(1)), 0, 1); got == got {
		t.Errorf("Inf*0+1 = %v", got)
	}
	if got := fma32(0x1p-140, 0.5, 0x1p-149); got != 0x1p-141+0x1p-149 {
		t.Errorf("subnormal: %x", got)
	}
}
