// Package goasm runs Go's assembler for the tests of encoders.
package goasm

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Bytes is what Go's assembler makes of a function without a frame that consists of the lines, for an
// architecture by its name in GOARCH. Zeros may follow the last instruction.
func Bytes(tb testing.TB, arch string, lines []string) (code []byte) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "x.s")
	if err := os.WriteFile(file, []byte("TEXT ·f(SB), 4, $0\n"+strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		tb.Fatal(err)
	}
	c := exec.Command("go", "tool", "asm", "-p", "x", "-S", "-o", file+".o", file)
	c.Env = append(os.Environ(), "GOARCH="+arch, "GOOS=linux")
	out, err := c.CombinedOutput()
	if err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) { // "\t0x0010 62 f1 ..." and their characters
		words, ok := strings.CutPrefix(line, "\t0x")
		if !ok || len(words) < 5 || words[4] != ' ' || strings.Contains(line, "x.s:") {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(words[5:min(52, len(words))], " ", ""))
		if err != nil {
			tb.Fatalf("%q: %v", line, err)
		}
		code = append(code, b...)
	}
	return code
}
