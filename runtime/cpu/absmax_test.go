package cpu

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestAbsMax(t *testing.T) {
	b := open(t, 1)
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		x    []float64
		want float64
	}{{nil, 0}, {[]float64{0}, 0}, {[]float64{1, -3, 2}, 3}, {[]float64{5, -3}, 5}, {[]float64{1, -inf}, inf}, {[]float64{nan, 1}, inf}} {
		for _, more := range []int{0, 100} { // a tail, and whole vectors
			var data []byte
			for _, v := range c.x {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
			}
			if got := b.AbsMax(append(data, make([]byte, 4*more)...)); got != c.want {
				t.Errorf("%v and %d zeros: %g, want %g", c.x, more, got, c.want)
			}
		}
	}
}
