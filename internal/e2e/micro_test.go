package e2e_test

import (
	"ampc"
	"bytes"
	"context"
	"math"
	"testing"
)

// Unequal numbers of ignored labels and a short tail: the micro-batches count
// as the labels in them do.
func TestMicroBatchesEqualOneBatch(t *testing.T) {
	for _, parts := range []int{4, 3} { // 3: a short tail, compiled for 4
		all := points(5, 8*parts)
		y := all["y"].([]int32)
		for i := range y {
			if i < 6 || i%5 == 0 {
				y[i] = -100
			}
		}
		c := adam()
		c.Policy, c.Optimizer, c.LR = ampc.F32Only(), ampc.SGD(0), ampc.Constant(0.5)
		one, lossOfOne := small(8 * parts)
		a := run(t, train(t, one, lossOfOne, c), all)
		many, lossOfMany := small(8)
		c.Micro = 4
		var feeds []ampc.Feed
		for i := range parts {
			feeds = append(feeds, ampc.Feed{"x": all["x"].([]float32)[32*i : 32*i+32], "y": y[8*i : 8*i+8]})
		}
		b := run(t, train(t, many, lossOfMany, c), feeds...)
		if math.Abs(metrics(t, a).Loss-metrics(t, b).Loss) > 1e-6 {
			t.Errorf("%d parts: loss %g in one batch, %g in parts", parts, metrics(t, a).Loss, metrics(t, b).Loss)
		}
		for _, name := range []string{"fc1.w", "fc1.b", "fc2.w", "fc2.b"} {
			wa, _ := one.Variable(name)
			wb, _ := many.Variable(name)
			for i := range wa.Len() {
				if math.Abs(wa.At(i)-wb.At(i)) > 2e-6 {
					t.Errorf("%d parts: %s[%d] is %g after one batch, %g after parts", parts, name, i, wa.At(i), wb.At(i))
					break
				}
			}
		}
	}
}

// A micro-batch that is not finite skips the step, or is left out of it.
func TestBadMicroBatch(t *testing.T) {
	for _, mode := range []ampc.BadMicro{ampc.SkipStep, ampc.DropMicro} {
		c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5), Micro: 3, BadMicro: mode}
		m, loss := small(8)
		s := train(t, m, loss, c)
		alone, lossAlone := small(8)
		clean := train(t, alone, lossAlone, c)
		before, _ := m.Variable("fc1.w")
		bad := points(9, 8)
		bad["x"].([]float32)[5] = float32(math.Inf(1))
		r := run(t, s, points(1, 8), bad, points(2, 8))
		if metrics(t, r).Skipped != (mode == ampc.SkipStep) {
			t.Errorf("mode %d: skipped %t", mode, metrics(t, r).Skipped)
		}
		after, _ := m.Variable("fc1.w")
		if mode == ampc.SkipStep {
			if !bytes.Equal(before.Bytes, after.Bytes) {
				t.Error("a skipped step changed a weight")
			}
			continue
		}
		run(t, clean, points(1, 8), points(2, 8))
		if want, _ := alone.Variable("fc1.w"); !bytes.Equal(after.Bytes, want.Bytes) {
			t.Error("a dropped micro-batch left a trace in the weights")
		}
	}
}

func TestAccumulateByHandIsRunWithSeveral(t *testing.T) {
	c := adam()
	c.Micro = 2
	m1, l1 := small(8)
	m2, l2 := small(8)
	a, b := train(t, m1, l1, c), train(t, m2, l2, c)
	run(t, a, points(1, 8), points(2, 8))
	ctx := context.Background()
	if _, err := b.Apply(ctx); err == nil {
		t.Error("apply without a micro-batch succeeds")
	}
	for i := range uint64(2) {
		if err := b.Accumulate(ctx, points(1+i, 8)); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, b.Accumulate(ctx, points(3, 8)), "compiled for 2")
	if _, err := b.Run(ctx, points(1, 8)); err == nil {
		t.Error("run with micro-batches waiting succeeds")
	}
	if _, err := b.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	same(t, m1, m2)
}
