// Package sass reads NVIDIA's machine code as nvdisasm prints it, and measures what limits the
// memory traffic of a kernel: the bytes that its loads have in flight, its instructions and how many
// blocks a multiprocessor holds. It needs no GPU.
package sass

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// Function is the code of one kernel. Subroutines that ptxas adds behind it, such as the rare paths of
// a division, are left out.
type Function struct {
	Name string
	Code []Inst
}

// Inst is one instruction.
type Inst struct {
	Guard  string // predicate, such as P0 or !P0; "": always
	Op     string // with its suffixes, such as LDG.E.128
	Args   []string
	Target int // a branch: index of the instruction it goes to; -1: none, or outside of Code
}

var (
	section     = regexp.MustCompile(`^\.section\s+\.text\.([^,\s]+),`)
	labelled    = regexp.MustCompile(`^([.$\w]+):$`)
	instruction = regexp.MustCompile(`^/\*[0-9a-f]+\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;`)
	branch      = regexp.MustCompile("`\\((\\.[\\w]+)\\)")
)

// Parse reads the output of nvdisasm -c for a cubin.
func Parse(text []byte) ([]*Function, error) {
	var (
		list   []*Function
		f      *Function // being read; nil outside of code
		labels map[string]int
		jumps  map[int]string // by instruction: its label
	)
	end := func() {
		if f == nil {
			return
		}
		for i, l := range jumps {
			if at, ok := labels[l]; ok && at < len(f.Code) {
				f.Code[i].Target = at
			}
		}
	}
	skip := false
	for n, raw := range bytes.Split(text, []byte("\n")) {
		line := strings.TrimSpace(string(raw))
		if m := section.FindStringSubmatch(line); m != nil {
			end()
			f, labels, jumps, skip = &Function{Name: m[1]}, map[string]int{}, map[int]string{}, false
			list = append(list, f)
			continue
		}
		if f == nil || skip {
			continue
		}
		if m := labelled.FindStringSubmatch(line); m != nil {
			skip = strings.HasPrefix(m[1], "$")
			labels[m[1]] = len(f.Code)
		} else if strings.HasPrefix(line, "/*") {
			m := instruction.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("sass: line %d of %s is no instruction: %.80s", n+1, f.Name, line)
			}
			if b := branch.FindStringSubmatch(m[3]); b != nil && strings.HasPrefix(m[2], "BRA") {
				jumps[len(f.Code)] = b[1]
			}
			f.Code = append(f.Code, Inst{Guard: m[1], Op: m[2], Args: operands(m[3]), Target: -1})
		}
	}
	end()
	for _, f := range list {
		if len(f.Code) == 0 {
			return nil, fmt.Errorf("sass: %s has no instructions", f.Name)
		}
	}
	return list, nil
}

// operands splits at the commas.
func operands(s string) []string {
	if s == "" {
		return nil
	}
	list := strings.Split(s, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}
