// Package golden runs test cases kept as txtar files, one file per case.
//
// The comment of a file holds notes, one "run:" line (the command under test)
// and any number of "expect:" lines (counters, name=value). Its sections are
// inputs, free of any rule, and outputs, whose names begin with "want":
//
//	# The head's weight is read twice: one cast.
//	run: dump --policy mixed-f16 --passes amp,castcache
//	expect: casts_inserted=6 casts_reused=3
//	-- in --
//	...
//	-- want --
//	...
//
// Counters fail apart from the text, so a pass that stops firing is seen even
// after a careless update; "expect: x=0" says that x must not fire.
//
// With -update the output sections and the expected values that exist are
// rewritten; none is ever added, and under CI (the environment variable CI is
// set) the flag is refused.
package golden

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files from what the tests produce")

// Case is one golden file as the test under it sees it.
type Case struct {
	Path  string   // as opened, so that errors point at a file
	Name  string   // base name without extension
	Run   []string // the words after "run:"; nil where there is no such line
	Notes string   // the comment without its run: and expect: lines

	archive *txtar.Archive
}

// Section returns the text of a section, "" where the file has none.
func (c *Case) Section(name string) string {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// Has says whether the file has a section of that name, empty or not.
func (c *Case) Has(name string) bool {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return true
		}
	}
	return false
}

// Sections lists the names of the file's sections in order.
func (c *Case) Sections() []string {
	names := make([]string, len(c.archive.Files))
	for i, f := range c.archive.Files {
		names[i] = f.Name
	}
	return names
}

// Result is what a case produced: texts by section name and counters by name.
// A counter that is absent counts as 0; a text whose section the file does not
// have is ignored, so a file asks for exactly what it wants to pin.
type Result struct {
	Sections map[string]string
	Counters map[string]int
}

// Want is a Result with the single section "want".
func Want(text string) Result { return Result{Sections: map[string]string{"want": text}} }

// Run runs f as a subtest for every file that matches the glob pattern (a
// directory means its *.txtar) and compares what it returns with the file.
// A pattern without a match fails.
func Run(t *testing.T, pattern string, f func(t *testing.T, c *Case) Result) {
	t.Helper()
	paths, err := expand(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		c, err := Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			c.check(t, f(t, c))
		})
	}
}

// Load reads one case.
func Load(path string) (*Case, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &Case{Path: path, archive: txtar.Parse(data)}
	c.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	var notes []string
	for line := range strings.Lines(string(c.archive.Comment)) {
		if rest, ok := strings.CutPrefix(line, "run:"); ok {
			if c.Run != nil {
				return nil, fmt.Errorf("%s: more than one run: line", path)
			}
			c.Run = strings.Fields(rest)
		} else if !strings.HasPrefix(line, "expect:") {
			notes = append(notes, line)
		}
	}
	c.Notes = strings.Join(notes, "")
	return c, nil
}

// File compares got with the file at path; under -update an existing file is
// rewritten.
func File(t *testing.T, path, got string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(old) == got {
		return
	}
	if *update {
		write(t, path, []byte(got))
		return
	}
	t.Errorf("%s differs (-file +got):\n%s", path, cmp.Diff(string(old), got))
}

// Updating says whether -update was given, for tests that derive files on their own.
func Updating() bool { return *update }

func expand(pattern string) ([]string, error) {
	if info, err := os.Stat(pattern); err == nil && info.IsDir() {
		pattern = filepath.Join(pattern, "*.txtar")
	}
	paths, err := filepath.Glob(pattern)
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("golden: no file matches %s", pattern)
	}
	return paths, err
}

// check compares and, under -update, rewrites.
func (c *Case) check(t *testing.T, r Result) {
	t.Helper()
	if t.Failed() {
		return // the case itself said why; its output is not worth comparing or keeping
	}
	changed := false
	for i := range c.archive.Files {
		changed = c.checkSection(t, &c.archive.Files[i], r) || changed
	}
	comment, diffs := compareCounters(string(c.archive.Comment), r.Counters)
	if *update {
		changed = changed || len(diffs) > 0
		c.archive.Comment = []byte(comment)
	} else {
		for _, d := range diffs {
			t.Errorf("%s: %s", c.Path, d)
		}
	}
	if changed {
		write(t, c.Path, txtar.Format(c.archive))
	}
}

// checkSection compares one section and reports whether it was rewritten.
func (c *Case) checkSection(t *testing.T, f *txtar.File, r Result) bool {
	t.Helper()
	got, produced := r.Sections[f.Name]
	if !produced {
		if strings.HasPrefix(f.Name, "want") {
			t.Errorf("%s: nothing produced section %q", c.Path, f.Name)
		}
		return false
	}
	if got != "" && !strings.HasSuffix(got, "\n") {
		got += "\n" // as txtar stores it
	}
	if bytes.Equal(f.Data, []byte(got)) {
		return false
	}
	if *update {
		f.Data = []byte(got)
		return true
	}
	t.Errorf("%s: section %q differs (-file +got):\n%s", c.Path, f.Name, cmp.Diff(string(f.Data), got))
	return false
}

// compareCounters returns the comment with every expected value replaced by
// the counted one, and a sentence for each that differed.
func compareCounters(comment string, got map[string]int) (string, []string) {
	var out strings.Builder
	var diffs []string
	for line := range strings.Lines(comment) {
		rest, ok := strings.CutPrefix(line, "expect:")
		if !ok {
			out.WriteString(line)
			continue
		}
		out.WriteString("expect:")
		for _, word := range strings.Fields(rest) {
			name, value, _ := strings.Cut(word, "=")
			if want, err := strconv.Atoi(value); err != nil {
				diffs = append(diffs, fmt.Sprintf("expect: %q is not name=number", word))
			} else if want != got[name] {
				diffs = append(diffs, fmt.Sprintf("expect: %s=%d, counted %d", name, want, got[name]))
			}
			fmt.Fprintf(&out, " %s=%d", name, got[name])
		}
		out.WriteString("\n")
	}
	return out.String(), diffs
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s: -update is refused under CI", path)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "golden: updated %s\n", path)
}
