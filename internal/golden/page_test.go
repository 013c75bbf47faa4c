package golden

import (
	"strings"
	"testing"
)

func TestRerun(t *testing.T) {
	page := "# Title\n$ not a command\n```\n$ one\nstale\n\nlines\n$ two\n```\ntext\n```go\ncode\n```\n"
	want := "# Title\n$ not a command\n```\n$ one\nONE\n$ two\nTWO\n```\ntext\n```go\ncode\n```\n"
	run := func(c string) string { return "\n" + strings.ToUpper(c) + "\n\n" }
	if got := rerun(page, run); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := rerun(want, run); again != want {
		t.Errorf("a page that is right changes:\n%s", again)
	}
}
