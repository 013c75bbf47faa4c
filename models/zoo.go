// Package models is a zoo of small, complete models for training, dumps and
// tests. Each brings its inputs, losses, metrics and a default optimizer.
//
// A model is opened by name with options in the manner of a query string:
// "gpt?layers=2&dim=64&batch=8&seq=32".
package models

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"ampc"
)

// Zoo is an opened model.
type Zoo struct {
	Name    string // without options
	Model   *ampc.Model
	Options Options
	Steps   []Step                 // what to train; most models have one step
	Metrics map[string]ampc.Tensor // more results of an evaluation, by name
	Output  ampc.Tensor            // what inference returns
}

// Step is one training step over the model's variables.
type Step struct {
	Name   string
	Losses []ampc.Loss
	Config ampc.TrainConfig // the default optimizer; the caller adds policy and backend
}

// Options are a model's numbers by name.
type Options map[string]float64

// Int returns an option that counts something.
func (o Options) Int(name string) int { return int(o[name]) }

// entry is one model of the zoo.
type entry struct {
	doc      string
	defaults Options
	build    func(z *Zoo, o Options)
}

func zoo() map[string]entry {
	return map[string]entry{
		"mlp":     {"a multi-layer perceptron on flat images", Options{"batch": 64, "in": 784, "hidden": 256, "layers": 1, "classes": 10}, mlp},
		"lenet":   {"LeNet-5 with ReLU and max pooling", Options{"batch": 64, "size": 28, "channels": 1, "classes": 10, "conv1": 6, "conv2": 16, "pad": 2, "fc1": 120, "fc2": 84}, lenet},
		"resnet":  {"ResNet-18 in its form for 32x32 images", resnetOptions(64, 2, 2, 2, 2), resnet},
		"resnet8": {"a ResNet with one block in each of three stages", resnetOptions(16, 1, 1, 1, 0), resnet},
		"resnet50": {"ResNet-50 for 224x224 images", Options{"batch": 256, "size": 224, "channels": 3, "classes": 1000, "width": 64,
			"blocks1": 3, "blocks2": 4, "blocks3": 6, "blocks4": 3}, resnet50},
		"gpt":    {"a decoder-only transformer with tied embeddings and learned positions", Options{"batch": 8, "seq": 64, "vocab": 96, "layers": 4, "heads": 4, "dim": 128, "dropout": 0, "tanh": 0}, gpt},
		"gpt2":   {"GPT-2 with its 124 million parameters", Options{"batch": 16, "seq": 1024, "vocab": 50257, "layers": 12, "heads": 12, "dim": 768, "dropout": 0, "tanh": 1}, gpt},
		"lstm":   {"a character-level LSTM language model", Options{"batch": 8, "seq": 32, "vocab": 96, "layers": 1, "dim": 128}, lstm},
		"bert":   {"a bidirectional transformer trained on masked tokens", Options{"batch": 8, "seq": 64, "vocab": 1000, "layers": 2, "heads": 4, "dim": 128, "dropout": 0.1}, bert},
		"unet":   {"a U-Net that predicts noise", Options{"batch": 4, "size": 32, "channels": 3, "width": 32, "levels": 2}, unet},
		"unet3d": {"a 3-D U-Net that segments volumes", Options{"batch": 2, "depth": 16, "size": 16, "channels": 1, "classes": 3, "width": 16, "levels": 2}, unet3d},
		"convlstm": {"a convolutional LSTM that predicts the next frames of a video", Options{"batch": 4, "seq": 6, "ahead": 4, "size": 16, "channels": 1,
			"width": 32, "layers": 2, "kernel": 3}, convlstm},
		"vit": {"a vision transformer", Options{"batch": 16, "size": 32, "channels": 3, "patch": 4, "layers": 2, "heads": 4, "dim": 128, "classes": 10}, vit},
		"gan": {"two perceptrons trained against each other, a step each", Options{"batch": 32, "noise": 16, "in": 64, "hidden": 64}, gan},
	}
}

// Names lists the zoo with one sentence each.
func Names() [][2]string {
	z := zoo()
	var out [][2]string
	for _, name := range slices.Sorted(maps.Keys(z)) {
		out = append(out, [2]string{name, z[name].doc})
	}
	return out
}

