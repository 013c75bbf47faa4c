package golden

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Page checks a page of documentation: in every fenced block, a line that begins
// with "$ " is a command, and what follows, up to the next command or the end of
// the block, is what it prints. Blank lines around an output do not count. Under
// -update the outputs are rewritten.
func Page(t *testing.T, path string, run func(t *testing.T, command string) string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := rerun(string(old), func(command string) string { return run(t, command) })
	switch {
	case got == string(old) || t.Failed():
	case *update:
		write(t, path, []byte(got))
	default:
		t.Errorf("%s differs (-file +got):\n%s", path, cmp.Diff(strings.Split(string(old), "\n"), strings.Split(got, "\n")))
	}
}

// rerun returns the page with the output of every command replaced.
func rerun(page string, run func(command string) string) string {
	var out strings.Builder
	fenced, output := false, false // inside a block; inside what a command printed
	for line := range strings.Lines(page) {
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced, output = !fenced, false
			out.WriteString(line)
		case fenced && is:
			output = true
			out.WriteString(line)
			if text := strings.Trim(run(strings.TrimSpace(command)), "\n"); text != "" {
				out.WriteString(text + "\n")
			}
		case !output:
			out.WriteString(line)
		}
	}
	return out.String()
}
