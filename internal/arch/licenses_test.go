package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/licenses.md lists what go.mod files require, no more and no less, with the licences that the modules hold.
func TestLicences(t *testing.T) {
	page, err := os.ReadFile("docs/licenses.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		if _, twice := listed[row[1]]; twice {
			t.Errorf("%s is listed twice", row[1])
		}
		listed[row[1]] = row[2]
	}
	seen := map[string]bool{}
	for _, dir := range []string{".", "internal/gen"} {
		modules := required(t, dir)
		folders := moduleFolders(t, dir, modules)
		for _, module := range modules {
			seen[module] = true
			said, ok := listed[module]
			if !ok {
				t.Errorf("docs/licenses.md lacks %s, which %s/go.mod requires", module, dir)
			} else if found := licences(folders[module]); found != "" && found != said {
				t.Errorf("%s: the module holds %s, docs/licenses.md says %s", module, found, said)
			}
		}
	}
	for module := range listed {
		if !seen[module] {
			t.Errorf("docs/licenses.md lists %s, which no go.mod requires", module)
		}
	}
}

// required lists the modules of a go.mod.
func required(t *testing.T, dir string) (modules []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:\t|require )(\S+\.\S+) v\S+`).FindAllStringSubmatch(string(text), -1) {
		modules = append(modules, m[1])
	}
	return modules
}

// moduleFolders finds where modules lie on this machine.
func moduleFolders(t *testing.T, dir string, modules []string) map[string]string {
	t.Helper()
	c := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}, modules...)...)
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	folders := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, folder, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			folders[path] = folder
		}
	}
	if len(folders) == 0 {
		t.Logf("none of the modules of %s is on this machine: their licences are not compared", dir)
	}
	return folders
}

// licences reads what a module's folder holds; "" where it was not downloaded.
func licences(folder string) string {
	if folder == "" {
		return ""
	}
	var kinds []string
	files, _ := filepath.Glob(filepath.Join(folder, "LICEN[CS]E*"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if k := licence(string(text)); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return strings.Join(kinds, " and ")
}

func licence(text string) string {
	has := func(s string) bool { return strings.Contains(strings.ToLower(text), s) }
	switch {
	case has("apache license"):
		return "Apache-2.0"
	case has("permission is hereby granted, free of charge"):
		return "MIT"
	case has("redistribution and use in source") && has("neither the name"):
		return "BSD-3-Clause"
	case has("redistribution and use in source"):
		return "BSD-2-Clause"
	}
	return "another"
}
