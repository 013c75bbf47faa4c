package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// words splits a line of an example, in which an option string stands in quotes.
func words(line string) []string {
	fields := strings.Fields(line)
	for i, f := range fields {
		fields[i] = strings.Trim(f, "'")
	}
	return fields
}

// What the help shows works.
func TestExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	root := newRoot()
	root.InitDefaultCompletionCmd()
	for name, lines := range examples {
		if c, _, err := root.Find([]string{name}); name != "ampc" && (err != nil || c == root) {
			t.Errorf("there is no command %s for its examples", name)
		}
		for _, line := range lines {
			if slowExamples[line] {
				continue
			}
			args := words(line)
			if args[0] != "ampc" {
				t.Errorf("%s: no command line of ampc", line)
			} else if code, _, errs := ampcRun("", args[1:]...); code != 0 {
				t.Errorf("%s: code %d, %s", line, code, errs)
			}
		}
	}
}

// full fails as a full device does, after so many bytes.
type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return f.room, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	}
	f.room -= len(p)
	return len(p), nil
}

// Results that did not arrive are a failure, in one line, whatever the command.
func TestFullOutput(t *testing.T) {
	for _, line := range []string{
		"dump zoo:mlp", "dump zoo:mlp --diff", "dump zoo:mlp --stage program", "why zoo:mlp", "why zoo:mlp fc1", "why zoo:mlp --diff-policy f32 mixed-f16", "why-not zoo:mlp", "ops", "passes",
		"policy", "policy f32", "policy torch-f16 --unmapped", "plan zoo:mlp", "prove zoo:mlp?batch=4", "ranges zoo:mlp", "ranges zoo:mlp --all", "doctor zoo:mlp?batch=4",
		"run zoo:mlp?batch=4", "run zoo:mlp?batch=4 --infer", "bench zoo:mlp?batch=4 --steps 1 --policy f32", "bench zoo:mlp?batch=4 --steps 1 --policy f32 --profile",
		"compare zoo:mlp --steps 0", "devices", "version", "ops --json", "run zoo:mlp?batch=4 --json", "--help", "dump --help", "completion bash",
	} {
		for _, room := range []int{0, 5} {
			var errs strings.Builder
			code := run(context.Background(), strings.Fields(line), strings.NewReader(""), &full{room}, &errs)
			if code != exitInput || errs.String() != "standard output: no space left on device\n" {
				t.Errorf("%s with room for %d bytes: code %d, %q", line, room, code, errs.String())
			}
		}
	}
	var errs strings.Builder
	text := rhyme(t)
	if code := run(context.Background(), append(strings.Fields("train "+tiny+" --steps 2 --quiet"), "--text", text, "--out", t.TempDir()), nil, &full{}, &errs); code != exitInput || !strings.Contains(errs.String(), "standard output: no space left on device\n") {
		t.Errorf("train: code %d, %q", code, errs.String())
	}
}

// What commands print as a table they print as JSON, too.
func TestJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, line := range []string{
		"ops", "passes", "policy", "policy torch-f16 --unmapped", "devices", "version", "plan zoo:mlp --policy f32", "why zoo:mlp fc1", "why zoo:mlp", "why zoo:mlp --diff-policy f32 mixed-f16",
		"why-not zoo:mlp", "prove zoo:mlp?batch=4", "ranges zoo:mlp", "ranges zoo:mlp --all", "doctor zoo:mlp?batch=4", "run zoo:mlp?batch=4", "run zoo:mlp?batch=4 --infer",
		"bench zoo:mlp?batch=4 --steps 1 --policy f32 --profile", "compare zoo:mlp --steps 0",
		"advise " + tiny + " --steps 3 --policies f32 --text " + rhyme(t),
	} {
		code, out, errs := ampcRun("", append(strings.Fields(line), "--json")...)
		var x any
		if err := json.Unmarshal([]byte(out), &x); code != 0 || err != nil || x == nil && !strings.HasPrefix(line, "prove") && !strings.HasPrefix(line, "ranges") {
			t.Errorf("%s --json: code %d, %v, %q", line, code, err, errs)
		}
	}
	for x, want := range map[jsonFloat]string{1.5: "1.5", jsonFloat(math.Inf(1)): "null", jsonFloat(math.Inf(-1)): "null"} {
		if b, err := json.Marshal(x); err != nil || string(b) != want {
			t.Errorf("%g: %s (%v), want %s", float64(x), b, err, want)
		}
	}
}

