package data

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Example is one record: a value for each field. A value is a number, a bool, a
// string, or a slice of numbers or bools; a field has one type and length in all
// records of a set, unless Options.Collate says how others make a batch.
type Example map[string]any

// Set is data whose records have numbers from 0 to Len()-1. Several goroutines may
// call At at the same time.
type Set interface {
	Len() int
	// At returns record i. The caller must not change it. r provides the randomness of
	// transformations; it depends only on the loader's seed, the epoch and i. r is nil if the
	// loader does not shuffle, and then no transformation may be random.
	At(i int, r *rand.Rand) (Example, error)
}

// BadRecord is the error of a record that cannot be used, with its place. A Loader
// passes it to Options.OnBad; any other error of a Set ends the epoch.
type BadRecord struct {
	Path string // the file
	Line int    // from 1; 0: the error concerns the whole file
	Err  error
}

// Error says "path:line: reason".
func (e *BadRecord) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Path, e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *BadRecord) Unwrap() error { return e.Err }

// Skip is an OnBad that leaves bad records out.
func Skip(error) error { return nil }

// judge decides about a bad record: nil means that the record is left out.
func judge(onBad func(error) error, err error) error {
	if bad := (*BadRecord)(nil); onBad == nil || !errors.As(err, &bad) {
		return err
	}
	return onBad(err)
}

// Transform changes a record; it returns a new Example, or changes the one that it is
// given and returns it. What the fields hold must not be changed in place. For r see
// Set.At. An error that is no BadRecord ends the epoch.
type Transform func(e Example, r *rand.Rand) (Example, error)

// Map is a set whose records have gone through transforms, one after the other.
func Map(s Set, transforms ...Transform) Set { return mapped{s, transforms} }

type mapped struct {
	Set
	transforms []Transform
}

// At returns the transformed record i.
func (m mapped) At(i int, r *rand.Rand) (Example, error) {
	e, err := m.Set.At(i, r)
	for _, t := range m.transforms {
		if err != nil {
			return nil, err
		}
		e, err = t(e, r)
	}
	return e, err
}

// Subset holds the records of s with the given numbers, in that order.
func Subset(s Set, records []int) Set { return subset{s, records} }

type subset struct {
	of      Set
	records []int
}

// Len is the number of records.
func (s subset) Len() int { return len(s.records) }

// At returns record i of the subset.
func (s subset) At(i int, r *rand.Rand) (Example, error) { return s.of.At(s.records[i], r) }

// Split holds out a share of a set, at least one record of a set of two or more and at
// most all but one. The seed draws which; both parts keep the order of s.
func Split(s Set, share float64, seed uint64) (train, held Set) {
	n := s.Len()
	k := min(max(int(float64(n)*share+0.5), min(1, n-1)), n-1)
	order := rand.New(rand.NewPCG(seed, splitStream)).Perm(n)
	k = max(k, 0)
	out, in := order[:k], order[k:]
	slices.Sort(out)
	slices.Sort(in)
	return subset{s, in}, subset{s, out}
}

// splitStream separates the random numbers of Split from those of epochs.
const splitStream = 1 << 63

// Every holds out each k-th record of a set: records k-1, 2k-1 and so on.
func Every(s Set, k int) (train, held Set) {
	var in, out []int
	for i := range s.Len() {
		if k > 0 && i%k == k-1 {
			out = append(out, i)
		} else {
			in = append(in, i)
		}
	}
	return subset{s, in}, subset{s, out}
}

// Join holds the records of several sets, one set after the other.
func Join(sets ...Set) Set {
	j := joined{sets: sets}
	for _, s := range sets {
		j.ends = append(j.ends, j.Len()+s.Len())
	}
	return j
}

type joined struct {
	sets []Set
	ends []int // end index of each set in the joined records
}

// Len is the number of records of all sets.
func (j joined) Len() int {
	if len(j.ends) == 0 {
		return 0
	}
	return j.ends[len(j.ends)-1]
}

// At returns record i of the set that holds it.
func (j joined) At(i int, r *rand.Rand) (Example, error) {
	k, _ := slices.BinarySearch(j.ends, i+1) // the first set that ends after i
	if k > 0 {
		i -= j.ends[k-1]
	}
	return j.sets[k].At(i, r)
}
