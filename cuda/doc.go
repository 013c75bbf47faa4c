// Package cuda binds the NVIDIA driver, cuBLASLt and the cuDNN backend without cgo: libraries are
// found and opened at run time, and a program that never calls Open needs none of them.
//
// Driver and Blas are the calls the runtime makes; Open returns them on a real device, package
// cuda/sim on a simulated one. Nothing here knows graphs, kernels or programs.
//
// A CUDA context belongs to an operating-system thread. Call Bind on the goroutine that drives a
// device before anything else; a stream capture must begin and end on the same one.
package cuda
