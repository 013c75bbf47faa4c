package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"

	"ampc"
)

// The comparison of loss scales: a classifier whose gradients overflow as its
// scale grows, so that every step depends on where a gradient stops being finite.
const (
	scaleSteps   = 300
	scaleBatches = 20 // taken in turn
	scaleRows    = 64
	scaleWidth   = 32
	scaleClasses = 10
	scaleEvery   = 5 // clean steps before the scale grows
	scaleRate    = 0.05
)

// scaleFile is what bench/torch/scales.py reads.
type scaleFile struct {
	Every   int64           `json:"every"`
	Rate    float64         `json:"rate"`
	Params  []scaleTensor   `json:"params"` // of linear layers in their order: weight [in,out], bias
	Batches [][]scaleTensor `json:"batches"`
	Runs    []scaleRun      `json:"runs"`
}

type scaleTensor struct {
	Shape []int     `json:"shape"`
	Data  []float32 `json:"data"`
}

// scaleRun is one training run of ours.
type scaleRun struct {
	Preset  string   `json:"preset"`
	Scale   []number `json:"scale"` // before each step
	Loss    []number `json:"loss"`
	Skipped []bool   `json:"skipped"`
}

// writeScales trains under the torch-* presets with torch's scaler and writes
// start, batches and what every step did.
func writeScales(path string) error {
	r := rand.New(rand.NewPCG(7, 11))
	normal := func(spread float64, shape ...int) scaleTensor {
		t := scaleTensor{Shape: shape, Data: make([]float32, size(shape))}
		for i := range t.Data {
			t.Data[i] = float32(spread * r.NormFloat64())
		}
		return t
	}
	f := scaleFile{Every: scaleEvery, Rate: scaleRate}
	for _, w := range [][2]int{{scaleWidth, 64}, {64, 64}, {64, scaleClasses}} {
		f.Params = append(f.Params, normal(1/math.Sqrt(float64(w[0])), w[0], w[1]), normal(0.1, w[1]))
	}
	for range scaleBatches {
		labels := scaleTensor{Shape: []int{scaleRows}, Data: make([]float32, scaleRows)}
		for i := range labels.Data {
			labels.Data[i] = float32(r.IntN(scaleClasses))
		}
		f.Batches = append(f.Batches, []scaleTensor{normal(1, scaleRows, scaleWidth), labels})
	}
	for _, preset := range []string{"torch-f16", "torch-cpu-f16"} {
		run, err := f.train(preset)
		if err != nil {
			return fmt.Errorf("%s: %w", preset, err)
		}
		f.Runs = append(f.Runs, run)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o666)
}

// train takes every step under one preset.
func (f *scaleFile) train(preset string) (run scaleRun, err error) {
	run.Preset = preset
	m := ampc.New("scales")
	defer m.Close()
	h := m.Input("x", ampc.F32, scaleRows, scaleWidth)
	for i := 0; i < len(f.Params); i += 2 {
		if i > 0 {
			h = m.Relu(h)
		}
		h = m.Linear(layerName(i), h, f.Params[i].Shape[1])
	}
	policy, err := ampc.PolicyNamed(preset)
	if err != nil {
		return run, err
	}
	scaler, _ := ampc.ScalerNamed("torch")
	scaler.Every = f.Every
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(f.Rate), Policy: policy, Scaler: scaler},
		ampc.Loss{Value: m.CrossEntropy(h, m.Input("y", ampc.I32, scaleRows))})
	if err != nil {
		return run, err
	}
	for i, p := range f.Params {
		if err := m.SetVariable(layerName(i)+[]string{".w", ".b"}[i%2], p.Data); err != nil {
			return run, err
		}
	}
	for k := range scaleSteps {
		b := f.Batches[k%len(f.Batches)]
		labels := make([]int32, scaleRows)
		for i, v := range b[1].Data {
			labels[i] = int32(v)
		}
		r, err := step.Run(context.Background(), ampc.Feed{"x": b[0].Data, "y": labels})
		if err != nil {
			return run, err
		}
		got, err := r.Wait(context.Background())
		if err != nil {
			return run, err
		}
		run.Scale, run.Loss, run.Skipped = append(run.Scale, number(got.Scale)), append(run.Loss, number(got.Loss)), append(run.Skipped, got.Skipped)
	}
	return run, nil
}

// layerName is the layer of weight or bias i.
func layerName(i int) string { return fmt.Sprintf("fc%d", i/2+1) }
