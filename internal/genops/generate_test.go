package main

import (
	"bytes"
	"os"
	"testing"
)

// The generated file of the facade is what the sources of package ir give now.
func TestGeneratedOps(t *testing.T) {
	want, err := Generate("../../ir")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../ops_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("ops_gen.go is stale: run `go generate .` in the root")
	}
}
