package ptxtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"ampc/ptx"
)

func lossCases() []Case {
	var cases []Case
	for _, n := range sizes {
		s := ptx.CrossEntropy{Rows: 5, Cols: n, In: ptx.Float16, Labels: ptx.Int64, Ignore: -100}
		cases = append(cases, entropy(s), entropyBack(s), lossSum(n), labelCount(n))
		s.Rows = 9 // which begin at every distance from a vector
		cases = append(cases, entropyFused(s))
	}
	s := ptx.CrossEntropy{Rows: 6, Cols: 1000, In: ptx.BFloat16, Labels: ptx.Int32, Smoothing: 0.125, Ignore: 3}
	big := ptx.CrossEntropy{Rows: 3, Cols: 50304, In: ptx.BFloat16, Labels: ptx.Int32, Ignore: -100}
	wide := s
	wide.Out = ptx.Float32
	wide.Rows = 7
	cases = append(cases, entropy(s), entropyBack(s), entropyBack(wide), entropy(big), entropyBack(big), lossSum(512),
		entropyFused(s), entropyFused(wide))
	big.Rows = 5 // one of which is neither ignored nor special
	odd := big
	odd.Cols, odd.In, odd.Labels = 50257, ptx.Float16, ptx.Int64
	cases = append(cases, entropyFused(big), entropyFused(odd))
	for _, n := range []int{256, 1024} { // rows of whole vectors, in registers
		cases = append(cases, entropyFused(ptx.CrossEntropy{Rows: 7, Cols: n, In: ptx.BFloat16, Labels: ptx.Int32, Ignore: 3, Weighted: n == 256}))
	}
	for _, n := range sizes[:3] {
		w := ptx.CrossEntropy{Rows: 5, Cols: n, In: ptx.Float16, Labels: ptx.Int64, Ignore: -100, Weighted: true}
		cases = append(cases, entropy(w))
		if n > 1 { // the gradient of one class is 0, whatever it weighs
			cases = append(cases, entropyBack(w))
		}
	}
	s.Weighted, wide.Weighted = true, true
	return append(cases, entropy(s), entropyBack(s), entropyBack(wide), entropyFused(s), entropyFused(wide), weightSum(7), weightSum(600))
}

// classWeights are those of s, as operands.
func classWeights(r *rand.Rand, s ptx.CrossEntropy) []Tensor {
	if !s.Weighted {
		return nil
	}
	w := New(ptx.Float32, s.Cols)
	for i := range s.Cols {
		w.Set(i, float64(float32(0.25+2*r.Float64())))
	}
	return []Tensor{w}
}

// target is the share of column c in a row with that label.
func target(s ptx.CrossEntropy, in []Tensor, label int64, c int) float64 {
	q := float64(s.Smoothing) / float64(s.Cols)
	if int64(c) == label {
		q += 1 - float64(s.Smoothing)
	}
	if s.Weighted {
		q *= in[2].At(c)
	}
	return q
}

func weightedName(s ptx.CrossEntropy, name string) string {
	if s.Weighted {
		return name + "_weighted"
	}
	return name
}

// labels draws labels with one ignored row and one outside the columns.
func labels(r *rand.Rand, s ptx.CrossEntropy) Tensor {
	t := ids(r, s.Labels, s.Rows, s.Cols)
	t.Set(0, float64(s.Ignore))
	return t
}

