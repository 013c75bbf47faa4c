package view

import (
	"regexp"
	"testing"

	"ampc/internal/sight"
)

// palette are the colours of a theme by name.
func palette(t *testing.T, selector string) map[string]sight.RGB {
	t.Helper()
	style, err := source("style.css")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(regexp.QuoteMeta(selector) + ` \{([^}]*)\}`).FindStringSubmatch(style)
	if block == nil {
		t.Fatalf("no %s in the style", selector)
	}
	out := map[string]sight.RGB{}
	for _, m := range regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(block[1], -1) {
		if out[m[1]], err = sight.Parse(m[2]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// styled is the variable that gives elements of a class a colour.
func styled(t *testing.T, class, property string) string {
	t.Helper()
	style, err := source("style.css")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`\.` + class + ` \{[^}]*` + property + `: var\(--([a-z0-9-]+)\)`).FindStringSubmatch(style)
	if m == nil {
		t.Fatalf("the style gives .%s no %s", class, property)
	}
	return m[1]
}

// themes are the selectors of the light and the dark theme.
var themes = []string{":root", `:root[data-theme="dark"]`}

// meanings are apart by nine times what is just noticeable, and stand out from what is behind them
// as WCAG's level AA wants of graphics.
const (
	apart = 20
	mark  = 3
)

// Colours that mean something differ for colour-blind readers too, in both themes, and text stands
// out from what is behind it.
func TestPalette(t *testing.T) {
	const text = 4.5 // contrast of WCAG's level AA
	for _, theme := range themes {
		colours := palette(t, theme)
		for _, group := range [][]string{{"f32", "f16", "bf16", "f64", "integer"}, {"added", "removed", "changed"}} {
			some := map[string]sight.RGB{}
			for _, name := range group {
				some[name] = colours[name]
			}
			if pair, least := sight.Nearest(some); least < apart {
				t.Errorf("%s: %s are %.1f apart, want %d", theme, pair, least, apart)
			}
		}
		for _, c := range []struct {
			front, back []string
			least       float64
		}{
			{[]string{"ink", "quiet"}, []string{"paper", "node", "variable", "scope", "frame-even", "frame-odd"}, text},
			{[]string{"error"}, []string{"paper"}, text},
			{[]string{"f32", "f16", "bf16", "f64", "integer", "added", "removed", "changed", "found", "fused"}, []string{"paper", "node"}, mark},
		} {
			for _, front := range c.front {
				for _, back := range c.back {
					if front == "error" {
						front = "removed"
					}
					if x := sight.Contrast(colours[front], colours[back]); x < c.least {
						t.Errorf("%s: %s on %s has contrast %.2f, want %g", theme, front, back, x, c.least)
					}
				}
			}
		}
	}
}

// The curves of a training run and the marks of skipped steps below them are told apart.
func TestCurvePalette(t *testing.T) {
	curve, skipped := styled(t, "curve", "stroke"), styled(t, "mark", "fill")
	for _, theme := range themes {
		colours := palette(t, theme)
		pair := map[string]sight.RGB{"curve": colours[curve], "mark": colours[skipped]}
		if _, least := sight.Nearest(pair); least < apart {
			t.Errorf("%s: curves and marks are %.1f apart, want %d", theme, least, apart)
		}
		for name, c := range pair {
			if x := sight.Contrast(c, colours["paper"]); x < mark {
				t.Errorf("%s: a %s on paper has contrast %.2f, want %d", theme, name, x, mark)
			}
		}
	}
}
