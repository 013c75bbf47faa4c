package doctor

import (
	"context"
	"errors"
	"math"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu"
)

// CompareMixed replays a case with what patterns match in f32, and returns how far its results
// are from those in f32, as a share of their norm.
func CompareMixed(b *cpu.Backend, c *Case, patterns []string) (float64, error) {
	k := new(Kept)
	s, err := k.of(c)
	if err != nil {
		return 0, err
	}
	x := &analysis{subject: s, workers: newWorkers(b), ctx: context.Background(), c: c, loaded: k.take(b)}
	if err := x.begin(); err != nil {
		return 0, err
	}
	defer x.close()
	t, err := x.variantOf(kind{dtype: ir.F32, how: traced}, x.results()[0])
	if err != nil {
		return 0, err
	}
	right, done, err := x.resultsOf(t, c.Feeds, nil)
	if err != nil {
		return 0, err
	}
	defer done()
	if x.reference, err = x.build(ir.F32, x.results()[0], traced, true); err != nil { // it has seen no overflow
		return 0, err
	}
	out, done, err := x.mixedResults(patterns, nil)
	if err != nil {
		return 0, err
	}
	defer done()
	var off, all float64
	for i := range out {
		o, n := x.distance(out[i], right[i])
		off, all = off+o, all+n
	}
	return math.Sqrt(off / all), nil
}

// Replays counts the compiled replays and those that are loaded.
func (k *Kept) Replays() (n, loaded int) {
	for _, c := range []*compiled{k.subject.policy, k.subject.gradients, k.subject.forward} {
		if c != nil {
			n++
		}
	}
	if k.small != nil {
		loaded = len(k.small.machines)
	}
	return n + len(k.subject.others), loaded
}

// SearchedTo is the part and the step at which the search for the first flaw ends, and how many steps
// that part has.
func SearchedTo(b *cpu.Backend, c *Case) (part lower.Part, step, of int, err error) {
	k := new(Kept)
	s, err := k.of(c)
	if err != nil {
		return 0, 0, 0, err
	}
	x := &analysis{subject: s, workers: newWorkers(b), ctx: context.Background(), c: c, loaded: k.take(b)}
	if err := x.begin(); err != nil {
		return 0, 0, 0, err
	}
	defer x.close()
	found, err := x.search()
	if err == nil && found == nil {
		err = errors.New("no flaw found")
	}
	return x.actual.part, x.actual.step, len(x.actual.p.Parts[x.actual.part]), err
}
