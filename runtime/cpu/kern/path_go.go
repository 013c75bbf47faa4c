package kern

import (
	"math"
	"runtime"
	"unsafe"

	"ampc/internal/fp"
)

const lanes = 64 // partial sums of a reduction

// goPath is the plain Go path: a small register tile and one function call an element.
func goPath() *Path {
	p := &Path{name: "go", lanes: 1, mr: 4, nr: 8, vw: 4, tw: 8, kc: sumDepth, mc: 1 << 15, chain: sumDepth}
	for w := range p.tile {
		for rows := 1; rows <= p.mr; rows++ {
			p.tile[w] = append(p.tile[w], func(kc int, a, b *float32, ldb int, c *float32, ldc, cols, acc int, _ uintptr, _ int) {
				tileGo(rows, kc, a, b, ldb, c, ldc, cols, acc)
			})
		}
	}
	for t := range numTypes {
		p.rows[t] = func(k, n int, dst *float32, ldd int, src *byte, lds int) { rowsGo(t, k, n, dst, ldd, src, lds) }
		p.pick[t] = func(k, n int, dst *float32, ldd int, src *byte, offs *int) { pickGo(t, k, n, dst, ldd, src, offs) }
		p.trans[t] = func(k, n int, dst *float32, ldd int, src *byte, offs *int) { transGo(t, k, n, dst, ldd, src, offs) }
		p.widen[t] = func(n int, dst *float32, src *byte) { rowsGo(t, 1, n, dst, n, src, n) }
		p.narrow[t] = func(n int, dst *byte, src *float32) { narrowGo(t, n, dst, src) }
	}
	p.tileDefaults()
	for op := range p.unary {
		p.unary[op] = func(n int, dst, src *float32) { unaryGo(unaryRows[op].f, n, dst, src) }
	}
	for op := range p.binary {
		p.binary[op] = func(n int, dst, a, b *float32) { binaryGo(binaryRows[op].f, n, dst, a, b) }
	}
	for op := range p.ternary {
		p.ternary[op] = func(n int, dst, a, b, c *float32) { ternaryGo(ternaryRows[op].f, n, dst, a, b, c) }
	}
	p.sum, p.max, p.min, p.dot, p.sumSq = sumGo, maxGo, minGo, dotGo, sumSqGo
	p.count, p.foldChains = countGo, foldBy(sumGo)
	p.expAxpb, p.exp2Axpb, p.softGrad = expAxpbGo, exp2AxpbGo, softGradGo
	p.axpb, p.axpy, p.affine, p.normGrad = axpbGo, axpyGo, affineGo, normGradGo
	p.wino = winoGo()
	p.winoLeast.depth, p.winoLeast.rows, p.winoLeast.tiles, p.winoLeast.cubes = winoDepth, winoRows, winoTiles, winoCubes
	p.sixLeast = winoShallow
	p.queries, p.stairRows, p.rowDots, p.scaleLanes, p.softLanes, p.softLanesGrad = 64, 64, p.dotRows, p.scaleRows, p.softRows, p.softGradRows
	p.addRuns, p.unzip, p.zip, p.probe, p.probeFlop = addRunsGo, unzipGo, zipGo, probeGo, 8
	return p
}

// tileDefaults sets the epilogue kernels by the others of the path: rows of nr columns.
func (p *Path) tileDefaults() {
	nr := p.nr
	p.tileBias = func(h int, tile, x *float32) {
		t, b := unsafe.Slice(tile, h*nr), unsafe.Slice(x, nr)
		for i := range t {
			t[i] += b[i%nr]
		}
	}
	p.tileShift = func(h int, tile, x *float32) {
		t, b := unsafe.Slice(tile, h*nr), unsafe.Slice(x, h)
		for i := range t {
			t[i] += b[i/nr]
		}
	}
	for t := range numTypes {
		p.put[t] = func(h, n int, dst *byte, ldd int, tile *float32) {
			src := unsafe.Slice(tile, h*nr)
			d := Buf{t, unsafe.Slice(dst, ((h-1)*ldd+n)*t.Size())}
			for r := range h {
				p.narrow[t](n, d.at(r*ldd), &src[r*nr])
			}
		}
	}
}

