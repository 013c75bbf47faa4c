// Package host runs ONNX models whose sizes are known only when they run. It cuts
// a model into regions, each of which is compiled as a program for the types of
// what is fed, and runs between them what has no static form: loops, branches that
// depend on data, sequences, and operators whose results have as many elements as
// the data says.
//
// A region is found by importing: nodes join it until nothing is left whose sizes are
// known. Its program is kept for the types of its operands and, where a shape, an
// axis or a bound was made from their elements, for these elements (its guards).
package host
