package main

import (
	"math"
	"strings"
	"testing"

	"ampc/models"
)

// The batch that is found fits and the next one does not, however memory grows, in few trials. Nothing
// that fits is said to fit no further than was looked.
func TestFitBatch(t *testing.T) {
	for name, grow := range map[string]func(float64) float64{
		"in proportion": func(n float64) float64 { return n },
		"with weights":  func(n float64) float64 { return 1000 + 37*n },
		"in steps":      func(n float64) float64 { return 500 + 64*math.Ceil(n/24) },
		"squared":       func(n float64) float64 { return n + n*n/50 },
		"by its root":   func(n float64) float64 { return 100 * math.Sqrt(n) },
		"not at first":  func(n float64) float64 { return max(700, n) },
		"by a step":     func(n float64) float64 { return n + 4000*math.Floor(n/1000) },
	} {
		for _, limit := range []int64{0, 5, 700, 1001, 1037, 12345, 1 << 20, 1 << 40} {
			tried := 0
			bytes := func(batch int64) (int64, error) {
				tried++
				return int64(grow(float64(batch))), nil
			}
			got, err := fitBatch(0, limit, bytes)
			if err != nil {
				t.Fatal(err)
			}
			if tried > 30 || tried > 9 && (name == "in proportion" || name == "with weights") {
				t.Errorf("%s, %d: %d batches were tried", name, limit, tried)
			}
			if n, _ := bytes(got); got > 0 && n > limit {
				t.Errorf("%s, %d: the batch %d takes %d", name, limit, got, n)
			}
			if n, _ := bytes(got + 1); got < models.MaxOption && n <= limit || got > models.MaxOption {
				t.Errorf("%s, %d: the batch is %d, one more takes %d", name, limit, got, n)
			}
		}
	}
}

// A forward pass has nothing to compute again.
func TestFitOfInference(t *testing.T) {
	code, out, errs := ampcRun("", "plan", "zoo:mlp", "--infer", "--policy", "f32", "--fit", "1MB")
	if code != 0 || !strings.Contains(out, "batch in 1.0 MB") || strings.Contains(out, "recomputed") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
}
