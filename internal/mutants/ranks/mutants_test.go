package ranks

import (
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

// TestMutantsOfRanks: of the mutants that count, 99% are caught. A mutant counts where the
// evaluator shows other weights, losses or skips than the step itself has, ranks that end
// with different bits, or ranks that do not meet.
func TestMutantsOfRanks(t *testing.T) {
	counted, caught := 0, 0
	for _, s := range subjects(t) {
		plain, err := s.step()
		if err != nil {
			t.Fatal(err)
		}
		all := make([]*ir.Graph, s.ranks)
		for r := range all {
			all[r] = plain
		}
		if why := s.caught(all); why != "" {
			t.Fatalf("%s: the step itself is refused: %s", s.name, why)
		}
		var want []outcome
		for _, sc := range scenes {
			o := s.play(all, sc)
			if o.err != nil {
				t.Fatalf("%s: %v", s.name, o.err)
			}
			want = append(want, o)
		}
		for _, f := range families() {
			for _, m := range f.list(s, plain) {
				graphs := s.mutant(t, m)
				if graphs == nil {
					continue
				}
				does := s.effect(want, graphs)
				if does == "" {
					continue
				}
				counted++
				if s.caught(graphs) != "" {
					caught++
					continue
				}
				t.Logf("survivor: %s: %s: %s (%s)", s.name, f.name, m.what, does)
			}
		}
	}
	t.Logf("%d of %d mutants that count are caught", caught, counted)
	if counted == 0 || caught*100 < counted*99 {
		t.Errorf("%d of %d mutants that count are caught, want 99%%", caught, counted)
	}
}

// mutant is the step of each rank, nil where the edit finds no place or makes no graph.
func (s *subject) mutant(t *testing.T, m mutation) []*ir.Graph {
	t.Helper()
	graphs := make([]*ir.Graph, s.ranks)
	plain, err := s.step()
	if err != nil {
		t.Fatal(err)
	}
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
		graphs[r] = plain
		if m.rank < 0 || m.rank == r {
			graphs[r] = broken
		}
	}
	return graphs
}
