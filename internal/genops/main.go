// Command genops writes the facade's op methods (ops_gen.go in the root) from
// the signatures and comments of ir.Builder's op methods. Run it with `go
// generate .` in the root; TestGeneratedOps fails when the file is stale.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: genops IRDIR OUT")
		os.Exit(2)
	}
	text, err := Generate(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "genops:", err)
		os.Exit(1)
	}
}
