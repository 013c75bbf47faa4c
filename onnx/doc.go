// Package onnx reads ONNX models: the file format, and the translation of a
// graph into ours.
//
// Open reads a model in place from a memory-mapped file: strings are copied,
// tensors stay slices of the file. Import makes a graph of it that is forward
// only and static; its weights are declared as slices of the file, which are read
// when the graph runs. One table (Rows) says which operators of which opset
// versions are understood and how.
//
// The format is onnx.proto of github.com/onnx/onnx, its meaning Operators.md
// there.
package onnx
