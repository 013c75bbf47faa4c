package kern

import (
	"math"
	"testing"
)

// TestMaxWindows compares pools of many shapes with the definition.
func TestMaxWindows(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(31)
		for round := range rounds(200) {
			var g Windows
			for a := range 2 {
				g.Kernel[a], g.Stride[a], g.In[a] = 1+d.IntN(4), 1+d.IntN(3-a), 1+d.IntN(70)
				g.Pad[a] = d.IntN(g.Kernel[a])
				after := d.IntN(g.Kernel[a])
				if g.Out[a] = (g.In[a]+g.Pad[a]+after-g.Kernel[a])/g.Stride[a] + 1; g.In[a]+g.Pad[a]+after < g.Kernel[a] {
					g.Kernel[a], g.Pad[a], g.Out[a] = 1, 0, (g.In[a]-1)/g.Stride[a]+1
				}
			}
			if round%3 == 0 {
				g.Kernel, g.Stride, g.Pad = [2]int{3, 3}, [2]int{2, 2}, [2]int{d.IntN(3), d.IntN(3)}
				for a := range 2 {
					g.In[a] = 3 + d.IntN(70)
					g.Out[a] = (g.In[a]+g.Pad[a]+d.IntN(3)-3)/2 + 1
				}
			}
			x := d.buf(F32, g.In[0]*g.In[1]).f32()
			if d.IntN(3) == 0 {
				x[d.IntN(len(x))] = float32(math.NaN())
			}
			if d.IntN(3) == 0 { // the sign of a zero tells which of equal ones is taken
				for i := range x {
					x[i] = []float32{-1, 0, float32(math.Copysign(0, -1))}[d.IntN(3)]
				}
			}
			y := make([]float32, g.Out[0]*g.Out[1])
			m.MaxWindows(&g, y, x, make([]float32, g.Scratch()))
			for i := range y {
				want := negInf
				for tap := range g.Kernel[0] * g.Kernel[1] {
					r, c := i/g.Out[1]*g.Stride[0]+tap/g.Kernel[1]-g.Pad[0], i%g.Out[1]*g.Stride[1]+tap%g.Kernel[1]-g.Pad[1]
					if r >= 0 && r < g.In[0] && c >= 0 && c < g.In[1] {
						if e := x[r*g.In[1]+c]; e > want || e != e {
							want = e
						}
					}
				}
				if !sameOrNaN(y[i], want) {
					t.Fatalf("%+v: window %d: %g, want %g", g, i, y[i], want)
				}
			}
			half, pooled := (Buf{BF16, make([]byte, 2*len(x))}), (Buf{BF16, make([]byte, 2*len(y))})
			m.Store(half, x)
			m.Load(x, half)
			m.MaxWindows(&g, y, x, make([]float32, g.Scratch()))
			m.MaxWindowsOf(&g, pooled, half, make([]float32, len(y)), x, make([]float32, g.Scratch()))
			for i, want := range y {
				if got := pooled.get(i); !sameOrNaN(got, want) {
					t.Fatalf("%+v in bf16: window %d: %g, want %g", g, i, got, want)
				}
			}
		}
	})
}

// sameOrNaN reports whether x and y have the same bits, or both are NaN.
func sameOrNaN(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}
