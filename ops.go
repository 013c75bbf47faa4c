package ampc

import "ampc/ir"

// ops is what builds: every op of the op set is a method of it. A Model embeds
// it, and so does Update. Methods whose attributes fit their parameters are
// generated from those of ir.Builder (ops_gen.go); those with options stand in
// the files ops_*.go. Options are a struct, given at most once; its zero fields
// are the defaults.
type ops struct{ b *ir.Builder }

//go:generate go run ./internal/genops ir ops_gen.go

func (o ops) tensor(v *ir.Value) Tensor {
	if v == nil {
		return Tensor{}
	}
	return Tensor{o.b.Graph(), v}
}

func (o ops) tensors(v []*ir.Value) []Tensor {
	out := make([]Tensor, len(v))
	for i, x := range v {
		out[i] = o.tensor(x)
	}
	return out
}

func values(t []Tensor) []*ir.Value {
	out := make([]*ir.Value, len(t))
	for i, x := range t {
		out[i] = x.v
	}
	return out
}

func wide(n []int) []int64 {
	out := make([]int64, len(n))
	for i, x := range n {
		out[i] = int64(x)
	}
	return out
}

// option returns what a call was given as its options, the zero T for nothing.
func option[T any](o ops, op string, opts []T) T {
	switch len(opts) {
	case 0:
		return *new(T)
	case 1:
	default:
		o.Fail("%s: options are given %d times, want once", op, len(opts))
	}
	return opts[0]
}

// Err returns the first mistake made while building, with the line that made
// it; nil where there is none. Train and Infer return it too.
func (o ops) Err() error { return o.b.Err() }

// Fail records a mistake of the caller's own, such as a width that a layer of
// theirs cannot have. The first mistake stays; calls after it build nothing.
func (o ops) Fail(format string, args ...any) { o.b.Fail(format, args...) }

// IR returns the builder of the compiler's own graph that the methods build
// with, for code that speaks ir; Tensor.IR and FromIR lead from and to its values.
func (o ops) IR() *ir.Builder { return o.b }

// FromIR returns the tensor that stands for a value of the graph being built;
// the zero Tensor for nil.
func (o ops) FromIR(v *ir.Value) Tensor { return o.tensor(v) }
