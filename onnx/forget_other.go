//go:build !linux

package onnx

// forget does nothing: the system decides what stays in memory.
func forget([]byte) {}
