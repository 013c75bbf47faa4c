package convert_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"ampc/onnx/convert"
)

// bad gives nodes errors that add up as rounding does, except for one that makes infinities.
func bad(at map[int]float64) func(half []bool) (float64, error) {
	return func(half []bool) (float64, error) {
		sum := 0.0
		for i, on := range half {
			if on {
				sum += at[i] * at[i]
			}
		}
		return math.Sqrt(sum), nil
	}
}

// A search keeps the nodes that bring the error and no others, in far fewer runs
// than there are nodes.
func TestSearch(t *testing.T) {
	at := map[int]float64{}
	half := make([]bool, 1000)
	for i := range half {
		half[i], at[i] = i%10 != 0, 1e-6
	}
	at[17], at[333], at[502], at[503] = 0.3, math.Inf(1), 0.02, 0.5
	for limit, want := range map[float64][]int{0: {333}, 0.1: {17, 333, 503}, 0.01: {17, 333, 502, 503}, 1: {333}} {
		f, err := convert.Search(half, limit, bad(at))
		if err != nil {
			t.Fatal(err)
		}
		var kept []int
		for i, on := range f.Half {
			if half[i] && !on {
				kept = append(kept, i)
			}
		}
		if !slices.Equal(kept, want) || len(f.Alone) != len(want) {
			t.Errorf("limit %g keeps %v, want %v", limit, kept, want)
		}
		if f.Runs > 150 {
			t.Errorf("limit %g takes %d runs", limit, f.Runs)
		}
		if limit > 0 && f.Error > limit {
			t.Errorf("limit %g: the error is %g", limit, f.Error)
		}
	}
	failed := errors.New("cannot run")
	if _, err := convert.Search(half, 1, func([]bool) (float64, error) { return 0, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if f, _ := convert.Search(half, 10, bad(map[int]float64{})); f.Runs != 1 || !slices.Equal(f.Half, half) {
		t.Errorf("nothing is wrong, and after %d runs something is kept", f.Runs)
	}
}
