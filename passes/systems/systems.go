// Package systems holds the op lists of other mixed-precision systems: the
// precision that each system gives its ops, and the ops of ampc that correspond
// to them. The files in lists name the source of each fact.
package systems

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ampc/ir"
)

//go:embed lists
var files embed.FS

// Category is what a system's list says about an op. The names are those of
// the list files.
type Category string

const (
	Lower   Category = "lower"              // operands cast to the low dtype
	FP32    Category = "fp32"               // operands cast to f32
	SetF32  Category = "fp32_set_opt_dtype" // computes and stores f32 from low operands
	AddF32  Category = "fp32_append_dtype"  // the same through another overload
	Follow  Category = "promote_infer_gray" // the widest operand, or the neighbours
	Through Category = "clear"              // runs in what it is given
	Banned  Category = "banned"             // refused by the system
)

// classes says which of our classes a category is. What a system bans is kept:
// it is the reason for the ban.
var classes = map[Category]ir.Class{
	Lower: ir.Low, FP32: ir.Keep, SetF32: ir.Keep, AddF32: ir.Keep, Banned: ir.Keep,
	Follow: ir.PromoteC, Through: ir.PromoteC,
}

// Class returns the class of ours that does what the category says.
func (c Category) Class() ir.Class { return classes[c] }

// unlisted is the name under which a list says what becomes of all other ops.
const unlisted = "*"

// System is one system's list for one low dtype, with its names mapped to ours.
type System struct {
	Name     string
	Category map[string]Category // by the system's op name; unlisted is the rest
	Ops      map[string][]ir.Op  // theirs to ours: their category is the class of ours
	Part     map[string][]ir.Op  // ours cover more than theirs, which decides nothing
	Cases    map[string][]Case   // theirs to a case of ours, written OP.CASE; the class is to be filled in
	Widens   []Widen             // operands that widen a result here, although their own dtype is fixed
}

// sources names each system's files: the list and the map, by low dtype where
// that differs.
var sources = map[string]struct{ f16, bf16, names string }{
	"torch":      {"torch", "torch", "torch"},
	"torch-cpu":  {"torch-cpu", "torch-cpu", "torch"},
	"apex-o1":    {"apex-o1", "apex-o1", "apex"},
	"tensorflow": {"tensorflow-f16", "tensorflow-bf16", "tensorflow"},
	"oneflow":    {"oneflow", "oneflow", "oneflow"},
	"paddle":     {"paddle", "paddle", "paddle"},
	"tvm":        {"tvm", "tvm", "tvm"},
}

// Names lists the systems.
func Names() []string { return slices.Sorted(maps.Keys(sources)) }

// Load returns a system's list for low, f16 or bf16. Systems whose list names
// f16 alone have it taken for bf16 too.
func Load(name string, low ir.DType) (*System, error) {
	src, ok := sources[name]
	if !ok {
		return nil, fmt.Errorf("no system %q; there are %s", name, strings.Join(Names(), ", "))
	}
	list := src.f16
	if low == ir.BF16 {
		list = src.bf16
	}
	s := &System{Name: name, Category: map[string]Category{}, Ops: map[string][]ir.Op{}, Part: map[string][]ir.Op{}, Cases: map[string][]Case{}}
	if err := eachLine(list+".list", func(f []string) error { return s.category(f, low) }); err != nil {
		return nil, err
	}
	return s, eachLine(src.names+".map", s.names)
}

// eachLine calls f with the words of every line that is not empty or a comment.
func eachLine(file string, f func(words []string) error) error {
	data, err := files.ReadFile("lists/" + file)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(data), "\n") {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			if err := f(words); err != nil {
				return fmt.Errorf("%s:%d: %w", file, i+1, err)
			}
		}
	}
	return nil
}

// category reads a line "CATEGORY[@DTYPE] NAME...".
func (s *System) category(words []string, low ir.DType) error {
	word, only, limited := strings.Cut(words[0], "@")
	c := Category(word)
	if _, ok := classes[c]; !ok {
		return fmt.Errorf("no category %q", word)
	}
	if limited && only != low.String() {
		return nil
	}
	for _, name := range words[1:] {
		if was, twice := s.Category[name]; twice && was != c {
			return fmt.Errorf("%s is %s and %s", name, was, c)
		}
		s.Category[name] = c
	}
	return nil
}

