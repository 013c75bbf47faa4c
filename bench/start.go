package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/models"
)

// recipe is what a start file's metadata says beside its tensors: everything
// that both sides must do alike.
type recipe struct {
	Model     string         `json:"model"` // without options
	Spec      string         `json:"spec"`
	Options   models.Options `json:"options"`
	Optimizer string         `json:"optimizer"` // sgd or adamw
	LR        float64        `json:"lr"`
	Momentum  float64        `json:"momentum"`
	Beta1     float64        `json:"beta1"`
	Beta2     float64        `json:"beta2"`
	Eps       float64        `json:"eps"`
	Decay     float64        `json:"decay"`
	ClipNorm  float64        `json:"clip_norm"` // 0: none
	Scale     float64        `json:"scale"`     // of the loss in f16, at start
	Every     int64          `json:"every"`     // clean steps before it doubles
	Batches   int            `json:"batches"`
	Unit      string         `json:"unit"`     // what throughput counts
	PerStep   int            `json:"per_step"` // of them in a batch
}

// Tensors of a start file: parameters and running statistics by their names,
// inputs by batch.
func startName(variable string) string             { return "start." + variable }
func batchName(batch int, input string) string     { return fmt.Sprintf("batch%d.%s", batch, input) }
func isStart(tensor string) (name string, ok bool) { return strings.CutPrefix(tensor, "start.") }

const recipeKey = "recipe"

// writeStart draws a model's initial values and some batches, as files with
// seed 1 have them.
func writeStart(spec, path string, batches int) error {
	if batches < 1 {
		return fmt.Errorf("--batches %d: want at least 1", batches)
	}
	z, err := models.Open(spec)
	if err != nil {
		return err
	}
	r, err := recipeOf(z, spec, batches)
	if err != nil {
		return err
	}
	var tensors []safetensors.Tensor
	g := z.Model.Graph()
	for _, v := range g.Vars {
		if v.Kind != ir.Param && (v.Kind != ir.State || v.Attr.Get("role") != nil) {
			continue
		}
		x, err := eval.InitVar(v, 1)
		if err != nil {
			return err
		}
		tensors = append(tensors, tensor(startName(v.Name), v.Type, x.Bytes()))
	}
	for i := range batches {
		for name, data := range z.Batch(int64(i)) {
			x, err := bytesOf(data)
			if err != nil {
				return fmt.Errorf("%s: input %s: %w", spec, name, err)
			}
			tensors = append(tensors, tensor(batchName(i, name), g.Var(name).Type, x))
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return safetensors.WriteFile(path, map[string]string{recipeKey: string(text)}, tensors)
}

// recipeOf is how the model's own training step trains.
func recipeOf(z *models.Zoo, spec string, batches int) (recipe, error) {
	if len(z.Steps) != 1 || len(z.Steps[0].Config.Groups) > 0 {
		return recipe{}, fmt.Errorf("zoo:%s: it has several steps or groups of parameters", spec)
	}
	c := z.Steps[0].Config
	o, scaler := c.Optimizer, ampc.Dynamic()
	r := recipe{Model: z.Name, Spec: spec, Options: z.Options, Optimizer: o.Algorithm.String(), LR: c.LR.Rate, Momentum: o.Momentum,
		Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: o.Decay, ClipNorm: c.Clip.Norm, Scale: scaler.Init, Every: scaler.Every,
		Batches: batches, Unit: "images", PerStep: z.Options.Int("batch")}
	seq, ahead := z.Options.Int("seq"), z.Options.Int("ahead")
	switch {
	case ahead > 0:
		r.Unit, r.PerStep = "frames", r.PerStep*(seq+ahead)
	case seq > 0:
		r.Unit, r.PerStep = "tokens", r.PerStep*seq
	}
	return r, nil
}

func tensor(name string, t ir.Type, data []byte) safetensors.Tensor {
	shape := []int64{}
	for _, d := range t.Shape.Dims() {
		shape = append(shape, int64(d))
	}
	return safetensors.Tensor{Name: name, DType: safetensors.Named(t.DType.String()), Shape: shape, Write: safetensors.Bytes(data)}
}

// bytesOf lays out what Batch makes.
func bytesOf(data any) ([]byte, error) {
	switch x := data.(type) {
	case []float32:
		return littleEndian(x)
	case []int32:
		return littleEndian(x)
	}
	return nil, fmt.Errorf("%T is neither []float32 nor []int32", data)
}

// start is a start file that has been read.
type start struct {
	recipe
	variables map[string][]byte
	batches   []map[string][]byte
}

func readStart(path string) (*start, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &start{variables: map[string][]byte{}}
	if err := json.Unmarshal([]byte(f.Meta[recipeKey]), &s.recipe); err != nil {
		return nil, fmt.Errorf("%s: no start file: metadata %q: %w", path, recipeKey, err)
	}
	for range s.Batches {
		s.batches = append(s.batches, map[string][]byte{})
	}
	for _, info := range f.Tensors {
		data := make([]byte, info.Bytes())
		if err := f.Read(info.Name, data); err != nil {
			return nil, err
		}
		if name, ok := isStart(info.Name); ok {
			s.variables[name] = data
			continue
		}
		var batch int
		number, input, _ := strings.Cut(info.Name, ".")
		if _, err := fmt.Sscanf(number, "batch%d", &batch); err != nil || batch >= s.Batches {
			return nil, fmt.Errorf("%s: tensor %s belongs to no batch", path, info.Name)
		}
		s.batches[batch][input] = data
	}
	return s, nil
}
