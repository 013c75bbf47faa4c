package ampc

import (
	"slices"
	"strings"
)

// Option changes a layer from its default. A layer that does not know an
// option reports it as a mistake.
type Option struct {
	name string
	set  func(*layerOptions)
}

type layerOptions struct {
	bias, causal, bidirectional bool
	stride, padding, dilation   int
	groups, kvHeads, ignore     int
	eps, momentum, smoothing    float64
	init                        *Init
	memory, mask, weights       Tensor
	state                       []Tensor
	activation                  string
}

// NoBias leaves the bias out.
func NoBias() Option { return Option{"NoBias", func(o *layerOptions) { o.bias = false }} }

// WeightInit sets how the layer's weights start.
func WeightInit(i *Init) Option { return Option{"WeightInit", func(o *layerOptions) { o.init = i }} }

// Stride moves a convolution's window by n elements in each dimension.
func Stride(n int) Option { return Option{"Stride", func(o *layerOptions) { o.stride = n }} }

// Padding adds n zeros on each side of each spatial dimension.
func Padding(n int) Option { return Option{"Padding", func(o *layerOptions) { o.padding = n }} }

// Dilation spreads a convolution's window by n.
func Dilation(n int) Option { return Option{"Dilation", func(o *layerOptions) { o.dilation = n }} }

// ConvGroups splits a convolution's channels into n groups that do not mix.
func ConvGroups(n int) Option { return Option{"ConvGroups", func(o *layerOptions) { o.groups = n }} }

// Causal lets each position attend to itself and those before it only.
func Causal() Option { return Option{"Causal", func(o *layerOptions) { o.causal = true }} }

// KVHeads gives keys and values fewer heads than queries (grouped-query attention).
func KVHeads(n int) Option { return Option{"KVHeads", func(o *layerOptions) { o.kvHeads = n }} }

// Memory takes keys and values from another sequence (cross attention).
func Memory(kv Tensor) Option { return Option{"Memory", func(o *layerOptions) { o.memory = kv }} }

// Mask adds a tensor, broadcast to [batch, heads, queries, keys], to the scores.
func Mask(mask Tensor) Option { return Option{"Mask", func(o *layerOptions) { o.mask = mask }} }

// Eps sets the constant a norm adds to the variance.
func Eps(x float64) Option { return Option{"Eps", func(o *layerOptions) { o.eps = x }} }

// Momentum sets how much of a batch's statistics enters the running ones.
func Momentum(x float64) Option { return Option{"Momentum", func(o *layerOptions) { o.momentum = x }} }

// Ignore names the label that a loss leaves out of sum and count.
func Ignore(label int) Option { return Option{"Ignore", func(o *layerOptions) { o.ignore = label }} }

// ClassWeights multiplies the term of each class by one of w[classes], in f32,
// and the mean divides by the sum of the weights of the labels. It is torch's
// CrossEntropyLoss(weight=w), also beside Ignore and Smoothing. No gradient
// flows into w.
func ClassWeights(w Tensor) Option {
	return Option{"ClassWeights", func(o *layerOptions) { o.weights = w }}
}

// PosWeight multiplies the terms of target 1 by w, which broadcasts to the logits.
func PosWeight(w Tensor) Option {
	return Option{"PosWeight", func(o *layerOptions) { o.weights = w }}
}

// Smoothing spreads a share of each label's weight over all classes.
func Smoothing(x float64) Option {
	return Option{"Smoothing", func(o *layerOptions) { o.smoothing = x }}
}

// Bidirectional runs a recurrent layer both ways and joins the results.
func Bidirectional() Option {
	return Option{"Bidirectional", func(o *layerOptions) { o.bidirectional = true }}
}

// Nonlinearity chooses what a plain RNN applies to its state: "tanh", the default, or "relu".
func Nonlinearity(name string) Option {
	return Option{"Nonlinearity", func(o *layerOptions) { o.activation = name }}
}

// InitialState starts a recurrent layer from h (GRU, RNN) or h and c (LSTM).
func InitialState(s ...Tensor) Option {
	return Option{"InitialState", func(o *layerOptions) { o.state = s }}
}

// layer opens a layer: it checks the name and the options and returns the
// model in the layer's scope. It reports false after any earlier mistake.
func (m *Model) layer(kind, name string, opts []Option, known ...string) (*Model, layerOptions, bool) {
	o := layerOptions{bias: true, activation: "tanh", stride: 1, dilation: 1, groups: 1, eps: 1e-5, momentum: 0.1}
	if m.Err() != nil {
		return nil, o, false
	}
	full := m.ScopeName() + name
	if next := m.b.NextName(); next != "" {
		m.Fail("%s %q: a layer names its result itself, Named(%q) has no use before it: leave one of the names out", kind, full, next)
		return nil, o, false
	}
	if first, taken := m.layers[full]; taken && !m.reuse {
		m.Fail("%s %q: the name is taken by the layer at %s: choose another, or apply one layer many times with Shared", kind, full, first)
		return nil, o, false
	}
	if name == "" || strings.ContainsAny(name, " \t\n'%") {
		m.Fail("%s %q: a layer's name is a word", kind, full)
		return nil, o, false
	}
	m.layers[full] = userLine()
	return m.Scope(name), o, m.choose(kind, full, opts, &o, known...)
}

// choose applies options that the layer knows; any other is a mistake.
func (m *Model) choose(kind, name string, opts []Option, o *layerOptions, known ...string) bool {
	for _, option := range opts {
		if !slices.Contains(known, option.name) {
			m.Fail("%s %q: takes no option %s", kind, name, option.name)
			return false
		}
		option.set(o)
	}
	return m.Err() == nil
}
