package gputest

import (
	"math"
	"testing"

	"ampc/cuda"
	"ampc/ptx/ptxtest"
)

// attention has the reference of the composite graphs, over contiguous tensors, one batch item.
type attention struct{ cuda.Attention }

// heads calls f for each head with the function that reads element (i, d) of that head of a tensor.
func (a attention) heads(f func(h int, at func(x ptxtest.Tensor, rows, i, d int) num)) {
	for h := range int(a.H) {
		f(h, func(x ptxtest.Tensor, rows, i, d int) num { return exact(x.At((h*rows+i)*int(a.D) + d)) })
	}
}

// seen is the number of keys that row i attends to.
func (a attention) seen(i int) int {
	if a.Causal {
		return i + 1
	}
	return int(a.Skv)
}

// scores are those of row i, scaled.
func (a attention) scores(q, k ptxtest.Tensor, i int, at func(x ptxtest.Tensor, rows, i, d int) num) []num {
	s := make([]num, a.seen(i))
	for j := range s {
		s[j] = dot(int(a.D), func(d int) (x, y num) { return at(q, int(a.Sq), i, d), at(k, int(a.Skv), j, d) }).times(exact(float64(a.Scale)))
	}
	return s
}

// logSum is max + log Σ exp of scores. Engines go through keys in blocks of 16 or more, and scale what
// they have so far with each.
func logSum(s []num) num {
	top, far, off := math.Inf(-1), 0.0, 0.0
	for _, x := range s {
		top, off = math.Max(top, x.v), math.Max(off, x.e)
	}
	sum := 0.0
	for _, x := range s {
		sum += math.Exp(x.v - top)
		far = math.Max(far, top-x.v)
	}
	blocks := float64(len(s)+15) / 16
	relative := float64(len(s)+1)*unit + (blocks+1)*(4+2*far)*unit
	v := top + math.Log(sum)
	return num{v, off + relative + 4*unit*(math.Abs(top)+math.Abs(v)+1)}
}

// share is e^(score - logSum).
func share(score, sum num) num {
	return num{score.v - sum.v, score.e + sum.e + unit*(score.most()+sum.most())}.exp()
}

// checkForward checks o and the statistics of q, k, v, o, statistics.
func (a attention) checkForward(t *testing.T, bufs []ptxtest.Tensor) {
	q, k, v := bufs[0], bufs[1], bufs[2]
	var o, stats []num
	a.heads(func(_ int, at func(x ptxtest.Tensor, rows, i, d int) num) {
		for i := range int(a.Sq) {
			s := a.scores(q, k, i, at)
			sum := logSum(s)
			stats = append(stats, sum)
			for j := range s {
				s[j] = share(s[j], sum).stored(q.DType)
			}
			for d := range int(a.D) {
				o = append(o, dot(len(s), func(j int) (x, y num) { return s[j], at(v, int(a.Skv), j, d) }))
			}
		}
	})
	within(t, t.Name()+", forward", bufs[3], inOrder(len(o)), o)
	within(t, t.Name()+", statistics", bufs[4], inOrder(len(stats)), stats)
}

// checkBackward checks dq, dk and dv of q, k, v, o, do, statistics, dq, dk, dv.
func (a attention) checkBackward(t *testing.T, bufs []ptxtest.Tensor) {
	q, k, v, o, do, stats := bufs[0], bufs[1], bufs[2], bufs[3], bufs[4], bufs[5]
	sq, skv, width := int(a.Sq), int(a.Skv), int(a.D)
	var dq, dk, dv []num
	a.heads(func(h int, at func(x ptxtest.Tensor, rows, i, d int) num) {
		p, ds := make([][]num, sq), make([][]num, sq)
		for i := range sq {
			total := dot(width, func(d int) (x, y num) { return at(do, sq, i, d), at(o, sq, i, d) })
			p[i] = a.scores(q, k, i, at)
			ds[i] = make([]num, len(p[i]))
			for j := range p[i] {
				p[i][j] = share(p[i][j], exact(stats.At(h*sq+i)))
				dp := dot(width, func(d int) (x, y num) { return at(do, sq, i, d), at(v, skv, j, d) })
				total := num{-total.v, total.e}
				ds[i][j] = dp.plus(total).times(p[i][j].stored(q.DType)).times(exact(float64(a.Scale))).stored(q.DType)
				p[i][j] = p[i][j].stored(q.DType)
			}
			for d := range width {
				dq = append(dq, dot(len(ds[i]), func(j int) (x, y num) { return ds[i][j], at(k, skv, j, d) }))
			}
		}
		for j := range skv {
			first := 0
			if a.Causal {
				first = j
			}
			for d := range width {
				dk = append(dk, dot(sq-first, func(i int) (x, y num) { return ds[first+i][j], at(q, sq, first+i, d) }))
				dv = append(dv, dot(sq-first, func(i int) (x, y num) { return p[first+i][j], at(do, sq, first+i, d) }))
			}
		}
	})
	for i, want := range [][]num{dq, dk, dv} {
		within(t, t.Name()+", gradient of "+"qkv"[i:i+1], bufs[6+i], inOrder(len(want)), want)
	}
}

// inOrder is 0, 1, … n-1.
func inOrder(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	return at
}

// checkConv checks the tensor that a convolution over two dimensions, channels last, computes from the
// other two.
func checkConv(t *testing.T, c *cuda.Conv, bufs []ptxtest.Tensor) {
	place := func(d []int64, n, ch, y, x int64) int { return int(((n*d[2]+y)*d[3]+x)*d[1] + ch) }
	result := map[cuda.DnnKind]int{cuda.DnnConvData: 0, cuda.DnnConvFilter: 1, cuda.DnnConv: 2}[c.Kind]
	terms := make([][][2]num, bufs[result].Len())
	for i := range bufs[2].Len() {
		o, rest := int64(i)%c.Y[1], int64(i)/c.Y[1]
		x, y, n := rest%c.Y[3], rest/c.Y[3]%c.Y[2], rest/c.Y[3]/c.Y[2]
		for ky := range c.W[2] {
			for kx := range c.W[3] {
				atY, atX := y*c.Shape.Strides[0]-c.Shape.Pads[0]+ky, x*c.Shape.Strides[1]-c.Shape.Pads[1]+kx
				if atY < 0 || atX < 0 || atY >= c.X[2] || atX >= c.X[3] {
					continue
				}
				for ch := range c.X[1] {
					at := [3]int{place(c.X, n, ch, atY, atX), place(c.W, o, ch, ky, kx), i}
					var pair [2]num
					for k, side := 0, 0; side < 3; side++ {
						if side != result {
							pair[k] = exact(bufs[side].At(at[side]))
							k++
						}
					}
					terms[at[result]] = append(terms[at[result]], pair)
				}
			}
		}
	}
	want := make([]num, len(terms))
	for i, list := range terms {
		want[i] = dot(len(list), func(k int) (a, b num) { return list[k][0], list[k][1] })
	}
	within(t, t.Name(), bufs[result], inOrder(len(want)), want)
}
