package kern

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// sixConv is a convolution of bf16 operands that F(4x4,3x3) can do, of any size.
func sixConv(d dice, i int) *Conv {
	c := winoConv(d, 2*i+1) // of images
	c.X, c.W, c.Y = d.buf(BF16, c.X.Len()), d.buf(BF16, c.W.Len()), d.buf(BF16, c.Y.Len())
	return c
}

// onSix runs f on the paths that have F(4x4,3x3), with a machine that uses it for every convolution that it can compute.
func onSix(t *testing.T, f func(t *testing.T, m *Machine)) {
	onPaths(t, func(t *testing.T, m *Machine) {
		if m.six == nil || m.amx != nil {
			t.Skip("this path has no F(4x4,3x3)")
		}
		m = sixing(m.Path, m.pool.Workers())
		defer m.Close()
		f(t, m)
	})
}

func sixing(p *Path, workers int) *Machine {
	forced := *p
	forced.sixLeast = -1
	return New(&forced, workers)
}

// sixTimes is the bound of the errors of F(4x4,3x3), by the coefficients of its transforms, in those of F(2x2,3x3) with
// tiles of six by six pixels; see tileBounds.
const sixTimes = 9

// TestSix: F(4x4,3x3) and F(3x3,4x4) give what the definition gives, within a fiftieth of the bound of their transforms.
func TestSix(t *testing.T) {
	d, list := newDice(12), make([]*Conv, rounds(40))
	for i := range list {
		list[i] = sixConv(d, i)
	}
	cases := solve(list)
	onSix(t, func(t *testing.T, m *Machine) {
		for i, c := range cases {
			fwd, dx, dw := *c.Conv, *c.Conv, *c.Conv
			typ := []Type{F32, BF16, F16}[i%3]
			fwd.Y, dx.X, dw.W = zeros(typ, c.Y.Len()), zeros(typ, c.X.Len()), zeros(typ, c.W.Len())
			m.Conv(&fwd)
			m.ConvInputGrad(&dx)
			m.ConvWeightGrad(&dw)
			y, x, w := c.tileBounds(sixStep)
			c.within(t, "y", fwd.Y, c.y, y, 9*c.C)
			c.within(t, "dx", dx.X, c.x, x, 9*c.K)
			c.within(t, "dw", dw.W, c.w, w, c.N*volume(c.Out))
			if t.Failed() {
				return
			}
		}
	})
}

// within checks a result of sums of depth terms against the bound of transforms.
func (c solvedConv) within(t *testing.T, what string, got Buf, s sums, tiles []float64, depth int) {
	for i, want := range s.want {
		if !near(t, what+" "+c.String(), got.Type, i, got.get(i), want, sixTimes*tiles[i]*float64(depth)*0x1p-23/50) {
			return
		}
	}
}

// TestSixError: in f32 the errors of transforms are on average less than a 500th of those of rounding a result to bf16, and no
// single one exceeds a fiftieth of the bound; -v prints both beside the definition's.
func TestSixError(t *testing.T) {
	for i := range 2 * len(winoData) {
		kind, channels := winoData[i/2], []int{winoDepth, winoShallow}[i%2]
		c := kind.data(benchConv(BF16, 4, channels, winoDepth, 8, 3, 1, false))
		directions := c.directions(sixStep)
		onSix(t, func(t *testing.T, m *Machine) {
			direct := byDefinition(m)
			defer direct.Close()
			for _, way := range directions {
				way.run(direct)
				least, _ := errorsOf(way.got, way.is, way.depth)
				way.run(m)
				rms, _ := errorsOf(way.got, way.is, way.depth)
				_, of := errorsOf(way.got, sums{way.is.want, way.tiles}, way.depth)
				line := fmt.Sprintf("%s, %s, %d channels: %.2g by definition, %.2g (%.2f%% of the bound) by transforms", way.name, kind.name, channels, least, rms, 100*of/sixTimes)
				t.Log(line)
				if rms > 0x1p-9/math.Sqrt(3)/500 || of > sixTimes/50.0 {
					t.Errorf("%s: too large", line)
				}
			}
		})
	}
}

// TestSixWorkers: results do not depend on how the work is cut.
func TestSixWorkers(t *testing.T) {
	onSix(t, func(t *testing.T, m *Machine) {
		one, many := sixing(m.Path, 1), []*Machine{sixing(m.Path, 5), sixing(m.Path, 60)}
		defer one.Close()
		defer many[0].Close()
		defer many[1].Close()
		d, modes := newDice(13), map[sixGradMode]bool{}
		for i := range 12 {
			c := sixConv(d, i)
			c.N += 3
			c.C += i % 2 * 70 // several panels
			if i%3 == 0 {     // several blocks of tiles
				c.N, c.In, c.Out, c.Pad = 6, [3]int{1, 37, 42}, [3]int{1, 37, 42}, [3]int{0, 1, 1}
			}
			c.X, c.W, c.Y = d.buf(BF16, c.N*c.C*volume(c.In)), d.buf(BF16, 9*c.K*c.C), d.buf(BF16, c.N*c.K*volume(c.Out))
			run := func(m *Machine) (list [][]float32) {
				fwd, dx, dw := *c, *c, *c
				fwd.Y, dx.X, dw.W = zeros(F32, c.Y.Len()), zeros(F32, c.X.Len()), zeros(F32, c.W.Len())
				m.Conv(&fwd)
				m.ConvInputGrad(&dx)
				m.ConvWeightGrad(&dw)
				return append(list, fwd.Y.f32(), dx.X.f32(), dw.W.f32())
			}
			want := run(one)
			for _, m := range many {
				got := run(m)
				for k := range want {
					if !slices.Equal(want[k], got[k]) {
						t.Fatalf("%v: result %d with %d workers is not that of 1", c, k, m.pool.Workers())
					}
				}
				if m.sixGradRun.part.cols > 1 {
					modes[m.sixGradRun.mode] = true
				}
			}
		}
		if !modes[sixWholeMode] || !modes[sixTapsMode] {
			t.Errorf("modes whose input channels were divided: %v", modes)
		}
	})
}

// TestSixFollows: an epilogue and a post-op get every element of a result once.
func TestSixFollows(t *testing.T) {
	onSix(t, func(t *testing.T, m *Machine) {
		d := newDice(14)
		for i := range rounds(20) {
			sixConv(d, i).follows(t, m, d, i%3 == 0, BF16)
		}
	})
}
