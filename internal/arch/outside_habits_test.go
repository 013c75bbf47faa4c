package arch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ampc/internal/trial"
)

// Every line of the table of habits builds in a stranger's module and does what it says
// on a small model: results are read, sets and loaders are gone through, configs train a
// step.
func TestHabits(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a program: skipped by -short")
	}
	page, err := os.ReadFile("docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n## Habits\n")
	rows := regexp.MustCompile("(?m)^\\| .* \\| `([^|]*)` \\|$").FindAllStringSubmatch(table, -1)
	if lines := strings.Count(table, "\n| ") - 2; !found || len(rows) != lines || lines < 30 {
		t.Fatalf("%d of %d lines of the table have a fragment of Go", len(rows), lines)
	}
	frame, err := os.ReadFile("internal/arch/testdata/outside/habits.txt")
	if err != nil {
		t.Fatal(err)
	}
	src := string(frame) + "\nvar habits = []habit{\n"
	given := "m, x, y, w, logits, step, eval, feed, r, result, set, loader, held, path, folder"
	for _, row := range rows {
		src += fmt.Sprintf("func(g *given) []any {\n%[1]s := g.%[2]s\n%[3]s = %[1]s\nreturn results(%[4]s)\n},\n", given, strings.ReplaceAll(given, ", ", ", g."),
			strings.TrimSuffix(strings.Repeat("_, ", 15), ", "), row[1])
	}
	dir := outside(t)
	trial.WriteFile(t, filepath.Join(dir, "main.go"), src+"}\n")
	if got := goRun(t, dir); got != fmt.Sprintf("%d habits\n", len(rows)) {
		t.Error(got)
	}
}
