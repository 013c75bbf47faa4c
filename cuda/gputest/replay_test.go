package gputest

import (
	"fmt"
	"testing"
	"time"
)

// TestReplayCost prints what a step of many small launches costs the host and takes in all, issued
// call by call and as one graph.
func TestReplayCost(t *testing.T) {
	g := open(t)
	launches, steps := int(g.of(200, 10)), int(g.of(100, 2))
	scale, good, skips, found := g.buffer(t, 4), g.buffer(t, 4), g.buffer(t, 4), g.buffer(t, 4)
	g.must(t, g.Fill32(scale, 0x3f800000, 1, g.s))
	for _, p := range []func() error{
		func() error { return g.Fill32(good, 0, 1, g.s) }, func() error { return g.Fill32(skips, 0, 1, g.s) }, func() error { return g.Fill8(found, 0, 4, g.s) },
	} {
		g.must(t, p())
	}
	var calls []func() error
	one := g.launcher(t, scaleCode().Build, scale, good, skips, found, scale, good, skips)
	for range launches {
		calls = append(calls, one)
	}
	exec := g.captured(t, calls)
	issued := func() error {
		for _, c := range calls {
			if err := c(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, way := range []struct {
		name string
		step func() error
	}{{"call by call", issued}, {"as a graph", func() error { return g.LaunchGraph(exec, g.s) }}} {
		g.must(t, way.step())
		g.must(t, g.Synchronize(g.s))
		begun := time.Now()
		for range steps {
			g.must(t, way.step())
		}
		host := time.Since(begun)
		g.must(t, g.Synchronize(g.s))
		all := time.Since(begun)
		fmt.Printf("a step of %d launches %-12s: %.1f us of the host, %.1f us in all\n", launches, way.name, us(host, steps), us(all, steps))
	}
}

func us(d time.Duration, steps int) float64 { return d.Seconds() * 1e6 / float64(steps) }
