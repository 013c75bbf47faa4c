package runtimetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/runtime"
)

// Run is the suite. open starts a backend with the given number of threads (a
// backend without threads ignores it).
func Run(t *testing.T, open func(t *testing.T, threads int) runtime.Backend) {
	t.Run("steps", func(t *testing.T) { testSteps(t, open) })
	t.Run("pools", func(t *testing.T) { testPools(t, open) })
	t.Run("graphs", func(t *testing.T) { testGraphs(t, open) })
	t.Run("nonfinite", func(t *testing.T) { testNonfinite(t, open(t, 2)) })
	t.Run("rows", func(t *testing.T) {
		covered := map[string]bool{}
		for _, c := range testRows(t, open, cases) {
			name, _, _ := strings.Cut(c, " ")
			covered[name] = true
		}
		for _, op := range ir.Ops() {
			if d := op.Def(); !covered[d.Name] && !d.Is(ir.Collective) && !d.Is(ir.Caches) && op != ir.OpForeign {
				t.Errorf("row %s has no case", d.Name)
			}
		}
	})
}

// RunRows is the part of the suite over the rows whose names contain one of
// the words, "conv|attention".
func RunRows(t *testing.T, words string, open func(t *testing.T, threads int) runtime.Backend) {
	list := slices.Clone(cases)
	testRows(t, open, slices.DeleteFunc(list, func(c string) bool {
		name, _, _ := strings.Cut(c, " ")
		return !slices.ContainsFunc(strings.Split(words, "|"), func(w string) bool { return strings.Contains(name, w) })
	}))
}

// testRows runs every case in every dtype the row takes, plain and with
// special values, and wants the same bits from 1, 2 and 7 threads.
func testRows(t *testing.T, open func(t *testing.T, threads int) runtime.Backend, cases []string) []string {
	backends := slices.Compact([]runtime.Backend{open(t, 1), open(t, 2), open(t, 7)}) // one, if threads are nothing to it
	shares := map[string]float64{}
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c, "/", "|"), func(t *testing.T) {
			large := false
			for _, d := range []ir.DType{ir.F32, ir.F16, ir.BF16} {
				for _, out := range []ir.DType{ir.Invalid, ir.F32, ir.F16, ir.BF16} {
					for _, special := range []bool{false, true} {
						if large && (d == ir.BF16 || out != ir.Invalid || special) {
							continue
						}
						s, err := newSample(c, d, out, special)
						if err != nil {
							t.Error(err)
							return
						}
						if s == nil {
							continue
						}
						large = s.large()
						name := s.node.Def().Name
						if share := s.check(t, backends, special); share > shares[name] {
							shares[name] = share
						}
					}
				}
			}
		})
	}
	reportShares(t, shares)
	return cases
}

// large cases check how work is cut; their numbers need no second look.
func (s *sample) large() bool {
	n := 0
	for _, x := range s.feed {
		n += x.Len()
	}
	return n > 1<<14
}

// reportShares prints how much of its bound each bounded row used.
func reportShares(t *testing.T, shares map[string]float64) {
	var lines []string
	for name, s := range shares {
		lines = append(lines, fmt.Sprintf("%-24s %3.0f%%", name, 100*s))
	}
	sort.Strings(lines)
	t.Logf("share of the bound used:\n%s", strings.Join(lines, "\n"))
}

// check runs a sample on every backend and compares the first with the
// evaluator, the others with the first. It returns the largest share of the
// bound that was used.
func (s *sample) check(t *testing.T, backends []runtime.Backend, special bool) float64 {
	t.Helper()
	caps := backends[0].Target().Caps()
	wants, err := s.wants(caps)
	if err != nil {
		t.Errorf("%s: evaluator: %v", s.name, err)
		return 0
	}
	var first [][]byte
	share := 0.0
	for _, b := range backends {
		got, err := s.run(b)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			return 0
		}
		if first == nil {
			first = got
			if share, err = s.oneOf(wants, got, caps.RoundsInside); err != nil {
				t.Errorf("%s (special values: %t): %v", s.name, special, err)
			}
			continue
		}
		for k := range got {
			if string(got[k]) != string(first[k]) {
				t.Errorf("%s: result %d differs between numbers of threads", s.name, k)
			}
		}
	}
	return share
}

// wants are the results of which a backend must give one: the evaluator's, and those of operands that are not
// rounded where math=tf32 allows it and the target says so.
func (s *sample) wants(caps ir.Caps) ([][]*eval.Tensor, error) {
	want, err := s.exact()
	if err != nil || s.node.Str("math") != "tf32" || !caps.MayKeepTF32 {
		return [][]*eval.Tensor{want}, err
	}
	kept, err := s.kept()
	return [][]*eval.Tensor{want, kept}, err
}

// oneOf is the share of its bound that got uses of the first of wants that it agrees with; the error says how
// it differs from the first of all.
func (s *sample) oneOf(wants [][]*eval.Tensor, got [][]byte, inside bool) (share float64, err error) {
	for _, want := range wants {
		used, differs := s.compare(got, want, inside)
		if differs == nil {
			return used, nil
		}
		err = cmp.Or(err, differs)
	}
	return 0, err
}

// compare is the largest share of the bound that a result uses.
func (s *sample) compare(got [][]byte, want []*eval.Tensor, inside bool) (share float64, err error) {
	for k, w := range want {
		tol, err := s.allowed(k, want, inside)
		if err != nil {
			return 0, err
		}
		x, err := eval.FromBytes(w.Type, got[k])
		if err != nil {
			return 0, err
		}
		diff, used := differ(x, w, tol)
		if diff != "" {
			return 0, fmt.Errorf("result %d: %s", k, diff)
		}
		share = max(share, used)
	}
	return share, nil
}

// run lowers the sample's graph, runs one step and reads the results.
func (s *sample) run(b runtime.Backend) ([][]byte, error) {
	l, err := s.load(b)
	if err != nil {
		return nil, err
	}
	defer l.close()
	return l.step(s.feed)
}

// loaded is a sample's program on a backend.
type loaded struct {
	p     *lower.Program
	store runtime.Store
	exec  runtime.Exec
}

func (s *sample) load(b runtime.Backend) (*loaded, error) {
	p, err := lower.Lower(s.g, b.Target())
	if err != nil {
		return nil, err
	}
	store, err := b.NewStore(p.Vars)
	if err != nil {
		return nil, err
	}
	e, err := b.Load(p, store)
	if err != nil {
		store.Close()
		if _, again := runtime.FallBack(b, err); again {
			return s.load(b)
		}
		return nil, err
	}
	return &loaded{p, store, e}, nil
}

func (l *loaded) close() {
	l.exec.Close()
	l.store.Close()
}

// step feeds the program once and reads the results.
func (l *loaded) step(feed map[string]*eval.Tensor) ([][]byte, error) {
	future, err := l.exec.Step(context.Background(), Feeds(feed))
	if err != nil {
		return nil, err
	}
	var got [][]byte
	for i, o := range l.p.Outputs {
		buf := make([]byte, o.Type.Bytes())
		if err := future.Read(i, buf); err != nil {
			return nil, err
		}
		got = append(got, buf)
	}
	return got, nil
}
