// Package gputest checks the kernels and bindings on a real GPU. Its test binary needs no Go on the
// machine it runs on: build it with bench/gpu/build.sh, carry it, run it there. Without a device
// the checks run on the simulator, and so do the measurements, with small sizes and without times;
// with AMPC_NEED_GPU=1 a missing device is a failure. bench/gpu/run.sh says which test answers
// which question.
package gputest
