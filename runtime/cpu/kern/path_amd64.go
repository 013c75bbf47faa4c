package kern

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

//go:generate go run -C ../../../internal/gen . -pkg kern -out ../../runtime/cpu/kern/kernels_amd64.s -stubs ../../runtime/cpu/kern/kernels_amd64.go -tables ../../runtime/cpu/kern/tables_amd64.go -arm64 ../../runtime/cpu/kern/kernels_arm64 -amx ../../runtime/cpu/kern/kernels_amx_amd64 -bodies ../../runtime/cpu/kern/bodies_amd64.go -arm64bodies ../../runtime/cpu/kern/bodies_arm64.go

// archPaths lists the vector paths that the processor and the operating system support, the fastest first.
func archPaths() (paths []*Path) {
	avx2, avx512, bf16 := features()
	if avx512 {
		paths = append(paths, avx512Path())
	}
	if bf16 {
		at := len(paths)
		if fastPairs(cpuid(0, 0)) {
			at = 0
		}
		paths = slices.Insert(paths, at, bf16Path())
	}
	if bf16 && TileRegisters().Usable {
		paths = slices.Insert(paths, 0, amxPath())
	}
	if avx2 {
		paths = append(paths, avx2Path())
	}
	return paths
}

// fastPairs reports whether products of bf16 pairs are faster than those of f32, given what CPUID says of the vendor.
// AMD's cores do twice as many, Intel's 0.6 times (docs/performance.md). It is a rule and not a measurement, so that
// a program computes the same bits whenever it runs.
func fastPairs(_, b, c, d uint32) bool {
	name := binary.LittleEndian.AppendUint32(nil, b)
	name = binary.LittleEndian.AppendUint32(name, d)
	return string(binary.LittleEndian.AppendUint32(name, c)) != "GenuineIntel"
}

// features reads CPUID. avx2 means AVX2, FMA, F16C and BMI2; avx512 means F, BW, DQ and VL as well,
// with the registers enabled by the operating system; bf16 means products of bf16 as well.
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

// bf16Path is the AVX-512 path of processors with AVX512_BF16.
func bf16Path() *Path {
	p := avx512Path()
	p.name, p.vnni = "avx512bf16", vnniAVX512()
	return p
}

// amxPath is the AVX-512 path of processors with AMX_BF16.
func amxPath() *Path {
	p := bf16Path()
	p.name, p.amx = "amx", &amxKernels{amxTiles, packTileRowsAVX512, anySubnormalAVX512, anyInfiniteAVX512, splitWordsAVX512, splitTilesAVX512}
	return p
}

func avx512Path() *Path {
	p := goPath()
	p.name, p.lanes, p.mr, p.nr, p.vw, p.tw, p.kc, p.mc = "avx512", 16, 14, 32, 16, 16, 1024, 8*14*1024
	kernelsAVX512(p)
	p.pools = []poolTable{poolTableOf(poolsAVX2), poolTableOf(poolsAVX512)}
	p.probe, p.probeFlop, p.foldMost = probeAVX512, 4*24*16*2, 16*lanes
	p.composes = !RaceEnabled
	return p.common()
}

func avx2Path() *Path {
	p := goPath()
	p.name, p.lanes, p.mr, p.nr, p.vw, p.tw, p.kc, p.mc = "avx2", 8, 6, 16, 8, 8, 1024, 6*6*1024
	kernelsAVX2(p)
	p.pools = []poolTable{poolTableOf(poolsAVX2)}
	p.probe, p.probeFlop, p.foldMost = probeAVX2, 4*12*8*2, 4*lanes
	p.composes = !RaceEnabled
	return p.common()
}

// common completes a vector path.
func (p *Path) common() *Path {
	p.queries = p.nr
	if p.fetching[1] == nil {
		p.stairRows = p.queries
	}
	p.widen[F32] = func(n int, dst *float32, src *byte) { copy(unsafe.Slice(dst, n), floatsAt(src, n)) }
	p.narrow[F32] = func(n int, dst *byte, src *float32) { copy(floatsAt(dst, n), unsafe.Slice(src, n)) }
	p.ranges()
	return p
}

// philoxWords writes the words of 4*n counters, n even, from state[0] on, and reports whether it
// could. It calls kernels by name, because state is on the caller's stack and must not escape.
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
