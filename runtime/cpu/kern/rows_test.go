package kern

import (
	"math"
	"testing"
)

func TestSoftmax(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(9)
		for _, cols := range []int{1, 2, 7, 10, 64, 65, 200, 1000} {
			rows := 1 + d.IntN(9)
			x, y, ly := d.buf(d.typ(), rows*cols), zeros(F32, rows*cols), zeros(F32, rows*cols)
			dy, dx, ldx := d.buf(d.typ(), rows*cols), zeros(F32, rows*cols), zeros(F32, rows*cols)
			m.Softmax(y, x, rows, cols)
			m.LogSoftmax(ly, x, rows, cols)
			m.SoftmaxGrad(dx, y, dy, rows, cols)
			m.LogSoftmaxGrad(ldx, ly, dy, rows, cols)
			for r := range rows {
				sum, dot, total := 0.0, 0.0, 0.0
				for c := range cols {
					sum += math.Exp(float64(x.get(r*cols + c)))
				}
				for c := range cols {
					p, g := math.Exp(float64(x.get(r*cols+c)))/sum, float64(dy.get(r*cols+c))
					dot, total = dot+p*g, total+g
				}
				for c := range cols {
					i := r*cols + c
					p, g := math.Exp(float64(x.get(i)))/sum, float64(dy.get(i))
					near(t, "softmax", F32, i, y.get(i), p, 1e-6*p)
					near(t, "log_softmax", F32, i, ly.get(i), math.Log(p), 2e-6)
					near(t, "softmax grad", F32, i, dx.get(i), p*(g-dot), 4e-6*p)
					near(t, "log_softmax grad", F32, i, ldx.get(i), g-p*total, 1e-6*(1+math.Abs(p*total)*float64(cols)))
				}
			}
			if t.Failed() {
				t.Fatalf("%d columns", cols)
			}
		}
	})
}

// TestSoftmaxOfNaN: a NaN or +Inf logit makes its own row NaN and no other; -Inf is an ordinary zero.
func TestSoftmaxOfNaN(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		const cols = 37
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			x, y := newDice(10).buf(F32, 3*cols), zeros(F32, 3*cols)
			x.set(cols+36, float32(bad))
			x.set(3, negInf)
			m.Softmax(y, x, 3, cols)
			for i := range 3 * cols {
				if v := y.get(i); (i/cols == 1) != (v != v) && i != cols+36 {
					t.Fatalf("bad %g: element %d is %g", bad, i, v)
				}
			}
			if y.get(3) != 0 {
				t.Errorf("exp(-Inf) gave %g", y.get(3))
			}
		}
	})
}

func TestNorm(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(11)
		for round, cols := range []int{1, 3, 16, 64, 100, 257, 1024} {
			rows := 1 + d.IntN(100)
			n := &Norm{Rows: rows, Cols: cols, RMS: round%2 == 0, Eps: 1e-3, X: d.buf(d.typ(), rows*cols), Gamma: d.buf(d.typ(), cols),
				Mean: make([]float32, rows), Rstd: make([]float32, rows), Y: zeros(F32, rows*cols), DY: d.buf(d.typ(), rows*cols),
				DX: zeros(F32, rows*cols), DGamma: zeros(F32, cols), DBeta: zeros(F32, cols)}
			if round%3 != 0 {
				n.Beta = d.buf(F32, cols)
			}
			m.Norm(n)
			m.NormGrad(n)
			checkNorm(t, n)
			if t.Failed() {
				t.Fatalf("%d x %d rms=%v", rows, cols, n.RMS)
			}
		}
	})
}

func checkNorm(t *testing.T, n *Norm) {
	dgamma, dbeta := make([]float64, n.Cols), make([]float64, n.Cols)
	c := float64(n.Cols)
	for r := range n.Rows {
		row := func(b Buf, i int) float64 { return float64(b.get(r*n.Cols + i)) }
		mean, sq := 0.0, 0.0
		for i := range n.Cols {
			mean += row(n.X, i) / c
		}
		if n.RMS {
			mean = 0
		}
		for i := range n.Cols {
			sq += (row(n.X, i) - mean) * (row(n.X, i) - mean) / c
		}
		rstd := 1 / math.Sqrt(sq+float64(n.Eps))
		mg, mgx := 0.0, 0.0
		for i := range n.Cols {
			xhat, g := (row(n.X, i)-mean)*rstd, row(n.DY, i)*float64(n.Gamma.get(i))
			mg, mgx = mg+g/c, mgx+g*xhat/c
			dgamma[i] += row(n.DY, i) * xhat
			dbeta[i] += row(n.DY, i)
		}
		if n.RMS {
			mg = 0
		}
		for i := range n.Cols {
			xhat := (row(n.X, i) - mean) * rstd
			y := xhat * float64(n.Gamma.get(i))
			if !n.Beta.absent() {
				y += float64(n.Beta.get(i))
			}
			near(t, "y", F32, r*n.Cols+i, n.Y.get(r*n.Cols+i), y, 4e-6*(1+math.Abs(y)))
			dx := rstd * (row(n.DY, i)*float64(n.Gamma.get(i)) - mg - xhat*mgx)
			near(t, "dx", F32, r*n.Cols+i, n.DX.get(r*n.Cols+i), dx, 1e-5*rstd*(1+math.Abs(mgx)+math.Abs(mg)))
		}
	}
	for i := range n.Cols {
		near(t, "dgamma", F32, i, n.DGamma.get(i), dgamma[i], 1e-5*float64(n.Rows))
		near(t, "dbeta", F32, i, n.DBeta.get(i), dbeta[i], 1e-6*float64(n.Rows))
	}
}

