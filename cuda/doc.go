// Package cuda binds the NVIDIA driver, cuBLASLt and the cuDNN backend without cgo. It finds and
// opens the libraries at run time; a program that never calls Open needs none of them.
//
// Driver and Blas are the interfaces that the runtime calls. Open implements Driver for a real
// device, package cuda/sim for a simulated one. This package knows no graphs, kernels or programs.
//
// A CUDA context belongs to an operating-system thread. Call Bind on the goroutine that drives a
// device before anything else; a stream capture must begin and end on the same one.
package cuda
