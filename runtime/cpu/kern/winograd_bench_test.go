package kern

import (
	"fmt"
	"testing"
)

// BenchmarkWinograd are the 3x3 layers of ResNet-18 at batch 32, and deep ones of few images, with the same convolution by
// the definition as the probe: of-probe is how much faster they are. Flops are those of the definition.
func BenchmarkWinograd(b *testing.B) {
	passes := map[string]func(*Machine, *Conv){"fwd": (*Machine).Conv, "dx": (*Machine).ConvInputGrad, "dw": (*Machine).ConvWeightGrad}
	onVectorPaths(b, func(b *testing.B, m *Machine) {
		direct := byDefinition(m)
		defer direct.Close()
		for _, s := range [][3]int{{32, 64, 32}, {32, 128, 16}, {32, 256, 8}, {32, 512, 4}, {8, 512, 4}, {4, 512, 4}, {2, 256, 8}, {1, 256, 8}, {1, 16, 32}, {1, 32, 32}} {
			for _, t := range []Type{F32, F16, BF16} {
				for _, last := range []bool{false, true} {
					c := benchConv(t, s[0], max(s[1], winoDepth), s[1], s[2], 3, 1, last)
					flop := 2 * float64(c.N*c.K*c.C*volume(c.Out)*volume(c.Kernel))
					for name, f := range passes {
						b.Run(fmt.Sprintf("n%d/%dx%d/last=%v/%v/%s", c.N, c.In[1], c.K, last, t, name), func(b *testing.B) {
							ratio(b, "GFLOP/s", flop, func() { f(m, c) }, flop, func() { f(direct, c) })
						})
					}
				}
			}
		}
	})
}
