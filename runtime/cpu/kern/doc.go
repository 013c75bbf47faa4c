// Package kern holds the numeric kernels of the CPU backend: matrix products, convolutions, attention, row
// kernels and vector primitives over typed byte buffers. It knows shapes and strides, not graphs.
//
// A [Path] is one set of kernels: "avx512", "avx2" or "go". [Detect] picks the best one the processor runs,
// or the one AMPC_CPU names; [Paths] lists them all, so one process can test each. A [Machine] is a path with
// a worker pool and scratch memory; its methods run one at a time and allocate nothing once warm.
//
// Storage is f32, f16 or bf16; arithmetic is f32. Halves are widened while operands are packed, results are
// rounded once (to nearest even) when they are stored. A product is one chain of fused multiply-adds over k in
// ascending order, however the work is blocked, so results depend neither on the number of threads nor, between
// the vector paths, on the vector width. Reductions use 64 partial sums and one tree on every path.
package kern
