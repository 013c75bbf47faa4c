package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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

// An op that is left to a method written by hand has one.
func TestWrittenOps(t *testing.T) {
	paths, err := filepath.Glob("../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	for _, name := range written {
		if !regexp.MustCompile(`\bb\b[^\n]*\.` + name + `\(|ir\.Op` + name + `\b|func \(o ops\) ` + name + `\(`).Match(all) {
			t.Errorf("ir.Builder.%s: no method of the facade calls it", name)
		}
	}
}
