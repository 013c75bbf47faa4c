package onnx_test

import (
	"bytes"
	"math"
	"os"
	"testing"

	"ampc/internal/golden"
)

// sample is a classifier of four numbers with a batch N: hidden = relu(x·w1 + b1),
// y = hidden·w2 + b2, p = softmax(y).
func sample() []byte {
	wave := func(n int, step float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Round(64*math.Sin(step*float64(i+1))) / 64)
		}
		return x
	}
	g := msg(nil).str(2, "mlp").
		raw(1, nodeOf("Gemm", []string{"x", "w1", "b1"}, []string{"h"})).
		raw(1, nodeOf("Relu", []string{"h"}, []string{"hidden"})).
		raw(1, nodeOf("Gemm", []string{"hidden", "w2", "b2"}, []string{"y"}, intAttr("transB", 1))).
		raw(1, nodeOf("Softmax", []string{"y"}, []string{"p"})).
		raw(5, tensorOf("w1", []int64{4, 8}, wave(32, 0.7)...)).raw(5, tensorOf("b1", []int64{8}, wave(8, 0.3)...)).
		raw(5, tensorOf("w2", []int64{3, 8}, wave(24, 1.1)...)).raw(5, tensorOf("b2", []int64{3}, wave(3, 0.9)...)).
		raw(11, infoOf("x", 1, "N", 4)).raw(12, infoOf("p", 1, "N", 3))
	return modelOf(g)
}

// product is x·x of a matrix of any size: as much work as a test wants.
func product() []byte {
	return modelOf(msg(nil).str(2, "product").raw(1, nodeOf("MatMul", []string{"x", "x"}, []string{"y"})).raw(11, infoOf("x", 1, "N", "N")).raw(12, infoOf("y", 1, "N", "N")))
}

// positive is twice the elements of x above zero, found by NonZero.
func positive() []byte {
	g := msg(nil).str(2, "positive").
		raw(1, nodeOf("Relu", []string{"x"}, []string{"r"})).
		raw(1, nodeOf("NonZero", []string{"r"}, []string{"at"})).
		raw(1, nodeOf("Transpose", []string{"at"}, []string{"rows"})).
		raw(1, nodeOf("GatherND", []string{"r", "rows"}, []string{"picked"})).
		raw(1, nodeOf("Add", []string{"picked", "picked"}, []string{"y"})).
		raw(11, infoOf("x", 1, "N")).raw(12, infoOf("y", 1, "K"))
	return modelOf(g)
}

// The models of testdata, which other tests and the documentation use, are what
// these functions say.
func TestSample(t *testing.T) {
	for path, want := range map[string][]byte{"testdata/mlp.onnx": sample(), "testdata/product.onnx": product(), "testdata/positive.onnx": positive()} {
		if golden.Updating() {
			if err := os.WriteFile(path, want, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%s is stale: go test ./onnx -run TestSample -update", path)
		}
	}
}
