package data_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ampc/data"
)

func pairs(n int) data.Records {
	var list data.Records
	for i := range n {
		list = append(list, data.Example{"x": float32(i), "y": []int32{int32(i), int32(-i)}})
	}
	return list
}

// The rows of all ranks, one rank after the other, are the batches of one loader, padding and masks
// included, from any position on and in every epoch.
func TestShare(t *testing.T) {
	for _, o := range []data.Options{
		{Batch: 8, Last: data.Pad, Shuffle: true, Seed: 3, Pad: map[string]float64{"y": -100}, Mask: "m"},
		{Batch: 8, Last: data.Drop, Shuffle: true, Seed: 3},
		{Batch: 8},
	} {
		n := map[data.Last]int{data.Pad: 21, data.Drop: 23, data.Short: 20}[o.Last]
		batches := func(l *data.Loader) (all []data.Batch, states []data.State) {
			for range 2 {
				for b, err := range l.Epoch(context.Background()) {
					if err != nil {
						t.Fatal(err)
					}
					all, states = append(all, b), append(states, l.State())
				}
			}
			return all, states
		}
		loader := func() *data.Loader {
			l, err := data.NewLoader(pairs(n), o)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		want, at := batches(loader())
		for _, ranks := range []int{2, 4} {
			parts := make([][]data.Batch, ranks)
			for r := range ranks {
				l, err := loader().Share(r, ranks)
				if err != nil {
					t.Fatal(err)
				}
				var states []data.State
				if parts[r], states = batches(l); fmt.Sprint(states) != fmt.Sprint(at) {
					t.Errorf("%v: rank %d of %d stands at %v, want %v", o.Last, r, ranks, states, at)
				}
				middle, err := loader().Share(r, ranks)
				if err != nil {
					t.Fatal(err)
				}
				if err := middle.Restore(at[0]); err != nil {
					t.Fatal(err)
				}
				if rest, _ := batches(middle); fmt.Sprint(rest[0]) != fmt.Sprint(parts[r][1]) {
					t.Errorf("%v: rank %d of %d goes on with %v, want %v", o.Last, r, ranks, rest[0], parts[r][1])
				}
			}
			for i, b := range want {
				var x, m []float32
				var y []int32
				count, size := 0, 0
				for r := range ranks {
					p := parts[r][i]
					x, y = append(x, p.Feed["x"].([]float32)...), append(y, p.Feed["y"].([]int32)...)
					if mask, ok := p.Feed["m"].([]float32); ok {
						m = append(m, mask...)
					}
					count, size = count+p.Count, size+p.Size
				}
				mask, _ := b.Feed["m"].([]float32)
				if !slices.Equal(x, b.Feed["x"].([]float32)) || !slices.Equal(y, b.Feed["y"].([]int32)) || !slices.Equal(m, mask) || count != b.Count || size != b.Size {
					t.Errorf("%v, %d ranks: batch %d is %v %v %v, %d of %d, want %v", o.Last, ranks, i, x, y, m, count, size, b)
				}
			}
		}
	}
}

// What ranks cannot share is refused in one line.
func TestShareRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		n, ranks int
		o        data.Options
	}{
		"a batch of 8 records is not divisible among 3 ranks: set Options.Batch to 9":    {24, 3, data.Options{Batch: 8}},
		"the last batch has 5 records, which 2 ranks cannot share equally: set Options.": {21, 2, data.Options{Batch: 8}},
		"Options.OnBad is set for several ranks":                                         {24, 2, data.Options{Batch: 8, OnBad: data.Skip}},
		"it has the part of one of 2 ranks already":                                      {24, 2, data.Options{Batch: 8, Ranks: 2}},
	} {
		l, err := data.NewLoader(pairs(c.n), c.o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Share(0, c.ranks); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
