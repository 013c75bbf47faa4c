package ptx_test

import (
	"math"
	"strings"
	"testing"

	"ampc/ptx"
)

// TestCounts: a kernel of more elements than 32 bits count counts them in 64, or says what its limit
// is, in one line.
func TestCounts(t *testing.T) {
	const huge = 1 << 31
	copying := func(shape ...int64) ptx.Elementwise { // every second element, one by one
		stride := make([]int64, len(shape))
		for i, n := len(shape)-1, int64(2); i >= 0; i-- {
			stride[i], n = n, n*shape[i]
		}
		return ptx.Elementwise{Name: "k", Shape: shape, Code: []ptx.Instr{{Op: "in", Type: ptx.Float32}},
			Loads: []ptx.Access{{Name: "x", DType: ptx.Float16, Stride: stride}}, Stores: []ptx.Output{{Access: ptx.Access{Name: "y", DType: ptx.Float16}}}}
	}
	type build func(ptx.Flavour) (*ptx.Launch, error)
	pool := ptx.Pool{Name: "k", N: 1 << 16, C: 1 << 10, Size: [3]int{1, 8, 8}, To: [3]int{1, 4, 4}, Kernel: [3]int{1, 2, 2}, Stride: [3]int{1, 2, 2}, In: ptx.Float16, Out: ptx.Float16}
	norm := func(rows int) ptx.Norm {
		return ptx.Norm{Name: "k", Rows: rows, Cols: 768, In: ptx.Float16, Out: ptx.Float16, Bias: true}
	}
	loss := func(rows int) ptx.CrossEntropy {
		return ptx.CrossEntropy{Name: "k", Rows: rows, Cols: 50257, In: ptx.Float16, Labels: ptx.Int32}
	}
	columns := func(rows, cols int) ptx.ColReduce {
		return ptx.ColReduce{Name: "k", Op: "sum", Outer: 1, N: rows, Inner: cols, In: ptx.Float16, Out: ptx.Float32}
	}
	for name, c := range map[string]struct {
		build build
		limit string // part of the error; "": the kernel is made
	}{
		"elements":           {copying(1<<20, 1<<13).Build, ""},
		"elements, vectors":  {ptx.Elementwise{Name: "k", Shape: []int64{1 << 36}, Code: copying(1).Code, Loads: []ptx.Access{{Name: "x", DType: ptx.Float16}}, Stores: []ptx.Output{{Access: ptx.Access{Name: "y", DType: ptx.Float16}}}}.Build, ""},
		"elements, blocks":   {copying(1<<20, 1<<19).Build, "kernel k: 2147483648 blocks, the limit is 2^31-1"},
		"rows of norms":      {norm(huge / 2).Forward, ""},
		"gradients of norms": {norm(huge / 2).Backward, ""},
		"norms":              {norm(huge).Forward, "1649267441664 elements, the limit is 2^40"},
		"rows of logits":     {loss(huge / 2).Fused, ""},
		"losses":             {loss(huge).Fused, "2147483648 rows, the limit is 2^31-1"},
		"labels":             {loss(huge).LabelCount, "2147483648 rows, the limit is 2^31-1"},
		"columns":            {columns(1<<20, 1<<20).Build, ""},
		"rows of columns":    {columns(huge, 4).Build, "2147483648 rows, the limit is 2^31-1"},
		"sums of columns":    {columns(4, huge).Build, "2147483648 results, the limit is 2^31-1"},
		"a row":              {ptx.RowReduce{Name: "k", Op: "sum", Rows: 4, Cols: huge, In: ptx.Float16, Out: ptx.Float32}.Build, "2147483648 columns, the limit is 2^31-1"},
		"pools":              {pool.Max, "it counts to 2^31-1"},
		"pools, back":        {pool.MaxBackward, "it counts to 2^31-1"},
	} {
		l, err := c.build(ptx.SM90)
		switch {
		case c.limit == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.limit == "" && l.Grid[0] > math.MaxInt32:
			t.Errorf("%s: grid %v", name, l.Grid)
		case c.limit != "" && (err == nil || !strings.Contains(err.Error(), c.limit) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want ... %s ...", name, err, c.limit)
		}
	}
}
