package eval

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"ampc/internal/philox"
	"ampc/ir"
)

// draw evaluates one random row for seed 7, attempt 3, micro-batch 2, site 5.
func draw(t *testing.T, op ir.Op, a ir.Attrs, in ...*Tensor) *Tensor {
	t.Helper()
	b := ir.NewBuilder("draw")
	env := map[string]*Tensor{"seed": Ints(ir.I64, nil, 7), "attempt": Ints(ir.I32, nil, 3), "micro": Ints(ir.I32, nil, 2)}
	var vs []*ir.Value
	for i, x := range in {
		env[operandName(i)] = x
		vs = append(vs, b.Declare(ir.Input, operandName(i), x.Type, nil, nil))
	}
	for _, name := range []string{"seed", "attempt", "micro"} {
		vs = append(vs, b.Declare(ir.Input, name, env[name].Type, nil, nil))
	}
	y := b.Emit(op, vs, a.With("rng", 5))[0]
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	r, err := Run(b.Graph(), env, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Value(y)
}

var site = philox.Draw{Seed: 7, Attempt: 3, Micro: 2, Site: 5}

func TestUniformIsTheLowBitsOfTheWord(t *testing.T) {
	y := draw(t, ir.OpUniform, ir.A("shape", []int64{33}, "lo", -1.0, "hi", 3.0))
	for i, got := range y.F {
		if want := float64(site.Word(int64(i))&(1<<24-1))*0x1p-24*4 - 1; got != float64(float32(want)) {
			t.Fatalf("element %d is %g, want %g", i, got, want)
		}
	}
}

func TestNormalInvertsTheDistribution(t *testing.T) {
	const n = 1 << 15
	y := draw(t, ir.OpNormal, ir.A("shape", []int64{n}))
	mean, square, worst := 0.0, 0.0, 0.0
	for i, got := range y.F {
		w := site.Word(int64(i))
		tail := (float64(w&(1<<23-1)) + 0.5) * 0x1p-24
		want := math.Sqrt2 * math.Erfinv(1-2*tail)
		if w>>31 == 1 {
			want = -want
		}
		worst = math.Max(worst, math.Abs(got-want)/math.Max(math.Abs(want), 1))
		mean += got / n
		square += got * got / n
	}
	if worst > 1e-6 {
		t.Errorf("the inverse is off by %g", worst)
	}
	if math.Abs(mean) > 4/math.Sqrt(n) || math.Abs(square-1) > 4*math.Sqrt(2.0/n) {
		t.Errorf("mean %g, variance %g", mean, square-mean*mean)
	}
	t.Logf("worst error of the inverse: %.2g", worst)
}

func TestDropoutDropsWhatItsGradientDrops(t *testing.T) {
	const n = 4000
	ones := New(ir.T(ir.F32, n))
	for i := range ones.F {
		ones.F[i] = 1
	}
	y := draw(t, ir.OpDropout, ir.A("p", 0.25), ones)
	g := draw(t, ir.OpDropoutGrad, ir.A("p", 0.25), ones)
	zeros := 0
	for i := range y.F {
		if y.F[i] != g.F[i] || y.F[i] != 0 && y.F[i] != float64(float32(1/0.75)) {
			t.Fatalf("element %d: %g forward, %g backward", i, y.F[i], g.F[i])
		}
		if y.F[i] == 0 {
			zeros++
		}
	}
	if d := math.Abs(float64(zeros)/n - 0.25); d > 4*math.Sqrt(0.25*0.75/n) {
		t.Errorf("%d of %d dropped", zeros, n)
	}
	for _, p := range []float64{0, 1} {
		for i, v := range draw(t, ir.OpDropout, ir.A("p", p), ones).F {
			if v != 1-p {
				t.Fatalf("p=%g: element %d is %g", p, i, v)
			}
		}
	}
}

func TestBernoulliFollowsP(t *testing.T) {
	const n = 4000
	sum := 0.0
	for _, v := range draw(t, ir.OpBernoulli, ir.A("shape", []int64{n}, "p", 0.1)).F {
		sum += v
	}
	if math.Abs(sum/n-0.1) > 4*math.Sqrt(0.09/n) {
		t.Errorf("%g of %d are 1", sum, n)
	}
}

func TestRandomRows(t *testing.T) {
	seed, attempt := Ints(ir.I64, nil, 7), Ints(ir.I32, nil, 3)
	checkRows(t, []rowCase{
		{op: ir.OpDropout, in: []*Tensor{normal(20), seed, attempt}, attrs: ir.A("rng", 1)},
		{op: ir.OpDropoutGrad, in: []*Tensor{normal(20), seed, attempt}, attrs: ir.A("rng", 1)},
		{op: ir.OpUniform, in: []*Tensor{seed, attempt}, attrs: ir.A("rng", 1, "shape", []int64{3})},
		{op: ir.OpNormal, in: []*Tensor{seed, attempt}, attrs: ir.A("rng", 1, "shape", []int64{3})},
		{op: ir.OpBernoulli, in: []*Tensor{seed, attempt}, attrs: ir.A("rng", 1, "shape", []int64{3})},
	})
}

func TestCollectiveRows(t *testing.T) {
	one := ir.A("ranks", 1)
	checkRows(t, []rowCase{
		{op: ir.OpAllReduce, in: []*Tensor{normal(4)}, attrs: one},
		{op: ir.OpAllGather, in: []*Tensor{normal(4)}, attrs: one},
		{op: ir.OpReduceScatter, in: []*Tensor{normal(4)}, attrs: one.With("op", "mean")},
	})
}

// Gathering joins the ranks' parts along an axis; what is scattered is each rank's part of the sum.
func TestGatherAndScatterOnRanks(t *testing.T) {
	g, err := ir.Parse("ranks.ir", []byte(`graph @ranks {
  input %x : f32[2,3]
forward:
  %rows = all_gather %x {ranks=3 axis=0 seq=1} : f32[6,3]
  %columns = all_gather %x {ranks=3 axis=1 seq=2} : f32[2,9]
  %part = reduce_scatter %x {ranks=3 axis=1 seq=3} : f32[2,1]
  return %rows, %columns, %part
}
`))
	if err != nil {
		t.Fatal(err)
	}
	env, feeds := make([]map[string]*Tensor, 3), make([][]map[string]*Tensor, 3)
	for r := range 3 {
		x, at := New(ir.T(ir.F32, 2, 3)), float64(10*r)
		copy(x.F, []float64{at, at + 1, at + 2, at + 3, at + 4, at + 5})
		env[r], feeds[r] = map[string]*Tensor{}, []map[string]*Tensor{{"x": x}}
	}
	results, err := Ranks(slices.Repeat([]*ir.Graph{g}, 3), env, feeds, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for r, res := range results {
		got := fmt.Sprint(res.Value(g.Return[0]).F, res.Value(g.Return[1]).F, res.Value(g.Return[2]).F)
		want := "[0 1 2 3 4 5 10 11 12 13 14 15 20 21 22 23 24 25] [0 1 2 10 11 12 20 21 22 3 4 5 13 14 15 23 24 25] " +
			fmt.Sprint([]float64{float64(30 + 3*r), float64(39 + 3*r)})
		if got != want {
			t.Errorf("rank %d has %s, want %s", r, got, want)
		}
	}
}
