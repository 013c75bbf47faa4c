package kern

import "unsafe"

//go:generate go run -C ../../../internal/gen . -pkg kern -out ../../runtime/cpu/kern/kernels_amd64.s -stubs ../../runtime/cpu/kern/kernels_amd64.go -tables ../../runtime/cpu/kern/tables_amd64.go -arm64 ../../runtime/cpu/kern/kernels_arm64

// archPaths lists the vector paths that the processor and the operating system support.
func archPaths() (paths []*Path) {
	avx2, avx512, bf16 := features()
	if bf16 {
		paths = append(paths, pairPath())
	}
	if avx512 {
		paths = append(paths, avx512Path())
	}
	if avx2 {
		paths = append(paths, avx2Path())
	}
	return paths
}

// features reads CPUID: avx2 means AVX2, FMA, F16C and BMI2, avx512 F, BW, DQ and VL besides, with the registers
// enabled by the operating system, bf16 products of bf16 besides.
func features() (avx2, avx512, bf16 bool) {
	if top, _, _, _ := cpuid(0, 0); top < 7 {
		return false, false, false
	}
	_, _, c1, _ := cpuid(1, 0)
	const fma, osxsave, f16c = 1 << 12, 1 << 27, 1 << 29
	if c1&osxsave == 0 {
		return false, false, false
	}
	state, _ := xgetbv()
	sub, b7, _, _ := cpuid(7, 0)
	const has2, has512 = 1<<5 | 1<<8, 1<<16 | 1<<17 | 1<<30 | 1<<31
	avx2 = state&0x06 == 0x06 && c1&(fma|f16c) == fma|f16c && b7&has2 == has2
	avx512 = avx2 && state&0xe6 == 0xe6 && b7&has512 == has512
	if avx512 && sub >= 1 {
		more, _, _, _ := cpuid(7, 1)
		bf16 = more&(1<<5) != 0
	}
	return avx2, avx512, bf16
}

// pairPath is the AVX-512 path of processors with AVX512_BF16.
func pairPath() *Path {
	p := avx512Path()
	p.name, p.pair = "avx512bf16", pairsAVX512()
	return p
}

func avx512Path() *Path {
	p := goPath()
	p.name, p.lanes, p.mr, p.nr, p.vw, p.tw, p.kc, p.mc = "avx512", 16, 14, 32, 16, 16, 1024, 8*14*1024
	kernelsAVX512(p)
	p.probe, p.probeFlop = probeAVX512, 4*24*16*2
	return p.common()
}

func avx2Path() *Path {
	p := goPath()
	p.name, p.lanes, p.mr, p.nr, p.vw, p.tw, p.kc, p.mc = "avx2", 8, 6, 16, 8, 8, 1024, 6*6*1024
	kernelsAVX2(p)
	p.probe, p.probeFlop = probeAVX2, 4*12*8*2
	for t := range numTypes {
		p.trans[t] = wholeDepths(t, p.trans[t])
	}
	for _, t := range []Type{F16, BF16} {
		p.rows[t], p.pick[t] = wholeRows(t, p.rows[t]), wholePicks(t, p.pick[t])
		p.widen[t], p.narrow[t] = wholeWiden(t, p.widen[t]), wholeNarrow(t, p.narrow[t])
		p.scaleCheck[t] = wholeCheck(t, p.scaleCheck[t])
		p.put[t] = wholePut(t, p.put[t], p.nr)
	}
	return p.common()
}

// common completes a vector path.
func (p *Path) common() *Path {
	p.widen[F32] = func(n int, dst *float32, src *byte) { copy(unsafe.Slice(dst, n), floatsAt(src, n)) }
	p.narrow[F32] = func(n int, dst *byte, src *float32) { copy(floatsAt(dst, n), unsafe.Slice(src, n)) }
	p.ranges()
	return p
}

// philoxWords writes the words of 4*n counters, n even (state[0] is the first), and says whether it could. It calls by name: state is on the
// caller's stack and must stay there.
func philoxWords(p *Path, n int, dst *int64, state *uint32) bool {
	switch p.lanes {
	case 16:
		philoxAVX512(n, dst, state)
	case 8:
		philoxAVX2(n, dst, state)
	default:
		return false
	}
	return true
}

func wholeDepths(t Type, f transFunc) transFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, offs *int) {
		whole := k &^ 7
		if whole > 0 {
			f(whole, n, dst, ldd, src, offs)
		}
		if whole < k {
			transGo(t, k-whole, n, after(dst, whole*ldd), ldd, past(src, whole*t.Size()), offs)
		}
	}
}

func wholeRows(t Type, f rowsFunc) rowsFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, lds int) {
		whole := n &^ 7
		if whole > 0 {
			f(k, whole, dst, ldd, src, lds)
		}
		if whole < n {
			rowsGo(t, k, n-whole, after(dst, whole), ldd, past(src, whole*t.Size()), lds)
		}
	}
}

func wholePicks(t Type, f pickFunc) pickFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, offs *int) {
		whole := n &^ 7
		if whole > 0 {
			f(k, whole, dst, ldd, src, offs)
		}
		if whole < n {
			pickGo(t, k, n-whole, after(dst, whole), ldd, past(src, whole*t.Size()), offs)
		}
	}
}

func wholeCheck(t Type, f func(n int, dst, src *byte, scale float32) uint64) func(n int, dst, src *byte, scale float32) uint64 {
	return func(n int, dst, src *byte, scale float32) uint64 {
		whole := n &^ 7
		bad := f(whole, dst, src, scale)
		if whole < n {
			bad |= scaleCheckGo(t, n-whole, past(dst, 4*whole), past(src, whole*t.Size()), scale)
		}
		return bad
	}
}

func wholePut(t Type, f putFunc, nr int) putFunc {
	return func(h, n int, dst *byte, ldd int, tile *float32) {
		whole := n &^ 7
		if whole > 0 {
			f(h, whole, dst, ldd, tile)
		}
		if whole < n {
			for r := range h {
				narrowGo(t, n-whole, past(dst, (r*ldd+whole)*t.Size()), after(tile, r*nr+whole))
			}
		}
	}
}
