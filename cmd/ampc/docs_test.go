package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/golden"
)

// What the pages show is what the commands print: ampc's and those of the
// examples, in pipes where a page shows a part.
func TestPages(t *testing.T) {
	bin, tmp := t.TempDir(), t.TempDir()
	for name, pkg := range map[string]string{"ampc": ".", "example": "../../examples"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, name), pkg).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", pkg, err, out)
		}
	}
	run := func(t *testing.T, command string) string {
		command = strings.ReplaceAll(command, "go run ./cmd/ampc", "ampc")
		command = strings.ReplaceAll(command, "go run ./examples", "example")
		c := exec.Command("sh", "-c", "{ "+command+"; } 2>&1")
		c.Dir, c.Env = "../..", append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+tmp)
		out, err := c.CombinedOutput()
		if _, exited := err.(*exec.ExitError); err != nil && !exited {
			t.Errorf("%s: %v", command, err)
		}
		return string(out)
	}
	for _, page := range []string{"README.md", "docs/amp.md", "docs/cli.md", "docs/onnx.md", "docs/view.md"} {
		t.Run(page, func(t *testing.T) { golden.Page(t, "../../"+page, run) })
	}
}
