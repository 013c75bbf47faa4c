package programs

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"text/tabwriter"

	"ampc/lower"
)

const (
	// required is the share of mutants that matter which must be refused.
	required = 0.99
	// perFamily is how many mutants of a family each subject gives at most.
	perFamily, perFamilyShort = 3, 1
)

type mutant struct {
	text string
	edit edit
}

// pick draws at most n mutants of a family.
func pick(s *subject, f family, n int) []mutant {
	var list []mutant
	f.list(s.p, func(e edit, format string, args ...any) { list = append(list, mutant{fmt.Sprintf(format, args...), e}) })
	h := fnv.New64()
	fmt.Fprint(h, s.name, f.name)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list[:min(n, len(list))]
}

// refused asks the verifier about p.
func refused(t *testing.T, p *lower.Program, what string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: the verifier panics: %v", what, r)
			err = fmt.Errorf("%v", r)
		}
	}()
	return lower.Verify(p)
}

// count is what became of the mutants of a family: equal ones compute and move the same, lost ones do not, or are of
// a Program that does not run here, and it was not noticed.
type count struct{ made, refused, equal, lost int }

func (c *count) add(o count) {
	c.made, c.refused, c.equal, c.lost = c.made+o.made, c.refused+o.refused, c.equal+o.equal, c.lost+o.lost
}

// At least 99 of 100 mutants that change results, dtypes or bytes are refused, over models, policies, the CPU, the
// shared steps of sm_90, and its finished Programs.
func TestMutantsAreRefused(t *testing.T) {
	n := perFamily
	if testing.Short() {
		n = perFamilyShort
	}
	counts, lost := map[string]*count{}, []string{}
	for _, s := range subjects(t) {
		for _, f := range s.families() {
			if counts[f.name] == nil {
				counts[f.name] = &count{}
			}
			for _, m := range pick(s, f, n) {
				line := fmt.Sprintf("%s | %s | %s", f.name, s.name, m.text)
				c := judged(t, s, m, line)
				counts[f.name].add(c)
				if c.lost > 0 {
					lost = append(lost, line)
				}
			}
		}
	}
	all := count{}
	for _, c := range counts {
		all.add(*c)
	}
	if testing.Verbose() {
		report(os.Stdout, counts, all)
	}
	if share := float64(all.refused) / float64(all.refused+all.lost); share < required || len(counts) < 25 {
		t.Errorf("%d of %d mutants of %d kinds are refused: %.2f%%", all.refused, all.refused+all.lost, len(counts), 100*share)
	}
	slices.Sort(lost)
	for _, line := range lost {
		t.Log("not refused: " + line)
	}
}

func judged(t *testing.T, s *subject, m mutant, line string) count {
	p := clone(s.p)
	m.edit(p)
	if refused(t, p, line) != nil {
		return count{made: 1, refused: 1}
	}
	if s.want != nil {
		if got, err := execute(p); err == nil && got.equal(s.want) {
			return count{made: 1, equal: 1}
		}
	}
	return count{made: 1, lost: 1}
}

func report(out io.Writer, counts map[string]*count, all count) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutants\tmade\trefused\tequal\tnot refused")
	for _, f := range slices.Concat(ofSteps(), ofBodies(), ofMemory(), ofLaunches()) {
		if c := counts[f.name]; c != nil {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", f.name, c.made, c.refused, c.equal, c.lost)
		}
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\n", all.made, all.refused, all.equal, all.lost)
	w.Flush()
}

// families are the kinds of mutants that the verifier claims to refuse: in a finished Program of a GPU the steps are
// launches, whose memory and order it checks.
func (s *subject) families() []family {
	if _, steps := s.p.Target.(shared); s.p.Target == lower.CPU || steps {
		return slices.Concat(ofSteps(), ofBodies(), ofMemory())
	}
	list := slices.Concat(ofSteps(), ofMemory(), ofLaunches())
	return slices.DeleteFunc(list, func(f family) bool { return slices.Contains(unclaimed, f.name) })
}

// unclaimed is what a finished Program of a GPU does not show: a kernel's code says what it computes from which of its
// arguments.
var unclaimed = []string{
	"operands swapped", "results swapped", "step's body of another step", "operands of a group exchanged",
	"launch: arguments swapped", "launch: another kernel",
}
