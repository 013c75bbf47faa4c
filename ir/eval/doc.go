// Package eval says what every op means, in the plainest code: one short
// function per op over float64 slices. It is the oracle that kernels are held
// against, the folder of constants, and the page to read to learn an op.
//
// Exact rows run their elementwise code in f32, primitive by primitive.
// Bounded rows accumulate in float64. Either way a result is rounded once to
// f32 and once to its dtype, and nowhere else: an ideal that does not depend
// on any order of summation. With Options.Float64 nothing is rounded at all,
// which is what finite differences need.
package eval
