// Package mutants tests the checker of finished steps from outside: it breaks compiled steps in every way that
// someone who knows the IR alone could think of, decides by evaluation which of them behave otherwise, and counts
// how many of those the checker refuses. It knows nothing of how the checker works.
package mutants

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"ampc/ir"
	"ampc/passes/prove"
)

const (
	// required is the share of mutants that count which the checker has to refuse.
	required = 0.99
	// outsideMost is the share of mutants that behave otherwise which may lie outside of what is claimed.
	outsideMost = 0.05
	// leastMutants have to count in a whole run.
	leastMutants = 3000
)

var perFamily = flag.Int("per-family", 1, "mutants of each family that TestMutants takes of each subject at most")

// refuses asks the checker.
func refuses(s *subject, g *ir.Graph) (found []prove.Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the checker panics: %v", p)
		}
	}()
	return prove.Prove(s.training, g, s.rules), nil
}

// applies edits a mutant. Rows may panic over what no graph has; those mutants are none.
func (c *candidate) applies(m *mutant) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	return c.edit(m)
}

func families() []family {
	return slices.Concat(structural(), ofPrecision(), ofSteps(), ofJoins(), ofCopies(), ofMoves())
}

// verdict is what became of one mutant.
type verdict struct {
	candidate
	subject string
	f       *family
	effect  effect
	why     string
	caught  string // the first finding, "" where none
}

func (v *verdict) String() string {
	return fmt.Sprintf("%s | %s | %s | %s | %s: %s", v.family, v.subject, v.where, v.text, v.effect, v.why)
}

func (s *subject) verdicts(fs []family, most int, t *testing.T) []verdict {
	j, err := newJudge(s)
	if err != nil {
		t.Error(err)
		return nil
	}
	known := map[string]bool{} // a finding about the subject itself finds no mutant
	found, err := refuses(s, s.final)
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, f := range found {
		known[f.String()] = true
	}
	var out []verdict
	for i := range fs {
		for _, c := range s.candidates(&fs[i], most) {
			m := s.copy()
			v := verdict{candidate: c, subject: s.name, f: &fs[i], effect: invalid}
			if c.applies(m) && ir.Verify(m.g, ir.Ready) == nil {
				v.effect, v.why = j.judge(m)
				found, err := refuses(s, m.g)
				if err != nil {
					t.Errorf("%s: %v", &v, err)
				}
				for _, f := range found {
					if text := f.String(); !known[text] {
						v.caught = text
						break
					}
				}
			}
			out = append(out, v)
		}
	}
	return out
}

// all judges every subject's mutants, as many subjects at a time as there are processors.
func all(t *testing.T, list []*subject, most int) []verdict {
	fs, out := families(), make([][]verdict, len(list))
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = list[i].verdicts(fs, most, t)
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wg.Wait()
	return slices.Concat(out...)
}

// row is a line of the table.
type row struct {
	name                                    string
	made, invalid, equivalent, free, alarms int
	value, control, precision               int
	caught, survived                        int
	outside                                 string
}

func (r *row) add(v *verdict) {
	r.made++
	switch v.effect {
	case invalid:
		r.invalid++
	case equivalent:
		r.equivalent++
	case freedom:
		r.free++
	case byValue:
		r.value++
	case byControl:
		r.control++
	case byRounding:
		r.precision++
	}
	switch {
	case v.effect.counts() && v.caught != "":
		r.caught++
	case v.effect.counts():
		r.survived++
	case v.caught != "":
		r.alarms++
	}
}

func table(w io.Writer, rows []*row) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "family\tmade\tinvalid\tequivalent\tfree\trefused\tvalue\tcontrol\tprecision\tcaught\tsurvived\t")
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", r.name, r.made, r.invalid, r.equivalent, r.free, r.alarms, r.value, r.control, r.precision, r.caught, r.survived, r.outside)
	}
	tw.Flush()
}