func entropy(s ptx.CrossEntropy) Case {
	s.Name = weightedName(s, caseName("xent_fwd_%dx%d_%s", s.Rows, s.Cols, s.In))
	return Case{
		Name: s.Name, Kernel: "CrossEntropy.Forward", Size: s.Cols, Build: s.Forward, Streams: s.Cols == 50304, Trials: 2,
		Fill: func(r *rand.Rand) []Tensor {
			x := fill(r, s.In, s.Rows*s.Cols, 3)
			l := labels(r, s)
			l.Set(s.Rows-1, float64(s.Cols)) // outside
			if s.Cols > 4 {
				x.Set(s.Cols+1, math.Inf(-1))
				x.Set(s.Cols+3, subnormal(s.In))
				l.Set(1, 2)
			}
			if s.Cols > 4 && s.Rows > 4 {
				x.Set(2*s.Cols+3, math.NaN())
				x.Set(3*s.Cols, math.Inf(1))
			}
			return slices.Concat([]Tensor{x, l}, classWeights(r, s), []Tensor{New(ptx.Float32, s.Rows), New(ptx.Float32, s.Rows), New(ptx.Float32, s.Rows)})
		},
		Check: func(in, out []Tensor) error {
			loss, top, sum := make([]float64, s.Rows), make([]float64, s.Rows), make([]float64, s.Rows)
			for row := range s.Rows {
				loss[row], top[row], sum[row] = rowLoss(s, in, row)
			}
			tol := func(row int) float64 { return lossBound(s, top[row]+sum[row]) }
			out = out[len(out)-3:]
			if err := near("loss", out[0], func(r int) float64 { return loss[r] }, tol); err != nil {
				return err
			}
			if err := near("top", out[1], func(r int) float64 { return top[r] }, func(int) float64 { return 0 }); err != nil {
				return err
			}
			return near("logsum", out[2], func(r int) float64 { return sum[r] }, tol)
		},
	}
}

func rowLoss(s ptx.CrossEntropy, in []Tensor, row int) (loss, top, logsum float64) {
	at := func(c int) float64 { return in[0].At(row*s.Cols + c) }
	top = math.Inf(-1)
	sum := 0.0
	for c := range s.Cols {
		top = math.Max(top, at(c))
	}
	for c := range s.Cols {
		sum += math.Exp(at(c) - top)
	}
	logsum = math.Log(sum)
	lse := top + logsum
	label := int64(in[1].At(row))
	switch {
	case label == s.Ignore:
		return 0, top, logsum
	case label < 0 || label >= int64(s.Cols):
		return math.NaN(), top, logsum
	}
	for c := range s.Cols {
		if q := target(s, in, label, c); q != 0 {
			loss += q * (lse - at(c))
		}
	}
	return loss, top, logsum
}

func entropyBack(s ptx.CrossEntropy) Case {
	s.Name = weightedName(s, caseName("xent_bwd_%dx%d_%s", s.Rows, s.Cols, s.In))
	if s.Out == "" {
		s.Out = s.In
	}
	n := s.Rows * s.Cols
	return Case{
		Name: s.Name, Kernel: "CrossEntropy.Backward", Size: s.Cols, Build: s.Backward, Streams: s.Cols == 50304,
		Fill: func(r *rand.Rand) []Tensor {
			x, l := rare(r, s.In, s.Rows, s.Cols, 3), labels(r, s)
			top, sum := New(ptx.Float32, s.Rows), New(ptx.Float32, s.Rows)
			w := classWeights(r, s)
			if s.Weighted {
				l.Set(s.Rows-1, float64(s.Cols)) // no column: it weighs 1
			}
			for row := range s.Rows {
				_, t, v := rowLoss(s, slices.Concat([]Tensor{x, l}, w), row)
				top.Set(row, t)
				sum.Set(row, v)
			}
			d := New(ptx.Float32, 1)
			d.Set(0, scaledLoss)
			return slices.Concat([]Tensor{x, l}, w, []Tensor{top, sum, d, New(s.Out, n)})
		},
		Check: func(in, out []Tensor) error {
			stats := in[len(in)-4:] // top, logsum, dloss, dlogits
			return checkGradients(s, in, stats[0].At, stats[1].At, out[len(out)-1])
		},
	}
}

// scaledLoss is the gradient of the loss in the cases.
const scaledLoss = 512.0

