package arch_test

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"
)

// Every local link of the documentation leads somewhere.
func TestDocLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)`)
	pages, _ := filepath.Glob("docs/*.md")
	for _, page := range append(pages, "README.md") {
		f, err := os.Open(page)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			for _, m := range link.FindAllStringSubmatch(sc.Text(), -1) {
				if _, err := os.Stat(path.Join(path.Dir(page), m[1])); err != nil {
					t.Errorf("%s: link to %s leads nowhere", page, m[1])
				}
			}
		}
		f.Close()
	}
}