// tileGo is the tile of any shape: four columns at a time, their sums in registers.
func tileGo(mr, kc int, a, b *float32, ldb int, c *float32, ldc, cols, acc int) {
	as := unsafe.Slice(a, kc*mr)
	bs := unsafe.Slice(b, (kc-1)*ldb+cols)
	cs := unsafe.Slice(c, (mr-1)*ldc+cols)
	for i := range mr {
		for j := 0; j < cols; j += 4 {
			var s [4]float32
			w := min(4, cols-j)
			if w == 4 {
				dot4Go(&s, as[i:], mr, bs[j:], ldb, kc)
			} else {
				for k := range kc {
					for x := range w {
						s[x] += float32(as[k*mr+i] * bs[k*ldb+j+x])
					}
				}
			}
			to := cs[i*ldc+j : i*ldc+j+w]
			for x := range to {
				if acc != 0 {
					s[x] += to[x]
				}
				to[x] = s[x]
			}
		}
	}
}

func dot4Go(s *[4]float32, a []float32, lda int, b []float32, ldb, kc int) {
	s0, s1, s2, s3 := s[0], s[1], s[2], s[3]
	for k := range kc {
		x, r := a[k*lda], b[k*ldb:k*ldb+4:k*ldb+4]
		s0 += float32(x * r[0])
		s1 += float32(x * r[1])
		s2 += float32(x * r[2])
		s3 += float32(x * r[3])
	}
	*s = [4]float32{s0, s1, s2, s3}
}

func rowsGo(t Type, k, n int, dst *float32, ldd int, src *byte, lds int) {
	if k == 0 || n == 0 {
		return
	}
	d := unsafe.Slice(dst, (k-1)*ldd+n)
	for r := range k {
		widenGo(t, d[r*ldd:r*ldd+n], (*byte)(unsafe.Add(unsafe.Pointer(src), r*lds*t.Size())))
	}
}

func pickGo(t Type, k, n int, dst *float32, ldd int, src *byte, offs *int) {
	if k == 0 || n == 0 {
		return
	}
	d := unsafe.Slice(dst, (k-1)*ldd+n)
	for r, o := range unsafe.Slice(offs, k) {
		widenGo(t, d[r*ldd:r*ldd+n], (*byte)(unsafe.Add(unsafe.Pointer(src), o)))
	}
}

func widenGo(t Type, d []float32, src *byte) {
	switch t {
	case F32:
		copy(d, floatsAt(src, len(d)))
	case F16:
		for i, h := range halvesAt(src, len(d)) {
			d[i] = fp.F16ToF32(h)
		}
	case BF16:
		for i, h := range halvesAt(src, len(d)) {
			d[i] = fp.BF16ToF32(h)
		}
	}
}

func narrowGo(t Type, n int, dst *byte, src *float32) {
	s := unsafe.Slice(src, n)
	switch t {
	case F32:
		copy(floatsAt(dst, n), s)
	case F16:
		d := halvesAt(dst, n)
		for i := range d {
			d[i] = fp.F16(s[i])
		}
	case BF16:
		d := halvesAt(dst, n)
		for i := range d {
			d[i] = fp.BF16(s[i])
		}
	}
}

func transGo(t Type, k, n int, dst *float32, ldd int, src *byte, offs *int) {
	if k == 0 || n == 0 {
		return
	}
	d := unsafe.Slice(dst, (k-1)*ldd+n)
	for r, o := range unsafe.Slice(offs, n) {
		row := Buf{t, unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(src), o)), k*t.Size())}
		for c := range k {
			d[c*ldd+r] = row.get(c)
		}
	}
}

func unaryGo(f func(float32) float32, n int, dst, src *float32) {
	d, s := unsafe.Slice(dst, n), unsafe.Slice(src, n)
	for i, x := range s {
		d[i] = f(x)
	}
}

func binaryGo(f func(a, b float32) float32, n int, dst, a, b *float32) {
	d, x, y := unsafe.Slice(dst, n), unsafe.Slice(a, n), unsafe.Slice(b, n)
	for i := range d {
		d[i] = f(x[i], y[i])
	}
}

func ternaryGo(f func(a, b, c float32) float32, n int, dst, a, b, c *float32) {
	d, x, y, z := unsafe.Slice(dst, n), unsafe.Slice(a, n), unsafe.Slice(b, n), unsafe.Slice(c, n)
	for i := range d {
		d[i] = f(x[i], y[i], z[i])
	}
}

// fold reduces the partial results in halves: lane i is combined with lane i+32, then i+16, and so
// on.
func fold(l *[lanes]float32, f func(a, b float32) float32) float32 {
	for h := lanes / 2; h > 0; h /= 2 {
		for i := range h {
			l[i] = f(l[i], l[i+h])
		}
	}
	return l[0]
}