func TestVersion(t *testing.T) {
	stamped := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02"}, {Key: "vcs.modified", Value: "true"}}}
	if s := versionOf(stamped).String(); !strings.HasPrefix(s, "ampc v1.2.3, commit abc of 2026-01-02 with changes, go1.") {
		t.Error(s)
	}
	for _, b := range []*debug.BuildInfo{nil, {Main: debug.Module{Version: "(devel)"}}} {
		if s := versionOf(b).String(); !strings.HasPrefix(s, "ampc, commit not recorded (") {
			t.Error(s)
		}
	}
}

// A shell is offered models, their options and values, policies and the values of flags.
func TestCompletion(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string][]string{
		"dump zoo:g":                     {"zoo:gpt\t", "zoo:gan\t"},
		"dump zoo:mlp?":                  {"zoo:mlp?batch=", "zoo:mlp?hidden="},
		"dump zoo:mlp?batch=2&":          {"zoo:mlp?batch=2&hidden="},
		"dump mod":                       {"ir\nonnx\n:8"},
		"dump zoo:mlp --policy ":         {"mixed-f16", "torch-bf16"},
		"dump zoo:mlp --target ":         {"sm_90"},
		"dump zoo:mlp --stage ":          {"graph", "ptx"},
		"dump zoo:mlp --format ":         {"dot"},
		"dump zoo:mlp --after ":          {"source", "amp"},
		"run zoo:mlp --scaler ":          {"dynamic", "deepspeed"},
		"run zoo:mlp --optimizer ":       {"adamw"},
		"run zoo:gan --step ":            {"gen\n"},
		"train --policy ":                {"mixed-f16"},
		"why zoo:mlp ":                   {"fc1", "d.relu"},
		"why zoo:mlp --diff-policy f32 ": {"mixed-f16"},
		"why-not zoo:mlp fc1 ":           {"bf16"},
		"why none.ir ":                   {":4"},
		"ops ":                           {"matmul"},
		"policy ":                        {"mixed-f16"},
	} {
		fields := strings.Split(line, " ")
		code, out, errs := ampcRun("", append([]string{cobra.ShellCompNoDescRequestCmd}, fields...)...)
		_, described, _ := ampcRun("", append([]string{cobra.ShellCompRequestCmd}, fields...)...)
		for _, w := range want {
			if code != 0 || !strings.Contains(out+described, w) {
				t.Errorf("%q: code %d, no %q in %q %q", line, code, w, described, errs)
			}
		}
	}
}

func TestOneLine(t *testing.T) {
	for s, want := range map[string]string{
		"plain: %x \"q\" größe": "plain: %x \"q\" größe",
		"a\nb\x1b[31m":          `a\nb\x1b[31m`,
		"a\xffb \"q\" \\":       `a\xffb "q" \`,
	} {
		if got := oneLine(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
	if err := missing("gpt?layers=1", os.ErrNotExist); err.Error() != "gpt?layers=1: no such file; did you mean zoo:gpt?layers=1?" {
		t.Error(err)
	}
	if err := missing("none", &os.PathError{Err: syscall.ENOENT}); err.Error() != "none: no such file or directory" || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if plural(1, "finding")+plural(0, "node")+plural(2, "rule") != "1 finding0 nodes2 rules" {
		t.Error("plurals")
	}
}

// Gradients too far apart for the low dtype leave no safe scale: an interval with its ends swapped would say the opposite.
func TestNoSafeScale(t *testing.T) {
	root := newRoot()
	root.SetContext(t.Context())
	o, err := open(root, "zoo:mlp?batch=4")
	if err != nil {
		t.Fatal(err)
	}
	defer o.model.Close()
	if err := o.apply(&modelFlags{policy: "mixed-f16", micro: 1, record: 1}); err != nil {
		t.Fatal(err)
	}
	_, g, err := o.finished()
	if err != nil {
		t.Fatal(err)
	}
	seen := o.ranges.Recorded
	var out strings.Builder
	if err := printScale(&out, g, seen); err != nil || !strings.Contains(out.String(), "%amp.scale: safe from ") {
		t.Errorf("%q (%v)", out.String(), err)
	}
	for name, r := range seen {
		r.Least /= 1 << 30
		seen[name] = r
	}
	out.Reset()
	if err := printScale(&out, g, seen); err != nil || !strings.HasPrefix(out.String(), "%amp.scale: none fits all: above ") || strings.Contains(out.String(), "safe") {
		t.Errorf("%q (%v)", out.String(), err)
	}
}
