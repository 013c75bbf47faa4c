// Package arch_test holds the rules that the whole module keeps: which package
// imports which, sizes of files and functions, one table row per op, what a
// user's program links, licences.
package arch_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests in the module's root: they read its files.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