// names reads a line "THEIRS... = OURS...", "THEIRS... ~ OURS..." or
// "widens[@SYSTEM] OP OPERAND".
func (s *System) names(words []string) error {
	if word, only, limited := strings.Cut(words[0], "@"); word == "widens" && len(words) == 3 {
		w, err := ParseWiden(words[1], words[2])
		if err == nil && (!limited || only == s.Name) {
			s.Widens = append(s.Widens, w)
		}
		return err
	}
	k := slices.IndexFunc(words, func(w string) bool { return w == "=" || w == "~" })
	if k < 1 || k == len(words)-1 {
		return fmt.Errorf("want THEIRS = OURS or THEIRS ~ OURS")
	}
	to := s.Ops
	if words[k] == "~" {
		to = s.Part
	}
	for _, ours := range words[k+1:] {
		if strings.Contains(ours, ".") {
			c, err := ParseCase(ours)
			if err != nil {
				return err
			}
			for _, theirs := range words[:k] {
				s.Cases[theirs] = append(s.Cases[theirs], c)
			}
			continue
		}
		op, ok := ir.OpNamed(ours)
		if !ok {
			return fmt.Errorf("no op %q", ours)
		}
		for _, theirs := range words[:k] {
			to[theirs] = append(to[theirs], op)
		}
	}
	return nil
}

// Of returns what the system does with an op of its own.
func (s *System) Of(theirs string) Category {
	if c, ok := s.Category[theirs]; ok {
		return c
	}
	return s.Category[unlisted]
}

// Unmapped lists the names in the system's list without an op of ours.
func (s *System) Unmapped() []string {
	var out []string
	for name := range s.Category {
		if name != unlisted && s.Ops[name] == nil && s.Part[name] == nil && s.Cases[name] == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Mapped lists the names that have an op of ours, those that the system lists
// nowhere included.
func (s *System) Mapped() []string { return slices.Sorted(maps.Keys(s.Ops)) }

// Classes returns the class of every op of ours that the system treats
// otherwise than our row. An op takes the category of the names that map to
// it, listed names first; a gradient without a name of its own goes with its
// op; what has no name is unlisted. Rows whose dtypes are a contract, and those
// that only move bits and that the system does not know, keep their class.
func (s *System) Classes() (map[ir.Op]ir.Class, error) {
	of, err := s.categories()
	if err != nil {
		return nil, err
	}
	out := map[ir.Op]ir.Class{}
	for _, op := range ir.Ops() {
		d := op.Def()
		c, known := of[op]
		if base := op.Def().GradOf; base != ir.OpInvalid && !known {
			c, known = of[base]
		}
		if !known {
			c = s.Category[unlisted]
		}
		class := classes[c]
		free := d.Class == ir.PromoteC || d.Class == ir.Clear
		switch {
		case d.Class == ir.Fixed, class == d.Class, class == ir.PromoteC && free:
		case !known && (d.Is(ir.Moves) || d.Is(ir.View)):
		default:
			out[op] = class
		}
	}
	return out, nil
}

// categories gives our ops the category of the names that map to them; listed
// names that contradict each other are an error.
func (s *System) categories() (map[ir.Op]Category, error) {
	of, by := map[ir.Op]Category{}, map[ir.Op]string{}
	for _, theirs := range s.Mapped() {
		c, listed := s.Category[theirs]
		if !listed {
			continue
		}
		for _, op := range s.Ops[theirs] {
			if was, ok := of[op]; ok && classes[was] != classes[c] {
				return nil, fmt.Errorf("%s: %s is %s by %s and %s by %s", s.Name, op, was, by[op], c, theirs)
			}
			of[op], by[op] = c, theirs
		}
	}
	for _, theirs := range s.Mapped() {
		for _, op := range s.Ops[theirs] {
			if _, ok := of[op]; !ok {
				of[op] = s.Category[unlisted]
			}
		}
	}
	return of, nil
}
