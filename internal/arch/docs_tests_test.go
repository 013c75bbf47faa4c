package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test and benchmark that a page names in a command exists in the package that it names.
func TestDocCommandsNameTests(t *testing.T) {
	command := regexp.MustCompile("go test ([^`#\n]*)")
	flag := regexp.MustCompile(`-(run|bench)[ =]('[^']*'|"[^"]*"|\S+)`)
	seen := 0
	for _, page := range docPages() {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(strings.ReplaceAll(string(text), `\|`, "|"), -1) {
			var dirs []string
			for _, arg := range strings.Fields(m[1]) {
				if arg == "." || strings.HasPrefix(arg, "./") && !strings.HasSuffix(arg, "...") {
					dirs = append(dirs, arg)
				}
			}
			if len(dirs) == 0 {
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(m[1], -1) {
				kind := map[string]string{"run": "Test", "bench": "Benchmark"}[f[1]]
				names, _, _ := strings.Cut(strings.Trim(f[2], `'"`), "/") // then subtests
				alternatives := strings.Split(names, "|")
				if strings.Contains(names, "(") {
					alternatives = []string{names}
				}
				for _, name := range alternatives {
					if name == "XXX" || name == "^$" || name == "." {
						continue
					}
					seen++
					if !declares(t, dirs, kind, name) {
						t.Errorf("%s: go test %s: no %s in %s matches %q", page, m[1], kind, dirs, name)
					}
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d names of tests were found in the pages", seen)
	}
}

// declares reports whether a test of the given kind in one of the packages matches a pattern.
func declares(t *testing.T, dirs []string, kind, pattern string) bool {
	t.Helper()
	match, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?m)^func (` + kind + `\w*)\(`)
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range function.FindAllStringSubmatch(string(text), -1) {
				if match.MatchString(f[1]) {
					return true
				}
			}
		}
	}
	return false
}
