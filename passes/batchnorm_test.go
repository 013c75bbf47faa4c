package passes

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
)

// exportedNorm is a batch norm of an evaluated model; KIND is what its scale and bias are.
const exportedNorm = `graph @net {
  input %x : f32[8,3,4]
  input %t : f32[8,3,4]
  KIND %scale : f32[3] = ones()
  KIND %bias : f32[3] = zeros()
  param %w : f32[1] = ones()
  state %mean : f32[3] = zeros()
  state %var : f32[3] = ones()
forward:
  %y = batch_norm_infer %x, %scale, %bias, %mean, %var {momentum=0.25} : f32[8,3,4]
  %z = mul %y, %w
  %sum, %count = mse %z, %t : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}
`

// A batch norm that was exported for inference normalizes by the batch while its weights are
// trained, and moves its statistics; with frozen weights it stays as it is.
func TestExportedBatchNormIsTrained(t *testing.T) {
	x, want := f32s([]ir.Dim{8, 3, 4}), make([]float64, 3)
	x.F = make([]float64, 96)
	for i := range x.F {
		x.F[i] = float64(float32(math.Sin(float64(i)) + float64(i/4%3)))
		want[i/4%3] += x.F[i] / 32
	}
	for kind, moves := range map[string]bool{"param": true, "state": false} {
		tr := newTrainer(t, strings.ReplaceAll(exportedNorm, "KIND", kind), Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Groups: oneGroup(SGD(0), Constant(0.1))}})
		tr.step(feed{"x": x, "t": f32s([]ir.Dim{8, 3, 4}, make([]float64, 96)...)})
		for k, m := range tr.env["mean"].F {
			share := 0.0
			if moves {
				share = 0.25
			}
			if math.Abs(m-share*want[k]) > 1e-6 {
				t.Errorf("scale is a %s: the mean of channel %d becomes %g, want %g", kind, k, m, share*want[k])
			}
		}
		if got := tr.ctx.counters["batch_norms_trained"] > 0; got != moves {
			t.Errorf("scale is a %s: trained by the batch: %t", kind, got)
		}
	}
}
