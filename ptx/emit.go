package ptx

import "math"

// DType is an element type as stored in memory, spelled as in the .ir text.
type DType string

// The element types kernels read and write.
const (
	Float32  DType = "f32"
	Float16  DType = "f16"
	BFloat16 DType = "bf16"
	Float64  DType = "f64"
	Int32    DType = "i32"
	Int64    DType = "i64"
	Uint8    DType = "u8"
	Bool     DType = "bool"
)

// Size is the bytes of one element, 0 for an unknown type.
func (d DType) Size() int {
	switch d {
	case Float16, BFloat16:
		return 2
	case Float32, Int32:
		return 4
	case Float64, Int64:
		return 8
	case Uint8, Bool:
		return 1
	}
	return 0
}

// Low reports whether d is a 16-bit float.
func (d DType) Low() bool { return d == Float16 || d == BFloat16 }

// short forms of the operations that generators emit most often

func (b *builder) add(x, y Arg) Reg    { return b.Do("add.rn.f32", x, y) }
func (b *builder) sub(x, y Arg) Reg    { return b.Do("sub.rn.f32", x, y) }
func (b *builder) mul(x, y Arg) Reg    { return b.Do("mul.rn.f32", x, y) }
func (b *builder) div(x, y Arg) Reg    { return b.Do("div.rn.f32", x, y) }
func (b *builder) fma(x, y, z Arg) Reg { return b.Do("fma.rn.f32", x, y, z) }
func (b *builder) iadd(x, y Arg) Reg   { return b.Do("add.u32", x, y) }
func (b *builder) imul(x, y Arg) Reg   { return b.Do("mul.lo.u32", x, y) }
func (b *builder) bits(f Reg) Reg      { return b.Do("mov.b32", f) }

// float reinterprets 32 bits as a float.
func (b *builder) float(r Arg) Reg {
	f := b.reg(F32)
	b.To(f, "mov.b32", r)
	return f
}

// floatConst puts a float constant in a register.
func (b *builder) floatConst(x float32) Reg { return b.Do("mov.f32", Fl(x)) }

// at is the address base + index*size, index a u32.
func (b *builder) at(base, index Reg, size int) Reg {
	return b.Do("mad.wide.u32", index, I(size), base)
}

// special reads a special register.
func (b *builder) special(name string) Reg { return b.Do("mov.u32", Sym(name)) }

// memLetters is the PTX type for moving the raw bits of an element.
var memLetters = map[DType]string{
	Float32: "f32", Float16: "b16", BFloat16: "b16", Float64: "f64",
	Int32: "b32", Int64: "b64", Uint8: "u8", Bool: "u8",
}

// raw is the register class that holds an element's bits.
func raw(d DType) Class {
	switch d {
	case Float32:
		return F32
	case Float64:
		return F64
	case Int32:
		return B32
	case Int64:
		return B64
	}
	return B16
}

// load reads n consecutive elements at base+off in memory format, with the widest accesses. The
// caller guarantees alignment to min(16, n*size).
func (b *builder) load(base Reg, off int, d DType, n int) []Reg {
	return b.loadFrom("global", base, off, d, n)
}

func (b *builder) loadFrom(space string, base Reg, off int, d DType, n int) []Reg {
	words := b.words(d, n)
	b.loadInto(words, space, base, off, d)
	return b.elements(words, d)
}

// words makes the registers that a load of n elements writes: each holds an element, or as many small
// ones as fit into 32 bits.
func (b *builder) words(d DType, n int) []Reg {
	class := raw(d)
	if per := 4 / d.Size(); per > 1 && n >= per {
		class, n = B32, n/per
	}
	out := make([]Reg, n)
	for i := range out {
		out[i] = b.reg(class)
	}
	return out
}

// loadInto reads the elements of words with the widest accesses.
func (b *builder) loadInto(words []Reg, space string, base Reg, off int, d DType) {
	if words[0].Class == B32 {
		d = Int32
	}
	for i := 0; i < len(words); {
		k := 1
		if d.Size() >= 4 {
			k = accessLen(len(words)-i, d.Size())
		}
		addr := Addr{Base: base, Off: int64(off + i*d.Size())}
		if k == 1 {
			b.To(words[i], "ld."+space+"."+memLetters[d], addr)
		} else {
			b.To(Vec(words[i:i+k]), "ld."+space+"."+vecSuffix(k)+memLetters[d], addr)
		}
		i += k
	}
}

// elements splits words into elements in memory format.
func (b *builder) elements(words []Reg, d DType) []Reg {
	if words[0].Class == raw(d) {
		return words
	}
	var out []Reg
	for _, w := range words {
		out = append(out, b.split(w, d)...)
	}
	return out
}

// accessLen is the number of elements, out of n, in one access of at most 16 bytes: 4, 2 or 1.
func accessLen(n, size int) int {
	for _, k := range []int{4, 2} {
		if n >= k && k*size <= 16 {
			return k
		}
	}
	return 1
}

func vecSuffix(k int) string { return map[int]string{2: "v2.", 4: "v4."}[k] }

