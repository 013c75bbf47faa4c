// Package kern holds the numeric kernels of the CPU backend: matrix products, convolutions, attention, row
// kernels and vector primitives over typed byte buffers. It knows shapes and strides, not graphs.
//
// A [Path] is one set of kernels: "amx", "avx512bf16", "avx512", "avx2", "neon" or "go". [Detect] picks the best one
// that the processor runs, or the one that the environment variable AMPC_CPU names; AMPC_WINOGRAD=off disables
// Winograd's algorithm. [Paths] lists all paths, so that one process can test each. A [Machine] is a path with a worker
// pool and scratch memory. Its methods run one at a time and, after the first calls, allocate nothing.
//
// Storage is f32, f16 or bf16; arithmetic is f32. 16-bit operands are widened while they are packed. Results are
// rounded once, to nearest even, when they are stored. An element of a product is one chain of fused multiply-adds over
// k in ascending order, or the sum of several such chains of a fixed length ([Machine.Gemm]). The order does not depend
// on the blocking. So results depend neither on the number of threads nor, between the vector paths, on the vector
// width. Reductions use 64 partial sums and one tree on every path.
//
// Other orders of summation: a product of up to 8 rows with a transposed B uses 16 chains and a tree. Attention
// sums over blocks of keys. Batch norms sum planes of whole vectors in two vectors of the path. Convolutions of
// 3 x 3 taps and many channels are 16 or 36 products of transformed tiles. Some input gradients add up patches.
// "avx512bf16" adds the products of two bf16 operands in pairs, in an order that the processor chooses; "amx"
// adds 32 of them at a time, and multiplies an f32 operand of attention with a bf16 one in three exact parts.
//
// ampc/internal/gen generates the assembly. It has one source for the elementwise kernels of all vector paths, so they
// agree to the bit.
package kern
