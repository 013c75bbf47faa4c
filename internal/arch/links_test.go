package arch_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// docPages are the pages of the documentation.
func docPages() []string {
	pages, _ := filepath.Glob("docs/*.md")
	return append(pages, "README.md", "CONTRIBUTING.md")
}

// proseLines calls f with every line of a page outside code blocks.
func proseLines(t *testing.T, page string, f func(number int, line string)) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	code := false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			f(i+1, line)
		}
	}
}

// anchors are the fragments that GitHub gives the headings of a page.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	list := map[string]bool{}
	proseLines(t, page, func(_ int, line string) {
		if !strings.HasPrefix(line, "#") {
			return
		}
		list[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(strings.TrimLeft(line, "#")))] = true
	})
	return list
}

// Every local link of the documentation leads to a file and a heading that exist.
func TestDocLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]*)(#[^)]*)?\)`)
	for _, page := range docPages() {
		proseLines(t, page, func(n int, line string) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				to := page
				if m[1] != "" {
					to = path.Join(path.Dir(page), m[1])
				}
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s:%d: no file %s", page, n, m[1])
				} else if at := strings.TrimPrefix(m[2], "#"); at != "" && strings.HasSuffix(to, ".md") && !anchors(t, to)[at] {
					t.Errorf("%s:%d: %s has no heading #%s", page, n, to, at)
				}
			}
		})
	}
}

// The prose of the documentation is wrapped at 100 columns. Tables and code are
// as wide as they must be.
func TestDocWidth(t *testing.T) {
	for _, page := range docPages() {
		proseLines(t, page, func(n int, line string) {
			if w := utf8.RuneCountInString(line); w > 100 && !strings.HasPrefix(line, "|") && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s:%d has %d columns, the limit is 100", page, n, w)
			}
		})
	}
}