// checkGradients checks the gradients of rows with given statistics.
func checkGradients(s ptx.CrossEntropy, in []Tensor, top, logsum func(row int) float64, got Tensor) error {
	below := func(i int) float64 { return in[0].At(i) - top(i/s.Cols) - logsum(i/s.Cols) }
	totals := map[int64]float64{} // of the shares, by label
	want := func(i int) float64 {
		row, c := i/s.Cols, i%s.Cols
		label := int64(in[1].At(row))
		if label == s.Ignore {
			return 0
		}
		total, known := totals[label]
		if !known {
			for k := range s.Cols {
				total += target(s, in, label, k)
			}
			if label >= int64(s.Cols) {
				total += 1 - float64(s.Smoothing)
			}
			totals[label] = total
		}
		return (total*math.Exp(below(i)) - target(s, in, label, c)) * scaledLoss
	}
	slack := 1.0
	if s.Weighted {
		slack = 2.25 + math.Sqrt(float64(s.Cols))/4 // the largest weight, and their sum
	}
	return near("dlogits", got, want, func(i int) float64 {
		gap := min(math.Abs(below(i)), 200)
		hit := target(s, in, int64(in[1].At(i/s.Cols)), i%s.Cols)
		return slack * scaledLoss * eps32 * (4*hit + (2*gap+32)*math.Exp(-gap))
	})
}

// entropyFused is the loss of each row with its gradient.
func entropyFused(s ptx.CrossEntropy) Case {
	s.Name = weightedName(s, caseName("xent_fused_%dx%d_%s", s.Rows, s.Cols, s.In))
	if s.Out == "" {
		s.Out = s.In
	}
	trials := 100 // until each register has held the largest logit of a row
	if s.Cols > 50000 || s.Smoothing != 0 {
		trials = 8
	}
	return Case{
		Name: s.Name, Kernel: "CrossEntropy.Fused", Size: s.Cols, Build: s.Fused, Streams: s.Cols == 50304, Trials: trials, Long: s.Cols > 50000,
		Fill: func(r *rand.Rand) []Tensor {
			x, l := rare(r, s.In, s.Rows, s.Cols, 3), labels(r, s)
			l.Set(s.Rows-1, float64(s.Cols+1<<24)) // outside, also of the memory
			peak(r, s, x)
			if s.Cols == 1 && s.Rows > 4 {
				x.Set(3, 1.5) // a row with a finite loss, whose logit counts
			}
			d := New(ptx.Float32, 1)
			d.Set(0, scaledLoss)
			return slices.Concat([]Tensor{x, l}, classWeights(r, s), []Tensor{d, New(s.Out, s.Rows*s.Cols), New(ptx.Float32, s.Rows)})
		},
		Check: func(in, out []Tensor) error {
			loss, top, sum := make([]float64, s.Rows), make([]float64, s.Rows), make([]float64, s.Rows)
			for row := range s.Rows {
				loss[row], top[row], sum[row] = rowLoss(s, in, row)
			}
			out = out[len(out)-2:]
			if err := near("loss", out[1], func(r int) float64 { return loss[r] }, func(r int) float64 { return lossBound(s, top[r]+sum[r]) }); err != nil {
				return err
			}
			return checkGradients(s, in, func(r int) float64 { return top[r] }, func(r int) float64 { return sum[r] }, out[0])
		},
	}
}

// peak makes a logit of some rows so large that e^x would overflow: the first, one at an end, or any.
func peak(r *rand.Rand, s ptx.CrossEntropy, x Tensor) {
	for row := range s.Rows {
		col := r.IntN(s.Cols)
		switch r.IntN(8) {
		case 0:
			col = min(col, r.IntN(16))
		case 1:
			col = max(col, s.Cols-1-r.IntN(64))
		case 2, 3, 4:
		default:
			continue
		}
		x.Set(row*s.Cols+col, 400)
	}
}

// lossBound bounds the error of a row's loss, where lse is the logarithm of its sum of exponentials.
func lossBound(s ptx.CrossEntropy, lse float64) float64 {
	return eps32 * (64 + 4*math.Abs(lse) + math.Sqrt(float64(s.Cols)))
}