// Open builds the model that spec names, with options as ampc.New takes them. Errors are one line; mistakes in the
// options list what the model takes.
func Open(spec string, opts ...ampc.ModelOption) (*Zoo, error) {
	name, query, _ := strings.Cut(spec, "?")
	e, ok := zoo()[name]
	if !ok {
		return nil, fmt.Errorf("zoo:%s: no such model; there are %s", name, strings.Join(slices.Sorted(maps.Keys(zoo())), ", "))
	}
	o, err := e.options(query)
	if err != nil {
		return nil, fmt.Errorf("zoo:%s: %w", name, err)
	}
	z := &Zoo{Name: name, Model: ampc.New(name, opts...), Options: o, Metrics: map[string]ampc.Tensor{}}
	e.build(z, o)
	if err := z.Model.Err(); err != nil {
		return nil, fmt.Errorf("zoo:%s: %w", spec, err)
	}
	return z, nil
}

// options merges a query into the defaults.
func (e entry) options(query string) (Options, error) {
	o := maps.Clone(e.defaults)
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		if _, known := e.defaults[key]; !known {
			return nil, fmt.Errorf("no option %q; it takes %s", key, e.defaults)
		}
		x, err := strconv.ParseFloat(value, 64)
		least := 1.0
		if e.defaults[key] == 0 || mayBeZero(key) {
			least = 0
		}
		switch {
		case key == "dropout":
			if err != nil || !(x >= 0 && x < 1) {
				return nil, fmt.Errorf("option %s=%s: want a share from 0 to below 1", key, value)
			}
		case err != nil || x != math.Trunc(x) || x < least || x > MaxOption:
			return nil, fmt.Errorf("option %s=%s: want a whole number from %g to %d", key, value, least, MaxOption)
		}
		o[key] = x
	}
	return o, nil
}

// MaxOption is the largest size an option takes: products of a few of them do not overflow.
const MaxOption = 1 << 24

// mayBeZero says which counts may be none: layers that can be left out.
func mayBeZero(key string) bool {
	return strings.HasPrefix(key, "blocks") || key == "pad" || key == "fc2"
}

// String lists the options in order of name, as a query.
func (o Options) String() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(o)) {
		parts = append(parts, fmt.Sprintf("%s=%g", k, o[k]))
	}
	return strings.Join(parts, "&")
}

// train makes the usual single step.
func (z *Zoo) train(loss ampc.Tensor, c ampc.TrainConfig) {
	z.Steps = []Step{{Name: "train", Losses: []ampc.Loss{{Value: loss}}, Config: c}}
}

// classify finishes a classifier: cross entropy over labels, the number of right answers as a metric.
func (z *Zoo) classify(logits ampc.Tensor, c ampc.TrainConfig) {
	m := z.Model
	labels := m.Input("y", ampc.I32, z.Options.Int("batch"))
	z.Output = logits
	z.train(m.Named("loss").CrossEntropy(logits, labels), c)
	z.Metrics["correct"] = correct(m, logits, labels, -1)
}

// correct counts the images, or voxels, whose largest logit along an axis is at
// their label.
func correct(m *ampc.Model, logits, labels ampc.Tensor, axis int) ampc.Tensor {
	hit := m.Eq(m.Argmax(logits, axis), labels)
	return m.Named("correct").ReduceSum(m.Cast(hit, ampc.F32))
}

// small is how the weights of language models start.
var small = ampc.Normal(0, 0.02)

func sgd(rate float64) ampc.TrainConfig {
	return ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(rate)}
}

func adamw(rate float64) ampc.TrainConfig {
	return ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(rate), Clip: ampc.ClipNorm(1)}
}

// With is spec with one option set: With("gpt?layers=3", "batch", 8) is "gpt?layers=3&batch=8".
func With(spec, option string, value int64) string {
	name, query, _ := strings.Cut(spec, "?")
	var options []string
	for o := range strings.SplitSeq(query, "&") {
		if o != "" && !strings.HasPrefix(o, option+"=") {
			options = append(options, o)
		}
	}
	return name + "?" + strings.Join(append(options, fmt.Sprintf("%s=%d", option, value)), "&")
}
