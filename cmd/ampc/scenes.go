package main

import (
	"context"
	"strings"

	"ampc"
	"ampc/models"
)

// scenes are generated training data for zoo models that need no files.
type scenes struct {
	source, unit string
	labels       string // input whose number of elements is the denominator of the accuracy; "": the task has no accuracy
	steps        int    // default number of steps
}

// drawnScenes lists the models whose data is generated from the seed.
var drawnScenes = map[string]scenes{
	"unet3d":   {"generated volumes of balls and boxes under noise", "volumes", "voxels", 300},
	"convlstm": {"generated videos of a ball and a box that move", "videos", "", 300},
}

// heldOutScenes is the number of batches for evaluation. Their indices are negative, so no run
// trains on them.
const heldOutScenes = 8

// sceneTask is a task whose batches come from models.Zoo.Batch. Batch i of a seed is the same in
// every run and for any number of ranks. All seeds share the held-out batches.
func sceneTask(name, query string, f *trainFlags) (task, error) {
	s := drawnScenes[name]
	if len(f.data) > 0 || len(f.text) > 0 || f.heldOut != "" {
		return task{}, usagef("zoo:%s trains on %s: leave out --data, --text and --held-out", name, s.source)
	}
	z, err := f.open(name, query)
	if err != nil {
		return task{}, err
	}
	all, err := models.Open(name + "?" + query) // generates the batches of all ranks
	if err != nil {
		return task{}, err
	}
	ranks, count := f.parts(), z.Options.Int("batch")
	if s.labels != "" {
		count = int(z.Model.Graph().Var(s.labels).Type.Shape.Elements())
	}
	t := task{spec: strings.TrimSuffix("zoo:"+name+"?"+query, "?"), source: s.source, unit: s.unit, unitsPerBatch: all.Options.Int("batch"), steps: s.steps,
		digest: digest([]byte(s.source))}
	t.batch = func(i int64) (ampc.Feed, error) { return all.Batch(f.seed<<32 + i), nil }
	t.heldOut = func(ctx context.Context, eval *ampc.Step) (float64, float64, error) {
		return mean(ctx, eval, z.Steps[0].Losses[0].Value, z.Metrics["correct"], heldOutScenes*ranks, func(i int) (ampc.Feed, int, error) {
			return shard(all.Batch(int64(-1-i/ranks)), i%ranks, ranks), count, nil
		})
	}
	return t.of(z), nil
}