func TestCrossEntropy(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(12)
		for i, smooth := range []float32{0, 0.1, 0, 0.1} {
			const rows, cols, ignore = 90, 37, -100
			labels := make([]int64, rows)
			for r := range labels {
				labels[r] = int64(d.IntN(cols))
			}
			labels[3], labels[7] = ignore, cols
			c := &CrossEntropy{Rows: rows, Cols: cols, X: d.buf(d.typ(), rows*cols), Labels: ints64(labels), Smoothing: smooth, Ignore: ignore, Loss: make([]float32, rows)}
			if i >= 2 {
				c.Weights = make([]float32, cols)
				for k := range c.Weights {
					c.Weights[k] = 0.25 + float32(k%5)
				}
			}
			sum, count := m.CrossEntropy(c)
			counted := 0.0
			for r, label := range labels {
				if r == 3 || r == 7 {
					continue
				}
				z := 0.0
				for i := range cols {
					z += math.Exp(float64(c.X.get(r*cols + i)))
				}
				loss := 0.0
				for i := range cols {
					q := float64(smooth) / cols
					if i == int(label) {
						q += 1 - float64(smooth)
					}
					if c.Weights != nil {
						q *= float64(c.Weights[i])
					}
					loss += q * (math.Log(z) - float64(c.X.get(r*cols+i)))
				}
				near(t, "loss", F32, r, c.Loss[r], loss, 2e-6*max(loss, 1))
				if c.Weights != nil {
					counted += float64(c.Weights[label])
				} else {
					counted++
				}
			}
			if c.Weights == nil {
				counted++ // the label outside
			}
			if !math.IsNaN(sum) || count != counted || c.Loss[3] != 0 || c.Loss[7] == c.Loss[7] {
				t.Fatalf("sum %g of %g rows, want %g, ignored %g, outside %g", sum, count, counted, c.Loss[3], c.Loss[7])
			}
		}
	})
}

func TestReduce(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(13)
		for round := range 60 {
			outer, n, inner := 1+d.IntN(4), 1+d.IntN(200), 1+d.IntN(2)*d.IntN(600)
			op := Reduction(round % 5)
			src, dst := d.buf(d.typ(), outer*n*inner), zeros(F32, outer*inner)
			m.Reduce(op, dst, src, outer, n, inner)
			for o := range outer {
				for i := range inner {
					sum, sq, hi, lo := 0.0, 0.0, math.Inf(-1), math.Inf(1)
					for k := range n {
						v := float64(src.get((o*n+k)*inner + i))
						sum, sq, hi, lo = sum+v, sq+v*v, max(hi, v), min(lo, v)
					}
					want := []float64{sum, sum / float64(n), hi, lo, sq}[op]
					near(t, "reduce", F32, o*inner+i, dst.get(o*inner+i), want, 1e-6*float64(n))
				}
			}
			if t.Failed() {
				t.Fatalf("op %d [%d %d %d] %v", op, outer, n, inner, src.Type)
			}
		}
	})
}

func TestGatherScatter(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(14)
		for _, typ := range []Type{F32, F16, BF16} {
			const rows, dim, n = 11, 70, 200
			index := make([]int32, n)
			for i := range index {
				index[i] = int32(d.IntN(rows))
			}
			table, out := d.buf(typ, rows*dim), zeros(F32, n*dim)
			m.Gather(out, table, ints32(index), dim, nil)
			want := make([]float64, rows*dim)
			for i, r := range index {
				for c := range dim {
					if got, w := out.get(i*dim+c), table.get(int(r)*dim+c); got != w {
						t.Fatalf("row %d column %d: %g, want %g", i, c, got, w)
					}
					want[int(r)*dim+c] += float64(out.get(i*dim + c))
				}
			}
			sum := zeros(typ, rows*dim)
			m.ScatterAdd(sum, out, ints32(index), dim, true)
			for i, w := range want {
				near(t, "scatter", typ, i, sum.get(i), w, 1e-4)
			}
		}
	})
}

