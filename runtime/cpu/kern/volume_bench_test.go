package kern

import (
	"fmt"
	"runtime"
	"testing"

	"ampc/internal/cputime"
)

// BenchmarkConv3d are 3x3x3 layers of volumes, with a 3x3 layer of images of the same work as the probe: as many channels,
// rows and columns, depth times as many images and three times as many of them, whose taps the volumes' depth makes up for.
// of-probe is their rate compared with that layer's, by the processor time of one thread. Flops are those of the definition.
func BenchmarkConv3d(b *testing.B) {
	passes := map[string]func(*Machine, *Conv){"fwd": (*Machine).Conv, "dx": (*Machine).ConvInputGrad, "dw": (*Machine).ConvWeightGrad}
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		for _, s := range []struct{ n, c, k, depth, size int }{{2, 32, 32, 16, 16}, {2, 64, 64, 16, 16}, {2, 96, 32, 16, 16}, {2, 128, 128, 8, 8}, {2, 64, 128, 4, 4}, {1, 64, 64, 8, 32}} {
			for _, t := range []Type{F32, F16, BF16} {
				v, image := benchVolume(t, s.n, s.c, s.k, s.depth, s.size), benchConv(t, 3*s.n*s.depth, s.c, s.k, s.size, 3, 1, false)
				grad, gradImage := *v, *image
				grad.W, gradImage.W = zeros(F32, v.W.Len()), zeros(F32, image.W.Len())
				flop := 2 * float64(v.N*v.K*v.C*volume(v.Out)*volume(v.Kernel))
				for name, f := range passes {
					c, probe := v, image
					if name == "dw" {
						c, probe = &grad, &gradImage
					}
					b.Run(fmt.Sprintf("%dx%dx%d/%dx%d/%v/%s", s.n, s.depth, s.size, s.c, s.k, t, name), func(b *testing.B) {
						runtime.LockOSThread()
						defer runtime.UnlockOSThread()
						ratioBy(cputime.Thread, b, "GFLOP/s", flop, func() { f(m, c) }, flop, func() { f(m, probe) })
					})
				}
			}
		}
	})
}

// benchVolume is a 3x3x3 convolution of volumes, padded to keep their size.
func benchVolume(t Type, n, c, k, depth, size int) *Conv {
	v := &Conv{N: n, C: c, K: k, Groups: 1, In: [3]int{depth, size, size}, Out: [3]int{depth, size, size}, Kernel: [3]int{3, 3, 3},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{1, 1, 1}}
	d := newDice(3)
	v.X, v.W, v.Y = d.buf(t, n*c*depth*size*size), d.buf(t, k*c*27), d.buf(t, n*k*depth*size*size)
	return v
}
