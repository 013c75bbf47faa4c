package eval

import (
	"testing"

	"ampc/ir"
)

func scalar(x float64) *Tensor { return Floats(ir.F32, nil, x) }

func integer(x int64) *Tensor { return Ints(ir.I32, nil, x) }

func truthy(x int64) *Tensor { return Ints(ir.Bool, nil, x) }

// Rows of scaling and of the update have no gradients; their cases are read
// back, typed under vaguer shapes, and run by every backend's tests.
func TestPrecisionRows(t *testing.T) {
	checkRows(t, []rowCase{
		{op: ir.OpScale, in: []*Tensor{normal(5), scalar(1024)}},
		{op: ir.OpUnscale, in: []*Tensor{normal(5), scalar(0x1p-10)}},
		{op: ir.OpAnyNonfinite, in: []*Tensor{normal(5), normal(2, 3)}},
		{op: ir.OpMultiplier, in: []*Tensor{scalar(1024), integer(6), scalar(3)}, attrs: ir.A("max", 1.0, "shift", 2)},
		{name: "empty", op: ir.OpMultiplier, in: []*Tensor{scalar(1024), integer(0)}},
		{op: ir.OpUpdateScale, in: []*Tensor{scalar(65536), integer(3), integer(1), integer(0), integer(0), truthy(1)}},
		{name: "grows", op: ir.OpUpdateScale, in: []*Tensor{scalar(1024), integer(1), integer(1), integer(0), integer(0), truthy(0)}, attrs: ir.A("every", 2)},
		{op: ir.OpGlobalNorm, in: []*Tensor{scalar(0.5), normal(5), normal(2, 3)}},
	})
}

func TestUpdateRows(t *testing.T) {
	lr, one := scalar(0.01), scalar(0.5)
	positive := func() *Tensor { return uniform(0.1, 1, 7) }
	moments := []*Tensor{normal(7), normal(7), normal(7), positive(), lr, truthy(0), one, scalar(0.19), scalar(0.002)}
	skipped := []*Tensor{normal(7), normal(7), normal(7), positive(), lr, truthy(1), nil, scalar(0.19), scalar(0.002)}
	checkRows(t, []rowCase{
		{op: ir.OpAccum, in: []*Tensor{normal(7), normal(7), truthy(0), truthy(1)}},
		{name: "first", op: ir.OpAccum, in: []*Tensor{normal(7), normal(7), truthy(1)}},
		{op: ir.OpAssign, in: []*Tensor{normal(7), normal(7), normal(7), lr, truthy(0)}},
		{name: "skipped", op: ir.OpAssign, in: []*Tensor{normal(7), normal(7), normal(7), lr, truthy(1)}},
		{op: ir.OpSGD, in: []*Tensor{normal(7), normal(7), nil, lr}},
		{name: "momentum", op: ir.OpSGD, in: []*Tensor{normal(7), normal(7), normal(7), lr, truthy(0), one}, attrs: ir.A("momentum", 0.9, "nesterov", true, "decay", 0.01)},
		{op: ir.OpAdam, in: moments, attrs: ir.A("decay", 0.01)},
		{op: ir.OpAdamW, in: moments, attrs: ir.A("decay", 0.1)},
		{name: "skipped", op: ir.OpAdamW, in: skipped},
		{op: ir.OpEMA, in: []*Tensor{normal(7), normal(7), integer(3)}, attrs: ir.A("decay", 0.99)},
		{op: ir.OpCount, in: []*Tensor{integer(41), truthy(0)}},
		{op: ir.OpBiasCorrection, in: []*Tensor{scalar(0.19)}, attrs: ir.A("beta", 0.9)},
		{op: ir.OpSchedule, in: []*Tensor{scalar(0.1), integer(7)}, attrs: ir.A("kind", "cosine", "warmup", 3, "total", 20)},
		{name: "phases", op: ir.OpSchedule, in: []*Tensor{scalar(0.1), integer(7)}, attrs: ir.A("kind", "phases", "steps", []int64{5, 10}, "from", []float64{0.04, 1}, "to", []float64{1, 0.001}, "power", []float64{0, 2})},
		{op: ir.OpCommit, in: []*Tensor{normal(7), normal(7), truthy(1)}},
		{op: ir.OpAccumTree, in: []*Tensor{normal(7), normal(7), integer(1)}, attrs: ir.A("level", 0)},
		{name: "alone", op: ir.OpAccumTree, in: []*Tensor{normal(7), normal(7), integer(1)}, attrs: ir.A("level", 1)},
		{name: "waits", op: ir.OpAccumTree, in: []*Tensor{normal(7), normal(7), integer(2)}, attrs: ir.A("level", 1)},
	})
}

// The rows of caches append at each sequence's own position, and see no row behind it.
func TestCacheRows(t *testing.T) {
	for _, c := range []rowCase{
		{name: "cache_append", op: ir.OpCacheAppend, in: []*Tensor{normal(2, 2, 5, 3), normal(2, 2, 2, 3), indices(4, 2)}},
		{name: "cache_append some", op: ir.OpCacheAppend, in: []*Tensor{normal(3, 2, 5, 3), normal(3, 2, 2, 3), indices(4, 3), indices(3, 3)}},
		{name: "cached_attention", op: ir.OpCachedAttention, in: []*Tensor{normal(2, 2, 1, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3), indices(5, 2)}},
		{name: "cached_attention shared", op: ir.OpCachedAttention, in: []*Tensor{normal(3, 4, 2, 2), normal(3, 2, 5, 2), normal(3, 2, 5, 2), indices(4, 3), indices(3, 3)}, attrs: ir.A("scale", 0.5)},
	} {
		t.Run(c.name, func(t *testing.T) { checkRow(t, c) })
	}
}
