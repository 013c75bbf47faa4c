package main

import (
	"strings"
	"testing"
)

// ampc generate continues a text, in the same way for one seed, and refuses what does not fit in a line.
func TestGenerateCommand(t *testing.T) {
	const model = "zoo:gpt?layers=1&dim=32&seq=24"
	say := func(want int, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := ampcRun("", append([]string{"generate"}, args...)...)
		if code != want {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errs)
		}
		return out, errs
	}
	one, _ := say(0, model, "--prompt", "Hello", "--max-tokens", "12", "--top-k", "20", "--top-p", "0.9", "--repetition-penalty", "1.2")
	two, _ := say(0, model, "--prompt", "Hello", "--max-tokens", "12", "--top-k", "20", "--top-p", "0.9", "--repetition-penalty", "1.2")
	if one != two || !strings.HasPrefix(one, "Hello") || len(one) < 8 {
		t.Errorf("%q, then %q", one, two)
	}
	if _, note := say(0, model, "--prompt", "Hello", "--temperature", "0"); !strings.Contains(note, "the cache holds 24 tokens, of which the prompt has 5: 20 follow") {
		t.Errorf("%q", note)
	}
	for _, c := range [][2]string{
		{"--temperature=-1", "generate: Temperature is -1, want 0 or more"}, {"--length=99", "want 1 to 24"},
		{"--max-tokens=-2", "MaxTokens is -2"},
	} {
		if _, errs := say(1, model, "--prompt", "Hello", c[0]); !strings.Contains(errs, c[1]) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %q", c[0], errs)
		}
	}
	if _, errs := say(1, model, "--prompt", strings.Repeat("x", 30)); !strings.Contains(errs, "the prompt has 30 tokens, the cache holds 24") {
		t.Errorf("%q", errs)
	}
	if _, errs := say(1, "zoo:mlp", "--prompt", "x"); !strings.Contains(errs, "no model that continues text") {
		t.Errorf("%q", errs)
	}
}
