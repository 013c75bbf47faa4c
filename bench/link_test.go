package main

import (
	"math"
	"testing"

	"ampc/lower"
)

// Sums that take what a ring takes give that ring, and noise of a few percent changes it little.
func TestFitRing(t *testing.T) {
	want := lower.Ring{Ranks: 4, Latency: 20e-6, Bandwidth: 5e9}
	for _, noise := range []float64{0, 0.05} {
		var seconds []float64
		for i, n := range linkSizes {
			s, _ := want.Message(int64(n), 2)
			seconds = append(seconds, s*(1+noise*float64(i%3-1)))
		}
		got := fitRing(4, linkSizes, seconds)
		if off := math.Abs(got.Latency/want.Latency - 1); off > 2*noise+1e-9 {
			t.Errorf("noise %g: latency %g, want %g", noise, got.Latency, want.Latency)
		}
		if off := math.Abs(got.Bandwidth/want.Bandwidth - 1); off > 2*noise+1e-9 {
			t.Errorf("noise %g: bandwidth %g, want %g", noise, got.Bandwidth, want.Bandwidth)
		}
	}
	if r := fitRing(2, []int{1 << 10, 1 << 20}, []float64{1e-9, 1e-3}); r.Latency != 0 || r.Bandwidth <= 0 {
		t.Errorf("%+v, want no latency below zero", r)
	}
}
