package host

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// tfIdf counts sequences of integers among those of a pool: TfIdfVectorizer without strings.
func tfIdf(c *call) ([]*Value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	d := ir.Sizes(x.Type.Shape)
	pool, starts, at := c.ints("pool_int64s"), c.ints("ngram_counts"), c.ints("ngram_indexes")
	if x.I == nil || len(d) < 1 || len(d) > 2 || pool == nil || len(at) == 0 {
		return nil, fmt.Errorf("operand 0 is %s and pool_int64s has %d integers, want integers in both: strings are not supported", x.Type, len(pool))
	}
	most := slices.Max(at) + 1
	if slices.Min(at) < 0 || most > maxResult {
		return nil, fmt.Errorf("ngram_indexes range from %d to %d, which is out of range", slices.Min(at), most-1)
	}
	var weights []float32
	if a := c.n.Attr("weights"); a != nil {
		weights = a.Floats
	}
	places := map[string]int{} // of sequences in the pool
	entry := 0
	for n, from := range starts {
		to := int64(len(pool))
		if n+1 < len(starts) {
			to = starts[n+1]
		}
		if from < 0 || to > int64(len(pool)) {
			return nil, fmt.Errorf("ngram_counts puts the sequences of length %d at %d to %d, but the pool has %d integers", n+1, from, to, len(pool))
		}
		for ; from+int64(n) < to; from += int64(n) + 1 {
			places[fmt.Sprint(pool[from:from+int64(n)+1])] = entry
			entry++
		}
	}
	if entry > len(at) || weights != nil && entry > len(weights) {
		return nil, fmt.Errorf("the pool has %d sequences, but there are %d indexes and %d weights", entry, len(at), len(weights))
	}
	row := d[len(d)-1]
	y, err := newResult(ir.F32, append(slices.Clone(d[:len(d)-1]), most)...)
	if err != nil {
		return nil, err
	}
	least, longest, skips := c.int("min_gram_length", 1), c.int("max_gram_length", 1), c.int("max_skip_count", 0)
	if longest > int64(len(starts)) || skips > row {
		skips, longest = min(skips, row), min(longest, int64(len(starts)))
	}
	mode := c.str("mode", "TF")
	for r := range volume(d[:len(d)-1]) {
		items := x.I[r*row : (r+1)*row]
		for skip := range skips + 1 {
			for n := max(least, 1); n <= longest; n++ {
				if n == 1 && skip > 0 {
					continue // its items have no distance
				}
				for i := int64(0); i+(n-1)*(skip+1) < row; i++ {
					var gram []int64
					for k := range n {
						gram = append(gram, items[i+k*(skip+1)])
					}
					e, ok := places[fmt.Sprint(gram)]
					if !ok {
						continue
					}
					w := 1.0
					if mode != "TF" && weights != nil {
						w = float64(weights[e])
					}
					to := &y.F[r*most+at[e]]
					if *to += w; mode == "IDF" {
						*to = w
					}
				}
			}
		}
	}
	return rounded(y), nil
}
