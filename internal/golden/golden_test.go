package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

func upper(t *testing.T, c *Case) Result {
	in := c.Section("in")
	r := Want(strings.ToUpper(in))
	r.Counters = map[string]int{"lines": strings.Count(in, "\n")}
	return r
}

func TestRun(t *testing.T) {
	Run(t, "testdata", func(t *testing.T, c *Case) Result {
		if got := strings.Join(c.Run, " "); got != "upper --twice" {
			t.Errorf("run words %q", got)
		}
		if c.Notes != "# Notes stay notes.\n" {
			t.Errorf("notes %q", c.Notes)
		}
		if !c.Has("in") || c.Has("out") || len(c.Sections()) != 2 {
			t.Errorf("sections %v", c.Sections())
		}
		return upper(t, c)
	})
}

func TestCounters(t *testing.T) {
	comment := "# note\nrun: x\nexpect: a=1 b=2\nexpect: gone=0 odd\n"
	got, diffs := compareCounters(comment, map[string]int{"a": 1, "b": 3})
	if want := "# note\nrun: x\nexpect: a=1 b=3\nexpect: gone=0 odd=0\n"; got != want {
		t.Errorf("rewritten comment %q, want %q", got, want)
	}
	want := []string{"expect: b=2, counted 3", `expect: "odd" is not name=number`}
	if strings.Join(diffs, "|") != strings.Join(want, "|") {
		t.Errorf("differences %q, want %q", diffs, want)
	}
}

func TestUpdateRewritesOnlyWhatExists(t *testing.T) {
	t.Setenv("CI", "")
	path := filepath.Join(t.TempDir(), "case.txtar")
	old := "# n\nexpect: lines=9\n-- in --\na\n-- want --\nstale\n"
	if err := os.WriteFile(path, []byte(old), 0o644); err != nil {
		t.Fatal(err)
	}
	*update = true
	defer func() { *update = false }()
	Run(t, path, func(t *testing.T, c *Case) Result {
		r := upper(t, c)
		r.Sections["extra"] = "never added"
		r.Counters["other"] = 7
		return r
	})
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "# n\nexpect: lines=1\n-- in --\na\n-- want --\nA\n"; string(got) != want {
		t.Errorf("rewritten file:\n%s\nwant:\n%s", got, want)
	}
}

func TestTrailingNewlineIsAsTxtarStoresIt(t *testing.T) {
	c := &Case{Path: "x.txtar", archive: txtar.Parse([]byte("-- want --\nA\n"))}
	f := &c.archive.Files[0]
	if c.checkSection(t, f, Want("A")) || string(f.Data) != "A\n" {
		t.Error("an equal section was rewritten")
	}
}

func TestNoMatch(t *testing.T) {
	if _, err := expand(filepath.Join(t.TempDir(), "*.txtar")); err == nil {
		t.Error("a pattern without a match is accepted")
	}
}
