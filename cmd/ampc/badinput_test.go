package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ampc/internal/safetensors"
)

// TestBadInput tries the command lines of testdata/errors/commands.txt: each is answered by the error below it, one line
// that prints, and by its exit code.
func TestBadInput(t *testing.T) {
	const path = "../../testdata/errors/commands.txt"
	table, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for line := range strings.Lines(string(table)) {
		if name, text, ok := strings.Cut(strings.TrimPrefix(line, "= "), " "); ok && strings.HasPrefix(line, "= ") {
			writeQuoted(t, name, strings.TrimSpace(text))
		}
	}
	writeCheckpoints(t)
	before := folderNames(t)
	var got strings.Builder
	tried := 0
	for line := range strings.Lines(string(table)) {
		command, isCommand := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
		if answer := line[0] >= '0' && line[0] <= '9'; !answer {
			got.WriteString(line)
		}
		if !isCommand {
			continue
		}
		tried++
		code, out, errs := ampcRun("", words(command)...)
		if out != "" && code != 0 && !strings.HasPrefix(command, "train") && !strings.HasPrefix(command, "plan") {
			t.Errorf("%s: printed %q and failed", command, out)
		}
		if code != exitInput && code != exitUsage || strings.Count(errs, "\n") != 1 || oneLine(strings.TrimSuffix(errs, "\n")) != strings.TrimSuffix(errs, "\n") {
			t.Errorf("%s: code %d, %q, want 1 or 2 and one line", command, code, errs)
		}
		for _, word := range []string{"strconv", "json:", "panic", "runtime error", "goroutine", "unmarshal", "%!", "EOF", "0x"} {
			if strings.Contains(errs, word) {
				t.Errorf("%s: %q speaks of the program", command, errs)
			}
		}
		fmt.Fprintf(&got, "%d %s", code, lists.ReplaceAllString(errs, "$1..."))
	}
	if tried < 200 {
		t.Errorf("%d command lines, want 200 or more", tried)
	}
	if after := folderNames(t); !slices.Equal(before, after) {
		t.Errorf("bad input left files: %v, there were %v", after, before)
	}
	compareTable(t, folder+"/"+path, string(table), got.String())
}

// lists are long lists in answers: the table holds their beginning.
var lists = regexp.MustCompile(`(there are [^;\n]{40})[^;\n]{40,}`)

// writeQuoted makes a file of a quoted text.
func writeQuoted(t *testing.T, name, quoted string) {
	t.Helper()
	text, err := strconv.Unquote(quoted)
	if err != nil {
		t.Fatalf("file %s: %v", name, err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func folderNames(t *testing.T) (names []string) {
	t.Helper()
	list, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

// compareTable reports the answers that differ, or writes them with -update.
func compareTable(t *testing.T, path, want, got string) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	answers := func(table string) map[string]string {
		m, command := map[string]string{}, ""
		for line := range strings.Lines(table) {
			if strings.HasPrefix(line, "$ ") {
				command = line[2 : len(line)-1]
			} else if line[0] >= '0' && line[0] <= '9' {
				m[command] = line
			}
		}
		return m
	}
	expected := answers(want)
	for command, answer := range answers(got) {
		if answer != expected[command] {
			t.Errorf("%s\n got %s want %s", command, answer, expected[command])
		}
	}
}

// writeCheckpoints makes good.safetensors and what damage may leave of it.
func writeCheckpoints(t *testing.T) {
	t.Helper()
	const model = "zoo:mlp?batch=4"
	o, err := open(newRoot(), model)
	if err != nil {
		t.Fatal(err)
	}
	defer o.model.Close()
	if err := o.apply(&modelFlags{policy: "mixed-f16", micro: 1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.runnable(o.model.Graph()); err != nil {
		t.Fatal(err)
	}
	if err := o.model.SetMeta("spec", model); err != nil {
		t.Fatal(err)
	}
	if err := o.model.SaveFile("good.safetensors"); err != nil {
		t.Fatal(err)
	}
	good := read(t, "good.safetensors")
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 16
	for name, data := range map[string][]byte{"cut.safetensors": good[:len(good)/2], "flipped.safetensors": flipped, "good.ampc": good} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, scale := range map[string]float64{"nan": math.NaN(), "minus": -1, "three": 3, "zero": 0} {
		changed(t, name+".safetensors", func(x *safetensors.Tensor) {
			if x.Name == "amp.scale" {
				x.Write = safetensors.Bytes(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(scale))))
			}
		})
	}
	changed(t, "escape.safetensors", func(x *safetensors.Tensor) {
		if x.Name == "fc1.b" {
			x.Name = "fc1\x1b[31m\n.b"
		}
	})
}

// changed writes good.safetensors again with its tensors edited.
func changed(t *testing.T, name string, edit func(*safetensors.Tensor)) {
	t.Helper()
	f, err := safetensors.Open("good.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []safetensors.Tensor
	for _, x := range f.Tensors {
		b := make([]byte, x.Bytes())
		if err := f.Read(x.Name, b); err != nil {
			t.Fatal(err)
		}
		tensor := safetensors.Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape, Write: safetensors.Bytes(b)}
		edit(&tensor)
		all = append(all, tensor)
	}
	if err := safetensors.WriteFile(name, f.Meta, all); err != nil {
		t.Fatal(err)
	}
}
