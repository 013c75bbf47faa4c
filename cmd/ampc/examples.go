package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are the command lines in the help of each command. A test runs all except slowExamples.
var examples = map[string][]string{
	"ampc":       {"ampc dump zoo:mlp", "ampc why zoo:mlp fc1"},
	"dump":       {"ampc dump zoo:mlp", "ampc dump 'zoo:gpt?layers=1&dim=64' --policy mixed-bf16 --after amp", "ampc dump zoo:mlp --stage ptx --target sm_90"},
	"why":        {"ampc why zoo:mlp fc1", "ampc why zoo:mlp --diff-policy mixed-f16 o1-f16"},
	"view":       {"ampc view zoo:mlp", "ampc view 'zoo:gpt?layers=2' --policy mixed-bf16 -o graph.html", "ampc view bad.ampc"},
	"why-not":    {"ampc why-not zoo:mlp", "ampc why-not zoo:mlp loss f16"},
	"ops":        {"ampc ops", "ampc ops matmul softmax --json"},
	"passes":     {"ampc passes"},
	"policy":     {"ampc policy", "ampc policy mixed-f16", "ampc policy torch-f16 --diff mixed-f16"},
	"plan":       {"ampc plan zoo:mlp", "ampc plan zoo:mlp --fit 64MB --policy mixed-f16"},
	"convert":    {"ampc convert model.onnx half.onnx --dim N=8", "ampc convert model.onnx half.onnx --calibrate data --max-error 1e-3 --save-policy found", "ampc convert model.onnx half.onnx --input x=cat.npy --keep head --max-error 1e-3"},
	"export":     {"ampc export zoo:mlp mlp.onnx", "ampc export 'zoo:gpt?batch=1&layers=1' gpt.onnx --policy mixed-f16", "ampc export digits lenet.onnx"},
	"prove":      {"ampc prove 'zoo:gpt?layers=1&dim=32&seq=16'"},
	"ranges":     {"ampc ranges zoo:mlp --range x=-3..3 --all", "ampc ranges 'zoo:mlp?batch=4&hidden=32' --record 2"},
	"doctor":     {"ampc doctor 'zoo:mlp?batch=4&hidden=32'", "ampc doctor zoo:mlp --scaler 16777216 --save bad.ampc", "ampc doctor bad.ampc --json"},
	"generate":   {"ampc generate gpt2 --prompt \"Once upon a time\" --top-p 0.9", "ampc generate out --prompt \"func main\" --seed 7"},
	"run":        {"ampc run zoo:mlp --infer --out results.safetensors", "ampc run zoo:mlp --steps 3 --json"},
	"train":      {"ampc train", "ampc train zoo:lenet --data digits.csv --steps 500 --out digits", "ampc train --resume digits"},
	"bench":      {"ampc bench zoo:mlp --steps 2", "ampc bench 'zoo:gpt?batch=4' --policy mixed-bf16 --profile"},
	"advise":     {"ampc advise zoo:gpt --steps 60 --policies f32,mixed-f16,mixed-bf16"},
	"compare":    {"ampc compare zoo:mlp --steps 0", "ampc compare zoo:gpt --json"},
	"devices":    {"ampc devices"},
	"version":    {"ampc version"},
	"completion": {"source <(ampc completion bash)"},
}

// slowExamples train for too long for a test, need data, weights or a shell, or run until they are
// interrupted.
var slowExamples = map[string]bool{
	"ampc convert model.onnx half.onnx --dim N=8": true, "ampc convert model.onnx half.onnx --calibrate data --max-error 1e-3 --save-policy found": true, "ampc convert model.onnx half.onnx --input x=cat.npy --keep head --max-error 1e-3": true,
	"ampc export digits lenet.onnx": true, "ampc train": true, "ampc train zoo:lenet --data digits.csv --steps 500 --out digits": true, "ampc train --resume digits": true,
	"ampc advise zoo:gpt --steps 60 --policies f32,mixed-f16,mixed-bf16": true, "ampc compare zoo:gpt --json": true,
	"ampc bench 'zoo:gpt?batch=4' --policy mixed-bf16 --profile": true, "source <(ampc completion bash)": true,
	"ampc view zoo:mlp": true, "ampc view bad.ampc": true,
	"ampc generate gpt2 --prompt \"Once upon a time\" --top-p 0.9": true, "ampc generate out --prompt \"func main\" --seed 7": true,
}

// addExamples adds the examples to the help of a command and of its subcommands.
func addExamples(c *cobra.Command) {
	if lines := examples[c.Name()]; lines != nil {
		c.Example = "  " + strings.Join(lines, "\n  ")
	}
	for _, sub := range c.Commands() {
		addExamples(sub)
	}
}
