package kern

import "math"

// Attention by tile registers. Scores and the gradients of probabilities are products of two bf16
// operands, as in the VNNI layout. In the other products one operand is f32: probabilities or
// gradients of scores. It is split exactly into three parts of bf16, and the products of all parts
// are added. The steps of the parts follow each other, so the other operand contains each of its
// steps three times.

// amxParts is the number of bf16 values that represent one f32 value.
const amxParts = 3

// usesTiles reports whether rows [k,k+n) of v can be the bf16 operand of such products. They cannot
// if an element is subnormal or infinite, because a part of a probability is often zero.
func (x *attnHead) usesTiles(v *View, head, k, n, width int) bool {
	if x.p.amx == nil || v.Type != BF16 || width == 0 || width%amxDepth+v.Stride[2]%2 > 0 {
		return false
	}
	return x.clean(v.mat(x.b, head, k).in32Bits(), n, width/2, true)
}

// vnniColumns packs 32 columns of n rows of bf16 to words, with zeros up to whole steps. The rows of words are 32 apart.
func (p *Path) vnniColumns(dst []float32, n int, m Mat) {
	if whole := n &^ 1; whole > 0 {
		p.vnni.rows(whole, amxRows, &dst[0], amxRows, m.at(0), m.LD)
	}
	if n%2 > 0 {
		for l, half := range halvesAt(m.at((n-1)*m.LD), amxRows) {
			dst[n/2*amxRows+l] = math.Float32frombits(uint32(half))
		}
	}
	clear(dst[(n+1)/2*amxRows : ceilDiv(n, amxDepth)*2*amxSize])
}

// turnedTiles packs n rows of v from k, transposed: element i of each row is in row i of A. Every
// step is repeated for each part.
func (x *attnHead) turnedTiles(v *View, dst []float32, head, k, n, width int) {
	p, m, steps := x.p, v.mat(x.b, head, k), ceilDiv(n, amxDepth)
	words := x.w.words.get(steps * 2 * amxSize)
	x.w.offs = getInts(&x.w.offs, amxTile)
	for r := range x.w.offs {
		x.w.offs[r] = 4 * amxRows * r
	}
	for c := 0; c < width; c += amxTile {
		if c%amxRows == 0 {
			part := m
			part.Buf = m.From(c)
			p.vnniColumns(words, n, part)
		}
		for s := range steps {
			to := dst[amxParts*(c/amxTile*steps+s)*amxSize:][:amxParts*amxSize]
			p.trans[F32](amxTile, amxTile, &to[0], amxTile, bytes(&words[2*s*amxSize+c%amxRows]), &x.w.offs[0])
			for i := 1; i < amxParts; i++ {
				copy(to[i*amxSize:], to[:amxSize])
			}
		}
	}
}

// wordsByPart packs h rows of v from q as B, 32 columns after the other. Every step is repeated for
// each part.
func (x *attnHead) wordsByPart(v *View, mem *floats, q, h, width int) []float32 {
	m, steps := v.mat(x.b, x.head, q), ceilDiv(h, amxDepth)
	dst, words := mem.get(width/amxRows*steps*2*amxParts*amxSize), x.w.words.get(steps*2*amxSize)
	for c := 0; c < width; c += amxRows {
		part := m
		part.Buf = m.From(c)
		x.p.vnniColumns(words, h, part)
		for s := range steps {
			step, to := words[2*s*amxSize:][:2*amxSize], dst[(c/amxRows*steps+s)*2*amxParts*amxSize:]
			for i := range amxParts {
				copy(to[2*i*amxSize:], step)
			}
		}
	}
	return dst
}

// addSplit adds to sums, rows x 32 elements, the product of transposed tiles that have depths for
// all steps and n rows of s. If n is odd, it clears the row after them.
func (x *attnHead) addSplit(sums []float32, rows int, turned []float32, all int, s []float32, ld, n int) {
	p, steps := x.p, ceilDiv(n, amxDepth)
	words := x.w.words.get(steps * 2 * amxParts * amxSize)
	if n%2 > 0 {
		clear(s[n*ld:][:amxRows])
	}
	for i := range steps {
		pairs := min(amxTile, (n-i*amxDepth+1)/2)
		to := words[2*i*amxParts*amxSize:]
		p.amx.splitWords(pairs, &to[0], &s[i*amxDepth*ld], ld)
		for part := range amxParts {
			clear(to[2*part*amxSize+pairs*amxRows : 2*(part+1)*amxSize])
		}
	}
	p.amx.product(x.w, rows, amxRows, amxParts*steps, bytes(&turned[0]), 4*amxTile, 4*amxParts*all*amxSize, 4*amxSize, bytes(&words[0]), 4*amxRows, &sums[0], amxRows, 1)
}

// splitRows packs n rows of s, depth elements each, as A, part by part.
func (x *attnHead) splitRows(n, depth int, s []float32, ld int) []float32 {
	steps := ceilDiv(depth, amxDepth)
	tiles := x.w.words.get(ceilDiv(n, amxTile) * steps * amxParts * amxSize)
	for r := 0; r < n; r += amxTile {
		x.p.amx.splitTiles(min(amxTile, n-r), steps, depth-(steps-1)*amxDepth, &tiles[r/amxTile*steps*amxParts*amxSize], &s[r*ld], ld)
	}
	return tiles
}

// addSums adds to sum, columns of a.T rows, the product of rows done to n of s with the words of
// queries from at on.
func (g *attnGrad) addSums(s, words, sum []float32, width, k, done, n, at int) {
	depth := g.h - at
	a, steps, all := g.splitRows(n-done, depth, s[done*g.ld+at:], g.ld), ceilDiv(depth, amxDepth), ceilDiv(g.h, amxDepth)
	for c := 0; c < width; c += amxRows {
		b := words[(c/amxRows*all+at/amxDepth)*2*amxParts*amxSize:]
		g.p.amx.product(g.w, n-done, amxRows, amxParts*steps, bytes(&a[0]), 4*amxTile, 4*amxParts*steps*amxSize, 4*amxSize, bytes(&b[0]), 4*amxRows,
			&sum[c*(g.k1-g.k0)+(k-g.k0+done)*amxRows], amxRows, 1)
	}
}
