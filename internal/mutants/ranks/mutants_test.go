package ranks

import (
	"flag"
	"slices"
	"testing"

	"ampc/ir"
)

// mutation is one edit of a compiled step. It is done on a copy: edit finds its place by
// itself, such as the k-th node of a kind, and reports whether it has done anything.
type mutation struct {
	what string
	edit func(g *ir.Graph) bool
	// rank is the rank whose step alone is changed, -1: that of all ranks, as a fault of the
	// compiler would change it.
	rank int
}

// family lists mutations of one kind, all places in s: g is the compiled step of s, to look
// at.
type family struct {
	name string
	list func(s *subject, g *ir.Graph) []mutation
}

// tally counts the mutants of a family that count, and those that are caught.
type tally struct{ counted, caught int }

func (t *tally) add(caught bool) {
	t.counted++
	if caught {
		t.caught++
	}
}

// tallies are those of a family: of the step alone, what is checked, and what the list
// uncaught has; and of all of them beside the training graph.
type tallies struct{ checked, open, sourced tally }

// TestMutantsOfRanks: of the mutants that count, 99% are caught beside the training graph, as
// Train proves a step, and 99% of each family by the rules that look at the step alone. A mutant
// counts where the evaluator shows other weights, losses or skips than the step itself has,
// ranks that end with different bits, or ranks that do not meet. Mutants of the list uncaught
// are counted and printed, but of the step alone they fail nothing. Runs judge a fixed sample of every
// family and subject, with -every-mutant all.
func TestMutantsOfRanks(t *testing.T) {
	found := map[string]*tallies{}
	for _, f := range families() {
		found[f.name] = &tallies{}
	}
	for i, s := range subjects(t) {
		s.judge(t, i, families(), found)
	}
	var all tallies
	for _, f := range families() {
		x := found[f.name]
		t.Logf("%4d of %4d caught, of what is not checked yet %3d of %3d: %s", x.checked.caught, x.checked.counted, x.open.caught, x.open.counted, f.name)
		if x.checked.caught*100 < x.checked.counted*99 {
			t.Errorf("%s: %d of %d mutants that count are caught, want 99%%", f.name, x.checked.caught, x.checked.counted)
		}
		all.checked.counted += x.checked.counted
		all.checked.caught += x.checked.caught
		all.open.counted += x.open.counted
		all.open.caught += x.open.caught
		all.sourced.counted += x.sourced.counted
		all.sourced.caught += x.sourced.caught
	}
	t.Logf("%d of %d mutants that count are caught beside the training graph", all.sourced.caught, all.sourced.counted)
	if all.sourced.caught*100 < all.sourced.counted*99 {
		t.Error("want 99% of them")
	}
	t.Logf("%d of %d are caught alone; of what is not checked alone yet, %d of %d", all.checked.caught, all.checked.counted, all.open.caught, all.open.counted)
	if all.checked.counted == 0 {
		t.Error("no mutant counts")
	}
}

// TestMutantsOfPartsAndBlocks: the same of steps whose ranks keep parts of the state, or whose heads
// run in blocks of rows: of each family 99% of the mutants that count are caught beside the training
// graph.
func TestMutantsOfPartsAndBlocks(t *testing.T) {
	all := append(slices.Clone(ofParts), ofBlocks...)
	all = append(slices.Concat(all, families()), family{"one rank has a faulty step of parts or blocks", onOneRank(all).list})
	found := map[string]*tallies{}
	for _, f := range all {
		found[f.name] = &tallies{}
	}
	for i, s := range subjectsInParts(t) {
		s.judge(t, i, all, found)
	}
	var sum tally
	for _, f := range all {
		x := found[f.name].sourced
		t.Logf("%4d of %4d caught: %s", x.caught, x.counted, f.name)
		if x.caught*100 < x.counted*99 {
			t.Errorf("%s: %d of %d mutants that count are caught, want 99%%", f.name, x.caught, x.counted)
		}
		sum.counted += x.counted
		sum.caught += x.caught
	}
	t.Logf("%d of %d mutants that count are caught beside the training graph", sum.caught, sum.counted)
	if sum.counted == 0 {
		t.Error("no mutant counts")
	}
}

// judge counts the mutants of a subject by family. first is where a sample begins.
func (s *subject) judge(t *testing.T, first int, families []family, found map[string]*tallies) {
	t.Helper()
	want := s.itself(t)
	k := 0
	for _, f := range families {
		all := f.list(s, s.plain)
		for i, m := range all {
			if k++; testing.Short() && k%sampledShort != 0 {
				continue
			}
			if !testing.Short() && !*everyMutant && len(all) > sampled && i%sampled != first%sampled {
				continue
			}
			graphs := s.mutant(t, m)
			if graphs == nil {
				continue
			}
			does, failed := s.effect(want, graphs)
			if does == "" {
				continue
			}
			caught, open := failed || s.refused(graphs, s.alone) != "", isOpen(f.name, m.what)
			sourced := caught || s.refused(graphs, s.sourced) != ""
			found[f.name].sourced.add(sourced)
			if open {
				found[f.name].open.add(caught)
			} else {
				found[f.name].checked.add(caught)
			}
			if !sourced {
				t.Logf("survivor: %s: %s: %s (%s)", s.name, f.name, m.what, does)
			} else if !caught {
				t.Logf("survivor alone: open %v: %s: %s: %s (%s)", open, s.name, f.name, m.what, does)
			}
		}
	}
}

var everyMutant = flag.Bool("every-mutant", false, "judge every mutant of every family")

// The share of mutants that are judged without -every-mutant, of each family of each subject, and by a short
// run: one of so many.
const sampled, sampledShort = 4, 8

// itself is what the step does in each scene. It must pass; from then on it is s.plain.
func (s *subject) itself(t *testing.T) []outcome {
	t.Helper()
	plain, err := s.step()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*ir.Graph, s.ranks)
	for r := range all {
		all[r] = plain
	}
	for _, by := range []proof{s.alone, s.sourced} {
		if why := s.refused(all, by); why != "" {
			t.Fatalf("%s: the step itself is refused: %s", s.name, why)
		}
	}
	s.plain = plain
	var want []outcome
	for _, sc := range scenes {
		o := s.play(all, sc)
		if o.err != nil {
			t.Fatalf("%s: %v", s.name, o.err)
		}
		want = append(want, o)
	}
	return want
}

// mutant is the step of each rank, nil where the edit finds no place or makes no graph.
func (s *subject) mutant(t *testing.T, m mutation) []*ir.Graph {
	t.Helper()
	graphs := make([]*ir.Graph, s.ranks)
	broken, err := s.step()
	if err != nil {
		t.Fatal(err)
	}
	if !m.edit(broken) || ir.Verify(broken, ir.Ready) != nil {
		return nil
	}
	// As text and back: names and IDs are those of a graph that a compiler hands on.
	if broken, err = ir.Parse("mutant.ir", []byte(broken.String())); err != nil {
		return nil
	}
	for r := range graphs {
		graphs[r] = s.plain
		if m.rank < 0 || m.rank == r {
			graphs[r] = broken
		}
	}
	return graphs
}
