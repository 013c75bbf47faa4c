package kern

import "unsafe"

// Rows whose even and odd elements are stored apart: padded images that are read by taps two pixels
// apart, and the gradients that products of such taps store.

// unzipRows splits rows of n elements, lds apart in src, into those at even and at odd positions, ldd apart in even and
// odd.
func (p *Path) unzipRows(rows, n int, even, odd []float32, ldd int, src []float32, lds int) {
	for at := 0; at < n/2; at += p.vw {
		p.unzip(rows, min(p.vw, n/2-at), &even[at], &odd[at], ldd, &src[2*at], lds)
	}
	if n%2 > 0 {
		for r := range rows {
			even[r*ldd+n/2] = src[r*lds+n-1]
		}
	}
}

// unzips reports whether a kernel splits rows of type t.
func (p *Path) unzips(t Type) bool { return t == F32 || p.unzipHalves != nil }

// unzipTyped is unzipRows for elements of any type that unzips.
func (p *Path) unzipTyped(rows, n int, even, odd Buf, ldd int, src Buf, lds int) {
	if src.Type == F32 {
		p.unzipRows(rows, n, even.f32(), odd.f32(), ldd, src.f32(), lds)
		return
	}
	for at := 0; at < n/2; at += p.vw {
		p.unzipHalves(rows, min(p.vw, n/2-at), even.at(at), odd.at(at), ldd, src.at(2*at), lds)
	}
	if n%2 > 0 {
		for r := range rows {
			copy(even.From(r*ldd + n/2).Data[:2], src.From(r*lds+n-1).Data)
		}
	}
}

// zips reports whether a kernel joins rows of two phases of type t.
func (p *Path) zips(t Type) bool { return t == F32 || p.vnni != nil }

// zipRows joins rows of n elements, n apart, to rows of 2n elements, ldd apart, which alternate between even and odd.
func (p *Path) zipRows(w *worker, rows, n int, dst Buf, ldd int, even, odd Buf) {
	if dst.Type != F32 { // an element of each makes a word
		w.offs = getInts(&w.offs, 2*rows)
		apart := int(uintptr(ptr(odd.at(0))) - uintptr(ptr(even.at(0))))
		for r := range rows {
			w.offs[2*r], w.offs[2*r+1] = 2*r*n, apart+2*r*n
		}
	}
	for at := 0; at < n; at += p.vw {
		k, to := min(p.vw, n-at), (*float32)(ptr(dst.at(2*at)))
		if dst.Type == F32 {
			p.zip(rows, k, to, ldd, (*float32)(ptr(even.at(at))), (*float32)(ptr(odd.at(at))), n)
		} else {
			p.vnni.pick(2*rows, k, to, ldd/2, even.at(at), &w.offs[0])
		}
	}
}

func unzipGo(rows, n int, even, odd *float32, ldd int, src *float32, lds int) {
	evens, odds, from := unsafe.Slice(even, (rows-1)*ldd+n), unsafe.Slice(odd, (rows-1)*ldd+n), unsafe.Slice(src, (rows-1)*lds+2*n)
	for r := range rows {
		gather(evens[r*ldd:][:n], from[r*lds:], 2)
		gather(odds[r*ldd:][:n], from[r*lds+1:], 2)
	}
}

func zipGo(rows, n int, dst *float32, ldd int, even, odd *float32, lds int) {
	evens, odds, to := unsafe.Slice(even, (rows-1)*lds+n), unsafe.Slice(odd, (rows-1)*lds+n), unsafe.Slice(dst, (rows-1)*ldd+2*n)
	for r := range rows {
		scatter(to[r*ldd:], evens[r*lds:][:n], 2)
		scatter(to[r*ldd+1:], odds[r*lds:][:n], 2)
	}
}