// labelCount counts labels.
func labelCount(rows int) Case {
	s := ptx.CrossEntropy{Name: caseName("xent_count_%d", rows), Rows: rows, Cols: 10, Labels: ptx.Int32, Ignore: -1}
	whole := lossSum(rows)
	return Case{
		Name: s.Name, Kernel: "CrossEntropy.LabelCount", Size: rows, Build: s.LabelCount, Trials: 6,
		Fill: func(r *rand.Rand) []Tensor {
			t := whole.Fill(r)
			return []Tensor{t[1], t[3]}
		},
		Check: func(in, out []Tensor) error {
			count := 0.0
			for i := range rows {
				if in[0].At(i) != -1 {
					count++
				}
			}
			return near("count", out[1], func(int) float64 { return count }, func(int) float64 { return 0 })
		},
	}
}

func lossSum(rows int) Case {
	s := ptx.CrossEntropy{Name: caseName("xent_sum_%d", rows), Rows: rows, Cols: 10, Labels: ptx.Int32, Ignore: -1}
	return Case{
		Name: s.Name, Kernel: "CrossEntropy.LossSum", Size: rows, Build: s.LossSum, Trials: 6,
		Fill: func(r *rand.Rand) []Tensor {
			l := ids(r, ptx.Int32, rows, 10)
			loss := fill(r, ptx.Float32, rows, 1)
			if r.IntN(2) == 0 {
				loss.Set(r.IntN(rows), []float64{math.Inf(1), math.NaN(), subnormal(ptx.Float32), math.Inf(-1)}[r.IntN(4)])
			}
			for i := range rows {
				if r.IntN(3) == 0 {
					l.Set(i, -1)
				}
			}
			return []Tensor{loss, l, New(ptx.Float32, 1), New(ptx.Float32, 1)}
		},
		Check: func(in, out []Tensor) error {
			v, slack := reference("sum", rows, 512, in[0].At)
			count := 0.0
			for i := range rows {
				if in[1].At(i) != -1 {
					count++
				}
			}
			if out[3].At(0) != count {
				return fmt.Errorf("count = %g, want %g", out[3].At(0), count)
			}
			return near("sum", out[2], func(int) float64 { return v }, func(int) float64 { return slack })
		},
	}
}

// weightSum counts by weights, one of which may not be finite.
func weightSum(rows int) Case {
	s := ptx.CrossEntropy{Name: caseName("xent_weights_%d", rows), Rows: rows, Cols: 10, Labels: ptx.Int64, Ignore: 3, Weighted: true}
	return Case{
		Name: s.Name, Kernel: "CrossEntropy.LossSum", Size: rows, Build: s.LossSum, Trials: 6,
		Fill: func(r *rand.Rand) []Tensor {
			w := classWeights(r, s)
			w[0].Set(3, math.NaN()) // of the label that does not count
			if r.IntN(2) == 0 {
				w[0].Set(4, math.Inf(1))
			}
			l := ids(r, ptx.Int64, rows, s.Cols)
			l.Set(rows-1, float64(s.Cols)) // no column: it weighs 1
			return []Tensor{fill(r, ptx.Float32, rows, 1), l, w[0], New(ptx.Float32, 1), New(ptx.Float32, 1)}
		},
		Check: func(in, out []Tensor) error {
			v, slack := reference("sum", rows, 512, in[0].At)
			count := 0.0
			for i := range rows {
				switch label := int64(in[1].At(i)); label {
				case s.Ignore:
				case int64(s.Cols):
					count++
				default:
					count += in[2].At(int(label))
				}
			}
			if math.IsInf(count, 0) {
				count = 0
			}
			if err := near("count", out[4], func(int) float64 { return count }, func(int) float64 { return 32 * eps32 * count }); err != nil {
				return err
			}
			return near("sum", out[3], func(int) float64 { return v }, func(int) float64 { return slack })
		},
	}
}
