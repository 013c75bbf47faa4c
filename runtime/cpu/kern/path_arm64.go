package kern

import "unsafe"

// archPaths lists the NEON path, which every arm64 processor has.
func archPaths() []*Path { return []*Path{neonPath()} }

// neonPath uses Go loops around the conversions of whole vectors and has no kernels for products of
// few rows.
func neonPath() *Path {
	p := goPath()
	p.name, p.lanes, p.mr, p.nr, p.vw, p.tw, p.kc, p.mc = "neon", 4, 8, 12, 4, 4, 256, 24*8*256
	p.queries, p.stairRows = 60, 60
	p.tileDefaults()
	p.tile = [2][]tileFunc{
		{tile1x4NEON, tile2x4NEON, tile3x4NEON, tile4x4NEON, tile5x4NEON, tile6x4NEON, tile7x4NEON, tile8x4NEON},
		{tile1x12NEON, tile2x12NEON, tile3x12NEON, tile4x12NEON, tile5x12NEON, tile6x12NEON, tile7x12NEON, tile8x12NEON},
	}
	p.trans = [numTypes]transFunc{F32: fourTrans(F32, transF32NEON), F16: fourTrans(F16, transF16NEON), BF16: fourTrans(BF16, transBF16NEON)}
	p.widen[F16], p.widen[BF16] = wholeWiden(F16, widenF16NEON), wholeWiden(BF16, widenBF16NEON)
	p.narrow[F16] = wholeNarrow(F16, narrowF16NEON)
	for _, t := range []Type{F16, BF16} {
		p.rows[t] = rowsOf(t, p.widen[t])
	}
	kernelsNEON(p)
	p.foldChains = foldBy(p.sum)
	p.ranges()
	p.wino = nil // transforms in Go would take longer than the products they save
	p.composes = !RaceEnabled && len(executables) > 0
	p.probe, p.probeFlop = probeNEON, 24*4*2
	return p
}

// fourTrans is a transFunc: f for four lanes and depths by fours, Go for the rest.
func fourTrans(t Type, f func(k int, dst *float32, ldd int, src *byte, offs *int)) transFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, offs *int) {
		whole := k &^ 3
		if n < 4 {
			whole = 0
		}
		if whole > 0 {
			f(whole, dst, ldd, src, offs)
		}
		if whole < k {
			transGo(t, k-whole, n, after(dst, whole*ldd), ldd, byteAfter(src, whole*t.Size()), offs)
		}
	}
}

// rowsOf is a rowsFunc that widens row by row.
func rowsOf(t Type, widen func(n int, dst *float32, src *byte)) rowsFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, lds int) {
		for r := range k {
			widen(n, (*float32)(unsafe.Add(unsafe.Pointer(dst), 4*r*ldd)), byteAfter(src, r*lds*t.Size()))
		}
	}
}

func philoxWords(*Path, int, *int64, *uint32) bool { return false }

// NEON kernels for halves process a multiple of 8 elements; Go processes the rest.

func wholeWiden(t Type, f func(n int, dst *float32, src *byte)) func(n int, dst *float32, src *byte) {
	return func(n int, dst *float32, src *byte) {
		whole := n &^ 7
		if whole > 0 {
			f(whole, dst, src)
		}
		if whole < n {
			rowsGo(t, 1, n-whole, after(dst, whole), n, byteAfter(src, whole*t.Size()), n)
		}
	}
}

func wholeNarrow(t Type, f func(n int, dst *byte, src *float32)) func(n int, dst *byte, src *float32) {
	return func(n int, dst *byte, src *float32) {
		whole := n &^ 7
		if whole > 0 {
			f(whole, dst, src)
		}
		if whole < n {
			narrowGo(t, n-whole, byteAfter(dst, whole*t.Size()), after(src, whole))
		}
	}
}

func byteAfter(p *byte, n int) *byte { return (*byte)(unsafe.Add(unsafe.Pointer(p), n)) }