// TestEmpty: tensors without elements are no special case for callers.
func TestEmpty(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		none, d := zeros(F32, 0), newDice(31)
		m.Gemm(&Gemm{M: 3, N: 2, K: 4, A: Mat{Buf: none, LD: 4}, B: Mat{Buf: none, LD: 2}, C: Mat{Buf: none, LD: 2}})
		m.Softmax(none, none, 0, 5)
		m.Softmax(none, none, 5, 0)
		n := &Norm{Cols: 7, X: none, Y: none, DY: none, DX: none, Gamma: d.buf(F32, 7), DGamma: d.buf(F32, 7), DBeta: d.buf(F16, 7)}
		m.Norm(n)
		m.NormGrad(n)
		for i := range 7 {
			if n.DGamma.get(i) != 0 || n.DBeta.get(i) != 0 {
				t.Errorf("norm of no rows: gradient %d is %g, %g", i, n.DGamma.get(i), n.DBeta.get(i))
			}
		}
		if sum, count := m.CrossEntropy(&CrossEntropy{Cols: 3, X: none, Labels: ints32(nil)}); sum != 0 || count != 0 {
			t.Errorf("cross entropy of no rows: %g of %g", sum, count)
		}
		out := d.buf(F32, 4)
		m.Reduce(ReduceSum, out, none, 4, 0, 1)
		m.Reduce(ReduceMax, none, none, 3, 4, 0)
		m.Gather(none, out, ints32(nil), 2, nil)
		m.ScatterAdd(out, none, ints32(nil), 2, true)
		for i := range 4 {
			if out.get(i) != 0 {
				t.Errorf("sum of nothing is %g", out.get(i))
			}
		}
		for _, groups := range []int{1, 2} {
			for _, last := range []bool{false, true} {
				c := &Conv{C: 2, K: 2, Groups: groups, In: [3]int{1, 4, 4}, Out: [3]int{1, 4, 4}, Kernel: [3]int{1, 3, 3}, Stride: [3]int{1, 1, 1},
					Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}, ChannelsLast: last, X: none, Y: none, W: d.buf(F32, 36/groups)}
				m.Conv(c)
				m.ConvInputGrad(c)
				m.ConvWeightGrad(c)
				for i := range c.W.Len() {
					if c.W.get(i) != 0 {
						t.Fatalf("weight gradient of no images is %g", c.W.get(i))
					}
				}
			}
		}
	})
}

func TestMaxTaps(t *testing.T) {
	d := newDice(32)
	for _, p := range Paths() {
		for round := range 100 {
			n, taps, before := 1+d.IntN(70), 1+d.IntN(9), d.IntN(4)
			apart := before + n + d.IntN(4) // more windows than are looked at
			x, cells := make([]float32, 50), make([]int32, apart*taps)
			for i := range x {
				if x[i] = float32(d.IntN(5)); round%3 == 0 && d.IntN(8) == 0 {
					x[i] = float32(math.NaN())
				}
			}
			for i := range cells {
				cells[i] = int32(d.IntN(len(x)))
			}
			best, index := make([]float32, n+1), make([]int32, n+1)
			p.MaxTaps(best[:n], index, x, cells[before:], apart)
			for i := range n {
				at := cells[before+i]
				for k := 1; k < taps; k++ {
					if c := cells[k*apart+before+i]; x[c] > x[at] || x[c] != x[c] && x[at] == x[at] {
						at = c
					}
				}
				if index[i] != at || !same(best[i], x[at]) {
					t.Fatalf("%s: window %d of %d over %d taps: %g at %d, want %g at %d", p.Name(), i, n, taps, best[i], index[i], x[at], at)
				}
			}
			if best[n] != 0 || index[n] != 0 {
				t.Fatalf("%s: wrote behind the last window", p.Name())
			}
		}
	}
}

func BenchmarkMaxTaps(b *testing.B) {
	const n = 14 * 14
	x, cells, best, index := make([]float32, 4*n), make([]int32, 4*n), make([]float32, n), make([]int32, n)
	for i := range n {
		for t := range 4 {
			cells[t*n+i] = int32((i/14*2+t/2)*28 + i%14*2 + t%2)
		}
	}
	for _, p := range Paths() {
		b.Run(p.Name(), func(b *testing.B) {
			for b.Loop() {
				p.MaxTaps(best, index, x, cells, n)
			}
		})
	}
}

// TestReduceNothing: an empty axis of 16-bit elements gives what it gives in f32, also after other reductions.
func TestReduceNothing(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(41)
		for op, want := range []float32{ReduceSum: 0, ReduceMax: negInf, ReduceMin: -negInf, ReduceSumSq: 0, ReduceMean: float32(math.NaN())} {
			for _, typ := range []Type{F32, F16, BF16} {
				m.Reduce(ReduceSum, zeros(F32, 300), d.buf(typ, 300*20), 300, 20, 1)
				got := d.buf(F32, 3)
				m.Reduce(Reduction(op), got, zeros(typ, 0), 3, 0, 1)
				for i := range got.Len() {
					if x := got.get(i); x != want && (x == x || want == want) {
						t.Fatalf("reduction %d of nothing in %v is %g, want %g", op, typ, x, want)
					}
				}
			}
		}
	})
}
