package cpu_test

import (
	"fmt"
	"testing"

	"ampc/lower"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
)

// A simulation: by the model of costs, without cores, whole training steps become faster with every
// doubling of the workers up to 64, and on 32 they are so many times as fast as on one.
func TestDividedSteps(t *testing.T) {
	for _, s := range []struct {
		spec, policy string
		on32         float64
	}{
		{"unet", "f32", 15},
		{"gpt2?batch=4", "f32", 28},
		{"gpt2?batch=1", "f32", 28},
		{"resnet50?batch=32", "f32", 25},
		{"bert?batch=8&seq=128&vocab=30522&layers=12&heads=12&dim=768", "f32", 28},
		{"resnet?batch=32", "f32", 25},
		{"resnet?batch=32", "mixed-bf16", 24},
		{"mlp?batch=128&hidden=512&layers=2", "f32", 18},
	} {
		if testing.Short() && s.spec != "unet" {
			continue
		}
		p := compiled(t, s.spec, s.policy)
		for _, path := range kern.Paths() {
			if path.Name() != "go" {
				dividedStep(t, path, p, s.spec+", "+s.policy, s.on32)
			}
		}
	}
}

func dividedStep(t *testing.T, path *kern.Path, p *lower.Program, spec string, on32 float64) {
	one, row, last := 0, "", 0
	for n := 1; n <= 64; n *= 2 {
		time, busy := 0, 0
		if err := cpu.Divided(path, p, n, func(r kern.Planned) { time, busy = time+r.Time, busy+r.Busy }); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			one, last = time, 2*time
		}
		faster := float64(one) / float64(time)
		row += fmt.Sprintf(" %d: %.1f (%.0f%%)", n, faster, 100*float64(busy)/float64(n*time))
		if time > last {
			t.Errorf("%s on %s: %d workers take %d, half as many %d", spec, path.Name(), n, time, last)
		}
		if n == 32 && faster < on32 {
			t.Errorf("%s on %s: 32 workers are %.1f times as fast as one, %.0f are asked for", spec, path.Name(), faster, on32)
		}
		last = time
	}
	t.Logf("%s on %s:%s", spec, path.Name(), row)
}