func add32(a, b float32) float32 { return a + b }

func sumGo(n int, x *float32) float32 {
	var l [lanes]float32
	for i, v := range unsafe.Slice(x, n) {
		l[i%lanes] += v
	}
	return fold(&l, add32)
}

// foldBy is a foldChainsFunc that takes the sum of chains.
func foldBy(sum func(n int, x *float32) float32) foldChainsFunc {
	return func(n int, sums, chains *float32) {
		x := unsafe.Slice(chains, lanes*n)
		for i, s := 0, unsafe.Slice(sums, n); i < n; i++ {
			s[i] = sum(lanes, &x[lanes*i])
		}
	}
}

func sumSqGo(n int, x *float32, mean float32) float32 {
	var l [lanes]float32
	for i, v := range unsafe.Slice(x, n) {
		d := v - mean
		l[i%lanes] = fma32(d, d, l[i%lanes])
	}
	return fold(&l, add32)
}

func dotGo(n int, a, b *float32) float32 {
	var l [lanes]float32
	y := unsafe.Slice(b, n)
	for i, v := range unsafe.Slice(a, n) {
		l[i%lanes] += float32(v * y[i])
	}
	return fold(&l, add32)
}

func maxGo(n int, x *float32) float32 {
	m := negInf
	for _, v := range unsafe.Slice(x, n) {
		m = max(m, v)
	}
	return m
}

func minGo(n int, x *float32) float32 {
	m := -negInf
	for _, v := range unsafe.Slice(x, n) {
		m = min(m, v)
	}
	return m
}

func expAxpbGo(n int, dst, src *float32, a, b float32) {
	d := unsafe.Slice(dst, n)
	for i, v := range unsafe.Slice(src, n) {
		d[i] = float32(math.Exp(float64(fma32(a, v, b))))
	}
}

func exp2AxpbGo(n int, dst, src *float32, a, b float32) {
	d := unsafe.Slice(dst, n)
	for i, v := range unsafe.Slice(src, n) {
		d[i] = float32(math.Exp2(float64(fma32(a, v, b))))
	}
}

func softGradGo(n int, dst, dp, prob *float32, a, b float32) {
	d, p := unsafe.Slice(dst, n), unsafe.Slice(prob, n)
	for i, v := range unsafe.Slice(dp, n) {
		d[i] = float32((v+b)*p[i]) * a
	}
}

func axpbGo(n int, dst, src *float32, a, b float32) {
	d := unsafe.Slice(dst, n)
	for i, v := range unsafe.Slice(src, n) {
		d[i] = fma32(a, v, b)
	}
}

func axpyGo(n int, dst, src, y *float32, a float32) {
	d, s := unsafe.Slice(dst, n), unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(src, n) {
		d[i] = fma32(a, v, s[i])
	}
}

func affineGo(n int, dst, src, gamma, beta *float32, rstd, mean float32) {
	d, g, b := unsafe.Slice(dst, n), unsafe.Slice(gamma, n), unsafe.Slice(beta, n)
	for i, v := range unsafe.Slice(src, n) {
		d[i] = fma32(float32(float32(v-mean)*rstd), g[i], b[i])
	}
}

func normGradGo(n int, dst, dy, xhat *float32, a, b, c float32) {
	d, h := unsafe.Slice(dst, n), unsafe.Slice(xhat, n)
	for i, v := range unsafe.Slice(dy, n) {
		d[i] = fma32(a, v, fma32(b, h[i], c))
	}
}

func addRunsGo(rows, runs int, dst, part *float32, row int, outer *int, step int, starts, lengths *int) {
	at, lens, to := unsafe.Slice(starts, runs), unsafe.Slice(lengths, runs), unsafe.Slice(outer, (rows-1)*step/8+1)
	for i := range rows {
		from := i * row
		for j, l := range lens {
			d := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(dst), to[i*step/8]+at[j])), l)
			for x, v := range unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(part), from)), l) {
				d[x] += v
			}
			from += 4 * l
		}
	}
}

// probeGo is a chain of four multiply-adds in registers, the fastest that scalar code can be.
func probeGo(iters int) {
	var s [4]float32
	x, y := float32(iters), float32(0.5)
	for range iters {
		s[0] += x * y
		s[1] += x * y
		s[2] += x * y
		s[3] += x * y
	}
	runtime.KeepAlive(s)
}