// The checker refuses mutants of finished steps, and nothing but them.
func TestMutants(t *testing.T) {
	most := *perFamily
	list := subjects(t)
	if testing.Short() {
		list = list[:12]
	}
	if only := os.Getenv("AMPC_MUTANTS"); only != "" {
		list = slices.DeleteFunc(list, func(s *subject) bool { return !strings.Contains(s.name, only) })
	}
	noFalseAlarm(t, list)
	vs := all(t, list, most)
	total := &row{name: "total"}
	rows := map[string]*row{}
	var order []*row
	outside := 0
	for i := range vs {
		v := &vs[i]
		r := rows[v.family]
		if r == nil {
			r = &row{name: v.family, outside: v.f.outside}
			rows[v.family] = r
			order = append(order, r)
		}
		r.add(v)
		total.add(v)
		if v.effect.counts() && v.f.outside != "" {
			outside++
		}
	}
	order = append(order, total)
	var text strings.Builder
	table(&text, order)
	t.Logf("%d subjects, %d families\n%s", len(list), len(rows), &text)
	report(t, vs)
	count := total.caught + total.survived
	if only := os.Getenv("AMPC_MUTANTS"); count < leastMutants && !testing.Short() && only == "" {
		t.Errorf("%d mutants count, want %d", count, leastMutants)
	}
	if share := float64(total.caught) / float64(count-outside); share < required {
		t.Errorf("%d of %d mutants that count are refused: %.4f, want %.2f", total.caught, count-outside, share, float64(required))
	}
	if float64(outside) > outsideMost*float64(count) {
		t.Errorf("%d of %d mutants that count lie outside of what is claimed", outside, count)
	}
}

// noFalseAlarm asks about subjects as they were compiled, and with other annotations.
func noFalseAlarm(t *testing.T, list []*subject) {
	fs := ofNotes()
	for _, s := range list {
		found, err := refuses(s, s.final)
		if err != nil || len(found) > 0 {
			complain(t, "%s, as it was compiled: %v %v", s.name, found, err)
			continue
		}
		for i := range fs {
			for _, c := range s.candidates(&fs[i], 2) {
				m := s.copy()
				c.edit(m)
				if found, err := refuses(s, m.g); err != nil || len(found) > 0 {
					complain(t, "%s, %s (%s): %v %v", s.name, c.family, c.text, found[:min(1, len(found))], err)
					break
				}
			}
		}
	}
}

// complain is an error as soon as the checker is held to a share.
func complain(t *testing.T, format string, args ...any) {
	if required > 0 {
		t.Errorf(format, args...)
	} else {
		t.Logf(format, args...)
	}
}

// report prints survivors, family by family, the family with the most first.
func report(t *testing.T, vs []verdict) {
	by := map[string][]*verdict{}
	for i := range vs {
		if v := &vs[i]; v.effect.counts() && v.caught == "" && v.f.outside == "" {
			by[v.family] = append(by[v.family], v)
		}
	}
	names := slices.Sorted(maps.Keys(by))
	slices.SortStableFunc(names, func(a, b string) int { return len(by[b]) - len(by[a]) })
	for _, name := range names {
		for i, v := range by[name] {
			if i < 3 || os.Getenv("AMPC_SURVIVORS") != "" {
				t.Logf("survives (%d of its family): %s", len(by[name]), v)
			}
		}
	}
}

// Annotations turn no rejection into an acceptance.
func TestAnnotationsAcquitNobody(t *testing.T) {
	list, fs := subjects(t), families()
	for i, s := range list {
		if i%5 != 0 && testing.Short() {
			continue
		}
		for k := range fs {
			for _, c := range s.candidates(&fs[k], 1) {
				m := s.copy()
				if !c.applies(m) || ir.Verify(m.g, ir.Ready) != nil {
					continue
				}
				before, err := refuses(s, m.g)
				if err != nil || len(before) == 0 {
					continue
				}
				changeAll(m.g, s.rand("acquit", k))
				if after, _ := refuses(s, m.g); len(after) == 0 {
					complain(t, "%s | %s | %s | %s: with other annotations not found: %s", c.family, s.name, c.where, c.text, before[0])
				}
			}
		}
	}
}
