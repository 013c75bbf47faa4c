package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every op of the comparison runs, has gradients and a dtype under every preset.
func TestOpsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ops.json")
	command(t, "ops", path)
	var cases []struct {
		Name   string
		Edge   bool
		Y      []any
		Grads  [][]any
		DTypes map[string][2]string
	}
	if err := json.Unmarshal([]byte(read(t, path)), &cases); err != nil {
		t.Fatal(err)
	}
	ops := 0
	for _, c := range cases {
		if !c.Edge {
			ops++
		}
		for preset, d := range c.DTypes {
			if d[0] == "" || d[1] == "" {
				t.Errorf("%s has no dtype under %s", c.Name, preset)
			}
		}
		if len(c.Y) == 0 || len(c.DTypes) != len(torchPresets) {
			t.Errorf("%s: %d elements, dtypes under %d presets", c.Name, len(c.Y), len(c.DTypes))
		}
	}
	if ops < 60 {
		t.Errorf("%d ops are compared, want at least 60", ops)
	}
	beside(t, "ops", path, torchPresets)
}

// Under torch's presets and with torch's scaler the scale rises until gradients
// overflow, again and again.
func TestScalesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scales.json")
	command(t, "scales", path)
	var f scaleFile
	if err := json.Unmarshal([]byte(read(t, path)), &f); err != nil {
		t.Fatal(err)
	}
	var presets []string
	for _, r := range f.Runs {
		presets = append(presets, r.Preset)
		skipped := 0
		for _, s := range r.Skipped {
			if s {
				skipped++
			}
		}
		if len(r.Scale) != scaleSteps || len(r.Loss) != scaleSteps || skipped < 20 || skipped > scaleSteps/3 {
			t.Errorf("%s: %d scales, %d losses, %d steps skipped", r.Preset, len(r.Scale), len(r.Loss), skipped)
		}
		if first, last := r.Loss[0], r.Loss[len(r.Loss)-1]; !(last < first) {
			t.Errorf("%s: the loss goes from %g to %g", r.Preset, first, last)
		}
	}
	beside(t, "scales", path, presets)
}

// beside runs PyTorch's side where there is one: it exits with 1 where a dtype, an
// error, an edge or a loss scale differs without a reason.
func beside(t *testing.T, script, path string, presets []string) {
	python := os.Getenv("AMPC_PYTHON")
	if python == "" {
		t.Log("PyTorch's side was not run: AMPC_PYTHON names no Python with PyTorch 2.6")
		return
	}
	out, err := exec.Command(python, "torch/"+script+".py", path).Output()
	if err != nil {
		t.Errorf("%s torch/%s.py: %v\n%s", python, script, err, out)
	}
	for _, preset := range presets {
		if !bytes.Contains(out, []byte(preset+": ")) {
			t.Errorf("nothing about %s:\n%s", preset, out)
		}
	}
}

// docs/semantics.md has every difference that ops.py holds for explained.
func TestDifferencesAreInTheDocs(t *testing.T) {
	page := read(t, "../docs/semantics.md")
	keys := regexp.MustCompile(`(?m)^    \("(\w+)", "([^"]+)"\): `).FindAllStringSubmatch(read(t, "torch/ops.py"), -1)
	if len(keys) < 5 {
		t.Fatalf("%d differences found in ops.py", len(keys))
	}
	row := map[string]string{"maximum": "max", "minimum": "min"}
	for _, k := range keys {
		name := k[1]
		if ours := row[name]; ours != "" {
			name = ours
		}
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/semantics.md does not name %s, whose %s differs", name, k[2])
		}
	}
}
