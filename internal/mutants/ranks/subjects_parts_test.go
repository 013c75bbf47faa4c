package ranks

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes"
)

// headed is the classifier with a head that can run in blocks of rows: a product with a bias.
var headed = strings.NewReplacer("@classifier", "@headed",
	"  state %seed", "  param %c : f32[5] = 0\n  state %seed",
	"matmul %t, %v", "linear %t, %v, %c").Replace(classifier)

// subjectsInParts compiles models whose ranks keep parts of the state, or whose heads run in blocks
// of rows.
func subjectsInParts(t *testing.T) []*subject {
	t.Helper()
	var all []*subject
	for _, m := range []model{{"classifier", headed, images}, {"tied", tied, sentences}} {
		for _, a := range []arrangement{
			{"2 ranks, parts", "mixed-f16", 2, 1, func(c *passes.Config) { c.Parallel.Shard = true }},
			{"4 ranks, parts, 16-bit messages, clip and average", "mixed-bf16", 4, 1, func(c *passes.Config) {
				c.Parallel.Shard, c.Parallel.Message, c.Parallel.Bucket, c.Clip.Norm, c.EMA = true, ir.BF16, 1, 0.5, 0.9
			}},
			{"2 ranks, parts, 3 micro-batches", "mixed-f16", 2, 3, func(c *passes.Config) { c.Parallel.Shard, c.Parallel.Message = true, ir.F16 }},
			{"2 ranks, parts in f32", "f32", 2, 1, func(c *passes.Config) { c.Parallel.Shard, c.Clip.Norm = true, 0.5 }},
			{"2 ranks, blocks", "mixed-f16", 2, 1, func(c *passes.Config) { c.Chunks = 2 }},
			{"4 ranks, blocks, 16-bit messages, clip and average", "mixed-bf16", 4, 1, func(c *passes.Config) {
				c.Chunks, c.Parallel.Message, c.Parallel.Bucket, c.Clip.Norm, c.EMA = 2, ir.BF16, 1, 0.5, 0.9
			}},
			{"2 ranks, blocks and parts", "mixed-f16", 2, 1, func(c *passes.Config) { c.Chunks, c.Parallel.Shard = 2, true }},
		} {
			all = append(all, m.arranged(t, a))
		}
	}
	rows := arrangement{"2 ranks, parts and rows", "mixed-f16", 2, 1, func(c *passes.Config) { c.Parallel.Shard = true }}
	return append(all, model{"tall", tall, sentences}.arranged(t, rows))
}

// tall is the model with a table that is long beside the rows of a batch.
var tall = strings.NewReplacer("@tied", "@tall", "[40,4]", "[401,4]", ",40]", ",401]").Replace(tied)

// begun is what rank r holds of a variable of which each rank keeps a part, before the first step;
// nil where the variable begins alike on all ranks.
func begun(v *ir.Value, r int) *eval.Tensor {
	role, _ := v.Attr.Get("role").(string)
	if v.PartOf() == "" || role != "" {
		return nil
	}
	whole := 1
	for _, d := range v.Attr.Get("whole").([]int64) {
		whole *= int(d)
	}
	part := eval.New(v.Type)
	for i := range part.F {
		if k := r*len(part.F) + i; k < whole {
			part.F[i] = float64(float32(0.3 * math.Sin(float64(k)*1.3+float64(len(v.Name)))))
		}
	}
	return part
}
