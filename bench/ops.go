package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"

	"ampc"
	"ampc/passes"
)

// torchPresets are the presets whose dtypes are compared.
var torchPresets = []string{"torch-f16", "torch-bf16", "torch-cpu-f16", "torch-cpu-bf16"}

// opResult is what bench/torch/ops.py reads of one case: operands, ampc's
// result and gradients on the CPU in f32, and the dtype of the result under
// every preset from f32 inputs and from 16-bit ones.
type opResult struct {
	Name   string               `json:"name"`
	Edge   bool                 `json:"edge,omitempty"`
	In     []opTensor           `json:"in"`
	Seed   []number             `json:"seed"` // the gradient of the result
	Y      []number             `json:"y"`
	Grads  [][]number           `json:"grads"` // by operand; null: an index, or none
	DTypes map[string][2]string `json:"dtypes"`
}

type opTensor struct {
	Kind  string   `json:"kind"`
	Shape []int    `json:"shape"`
	Data  []number `json:"data"`
}

// number is a float whose JSON knows NaN, infinities and -0.
type number float64

func (x number) MarshalJSON() ([]byte, error) {
	if v := float64(x); math.IsNaN(v) || math.IsInf(v, 0) || v == 0 && math.Signbit(v) {
		return fmt.Appendf(nil, "%q", fmt.Sprint(v)), nil
	}
	return json.Marshal(float64(x))
}

// writeOps runs every op of the comparison and writes what it gave.
func writeOps(path string) error {
	var all []opResult
	for _, c := range opCases() {
		r, err := c.result()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, r)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o666)
}

// draw fills the operands, the same in every run.
func (c opCase) draw() []opTensor {
	h := fnv.New64a()
	h.Write([]byte(c.name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	out := make([]opTensor, len(c.in))
	for i, in := range c.in {
		t := opTensor{Kind: in.kind, Shape: in.shape, Data: make([]number, size(in.shape))}
		for k := range t.Data {
			switch {
			case in.values != nil:
				t.Data[k] = number(in.values[k])
			case in.kind == "index":
				t.Data[k] = number(r.IntN(in.limit))
			case in.lo != in.hi:
				t.Data[k] = number(float32(in.lo + (in.hi-in.lo)*r.Float64()))
			default:
				t.Data[k] = number(float32(r.NormFloat64()))
			}
		}
		out[i] = t
	}
	return out
}

func size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// build makes the model of the case; low has a product under the preset make
// the inputs.
func (c opCase) build(low bool) (m *ampc.Model, v []ampc.Tensor, y ampc.Tensor) {
	m = ampc.New("op")
	var read []ampc.Tensor
	for i, in := range c.in {
		name, dims := fmt.Sprintf("in%d", i), make([]any, len(in.shape))
		for k, d := range in.shape {
			dims[k] = d
		}
		switch in.kind {
		case "index":
			v = append(v, m.Input(name, ampc.I32, dims...))
		case "weight", "given":
			v = append(v, m.Param(name, ampc.Zeros(), in.shape...))
		default:
			v = append(v, m.Input(name, ampc.F32, dims...))
		}
		x := v[i]
		if low && in.kind == "input" {
			x = m.Reshape(m.Matmul(m.Reshape(x, size(in.shape), 1), m.Param(name+".one", ampc.Zeros(), 1, 1)), in.shape...)
		}
		read = append(read, x)
	}
	return m, v, c.ours(m, read)
}

func (c opCase) result() (opResult, error) {
	r := opResult{Name: c.name, Edge: c.edge, In: c.draw(), Grads: make([][]number, len(c.in)), DTypes: map[string][2]string{}}
	if err := c.run(&r); err != nil {
		return r, err
	}
	for _, preset := range torchPresets {
		var d [2]string
		for i, low := range []bool{false, true} {
			name, err := c.decision(preset, low)
			if err != nil {
				return r, fmt.Errorf("%s: %w", preset, err)
			}
			d[i] = name
		}
		r.DTypes[preset] = d
	}
	return r, nil
}

// run computes the result and the gradients on the CPU.
func (c opCase) run(r *opResult) error {
	m, v, y := c.build(false)
	defer m.Close()
	if err := m.Err(); err != nil {
		return err
	}
	shape := y.Shape()
	seed := opCase{name: c.name + " seed", in: []opInput{between(0.5, 1.5, shape...)}}.draw()[0].Data
	r.Seed = seed
	dims := make([]any, len(shape))
	for i, d := range shape {
		dims[i] = d
	}
	dy := m.Input("dy", ampc.F32, dims...)
	out := []ampc.Tensor{y}
	var of []int
	if !c.flat {
		loss, wrt := m.ReduceSum(m.Mul(y, dy)), []ampc.Tensor{}
		for i, in := range c.in {
			if in.kind == "input" || in.kind == "weight" {
				of, wrt = append(of, i), append(wrt, v[i])
			}
		}
		out = append(out, m.Grad(loss, wrt...)...)
	}
	step, err := m.Infer(ampc.InferConfig{}, out...)
	if err != nil {
		return err
	}
	feed := ampc.Feed{}
	for i, in := range r.In {
		switch in.Kind {
		case "index":
			feed[v[i].Name()] = ints(in.Data)
		case "input":
			feed[v[i].Name()] = floats(in.Data)
		default:
			err = m.SetVariable(v[i].Name(), floats(in.Data))
		}
		if err != nil {
			return err
		}
	}
	if !c.flat {
		feed["dy"] = floats(seed)
	}
	done, err := step.Run(context.Background(), feed)
	if err != nil {
		return err
	}
	if r.Y, err = numbers(done, y); err != nil {
		return err
	}
	for k, i := range of {
		if r.Grads[i], err = numbers(done, out[1+k]); err != nil {
			return err
		}
	}
	return nil
}

// decision is the dtype that the preset stores the op's result in.
func (c opCase) decision(preset string, low bool) (string, error) {
	p, err := passes.PolicyNamed(preset)
	if err != nil {
		return "", err
	}
	m, _, y := c.build(low)
	defer m.Close()
	if err := m.Err(); err != nil {
		return "", err
	}
	g := m.Graph().Clone()
	if err := passes.Run(g, passes.Config{Policy: p, Debugging: passes.Debugging{Only: []string{"amp"}}}); err != nil {
		return "", err
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Name == y.Name() {
				return v.Type.DType.String(), nil
			}
		}
	}
	return "", fmt.Errorf("%s is not in the compiled graph", y)
}

func floats(x []number) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

func ints(x []number) []int32 {
	out := make([]int32, len(x))
	for i, v := range x {
		out[i] = int32(v)
	}
	return out
}

func numbers(r *ampc.Result, t ampc.Tensor) ([]number, error) {
	h, err := r.Value(t)
	if err != nil {
		return nil, err
	}
	out := make([]number, h.Len())
	for i := range out {
		out[i] = number(h.At(i))
	}
	return out, nil
}