// split splits a word into its elements.
func (b *builder) split(w Reg, d DType) []Reg {
	if d.Size() == 2 {
		lo, hi := b.reg(B16), b.reg(B16)
		b.To(Vec{lo, hi}, "mov.b32", w)
		return []Reg{lo, hi}
	}
	var out []Reg
	for i := 0; i < 4; i++ {
		out = append(out, b.Do("cvt.u16.u32", b.Do("bfe.u32", w, I(8*i), I(8))))
	}
	return out
}

// store writes consecutive elements given as raw bits.
func (b *builder) store(base Reg, off int, d DType, vals []Reg) {
	b.storeTo("global", base, off, d, vals)
}

func (b *builder) storeTo(space string, base Reg, off int, d DType, vals []Reg) {
	per := 4 / d.Size()
	if per > 1 && len(vals) >= per && len(vals)%per == 0 {
		var words []Reg
		for i := 0; i < len(vals); i += per {
			words = append(words, b.join(vals[i:i+per]))
		}
		b.storeTo(space, base, off, Int32, words)
		return
	}
	for i := 0; i < len(vals); {
		k := accessLen(len(vals)-i, d.Size())
		if d.Size() < 4 {
			k = 1
		}
		addr := Addr{Base: base, Off: int64(off + i*d.Size())}
		if k == 1 {
			b.Do("st."+space+"."+memLetters[d], addr, vals[i])
		} else {
			b.Do("st."+space+"."+vecSuffix(k)+memLetters[d], addr, Vec(vals[i:i+k]))
		}
		i += k
	}
}

// join packs two 16-bit or four 8-bit elements into a word.
func (b *builder) join(v []Reg) Reg {
	if len(v) == 2 {
		w := b.reg(B32)
		b.To(w, "mov.b32", Vec(v))
		return w
	}
	w := b.Do("cvt.u32.u16", v[0])
	for i, x := range v[1:] {
		w = b.Do("or.b32", w, b.Do("shl.b32", b.Do("cvt.u32.u16", x), I(8*(i+1))))
	}
	return w
}

// widen turns stored bits into f32.
func (b *builder) widen(x Reg, d DType) Reg {
	switch d {
	case Float16:
		return b.Do("cvt.f32.f16", x)
	case BFloat16:
		return b.float(b.Do("shl.b32", b.Do("cvt.u32.u16", x), I(16)))
	case Int32:
		return b.Do("cvt.rn.f32.s32", x)
	case Int64:
		return b.Do("cvt.rn.f32.s64", x)
	case Float64:
		return b.Do("cvt.rn.f32.f64", x)
	case Uint8, Bool:
		return b.Do("cvt.rn.f32.u16", x)
	}
	return x
}

// narrow rounds f32 to the bits stored for d: to nearest even for floats, toward zero for i32.
func (b *builder) narrow(x Reg, d DType) Reg {
	switch d {
	case Float16:
		return b.Do("cvt.rn.f16.f32", x)
	case BFloat16:
		return b.toBrain(x)
	case Int32:
		return b.Do("cvt.rzi.s32.f32", x)
	case Float64:
		return b.Do("cvt.f64.f32", x)
	}
	return x
}

// toBrain rounds to bfloat16. On targets without the instruction it uses integer arithmetic.
func (b *builder) toBrain(x Reg) Reg {
	if b.fl.has(since.ampere) {
		return b.Do("cvt.rn.bf16.f32", x)
	}
	w := b.bits(x)
	odd := b.Do("bfe.u32", w, I(16), I(1))
	up := b.iadd(w, b.iadd(odd, I(0x7fff)))
	up = b.Do("selp.b32", I(0x7fff0000), up, b.Do("setp.nan.f32", x, x))
	return b.Do("cvt.u16.u32", b.Do("shr.u32", up, I(16)))
}

// loadF reads n elements and widens them to f32.
func (b *builder) loadF(base Reg, off int, d DType, n int) []Reg {
	out := b.load(base, off, d, n)
	for i := range out {
		out[i] = b.widen(out[i], d)
	}
	return out
}

// storeF rounds f32 values to d and writes them.
func (b *builder) storeF(base Reg, off int, d DType, vals []Reg) {
	out := make([]Reg, len(vals))
	for i, v := range vals {
		out[i] = b.narrow(v, d)
	}
	b.store(base, off, d, out)
}

// maxNaN is the larger of two values, NaN if either is NaN. It replaces max.NaN on targets without
// it.
func (b *builder) maxNaN(x, y Reg) Reg { return b.pick("max", x, y) }

func (b *builder) minNaN(x, y Reg) Reg { return b.pick("min", x, y) }

func (b *builder) pick(which string, x, y Reg) Reg {
	if b.fl.has(since.ampere) {
		return b.Do(which+".NaN.f32", x, y)
	}
	m := b.Do(which+".f32", x, y)
	return b.Do("selp.f32", Fl(float32(math.NaN())), m, b.Do("setp.nan.f32", x, y))
}
