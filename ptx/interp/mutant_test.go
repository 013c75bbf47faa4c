package interp

import (
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

var everyInstruction = flag.Bool("every-instruction", false, "remove every instruction of every case")

// sampled is the share of changes that a run without -every-instruction tries in most cases: one of so many.
const sampled = 9

// TestDeletedInstructionsAreNoticed removes each instruction of each case's kernel in turn, and the
// guard of each that has one: the verifier, the interpreter's checks, the comparison with the reference,
// the bytes moved or the number of instructions must object. Of cases of other sizes than one odd size a run tries
// every fourth change, the cases of a kernel in turn from the first, second, third and fourth on;
// -every-instruction tries all. With -short, only the cases of that size in one flavour.
func TestDeletedInstructionsAreNoticed(t *testing.T) {
	var total, alive atomic.Int64
	flavours := []ptx.Flavour{ptx.SM80, ptx.SM70}
	if testing.Short() {
		flavours = flavours[:1]
	}
	t.Run("all", func(t *testing.T) {
		ordinal := map[string]int{}
		for _, fl := range flavours {
			for _, c := range ptxtest.Cases() {
				full := c.Size == 33 && fl == ptx.SM80
				if testing.Short() && !full || c.Long {
					continue
				}
				every, first := sampled, ordinal[c.Kernel]%sampled
				if full || *everyInstruction {
					every, first = 1, 0
				}
				ordinal[c.Kernel]++
				t.Run(fmt.Sprintf("sm%d_%s", fl.SM, c.Name), func(t *testing.T) {
					t.Parallel()
					if fl != ptx.SM80 && sameCode(t, c) {
						return // all of it is tried already
					}
					n, survivors := mutants(t, c, fl, every, first)
					if n == 0 {
						t.Error("nothing tried")
					}
					total.Add(int64(n))
					alive.Add(int64(len(survivors)))
					for _, line := range survivors {
						t.Errorf("%s: nothing notices the loss of `%s`", c.Name, line)
					}
				})
			}
		}
	})
	t.Logf("%d of %d changes noticed", total.Load()-alive.Load(), total.Load())
}

// sameCode reports whether the case's kernel is the same in both flavours.
func sameCode(t *testing.T, c ptxtest.Case) bool {
	t.Helper()
	var bodies [2][]ptx.Inst
	for i, fl := range []ptx.Flavour{ptx.SM70, ptx.SM80} {
		l, err := c.Build(fl)
		if err != nil {
			t.Fatal(err)
		}
		bodies[i] = l.Kernel.Body
	}
	return slices.EqualFunc(bodies[0], bodies[1], func(a, b ptx.Inst) bool { return a.String() == b.String() })
}

// mutants takes instructions and guards from the case's kernel, every so many from the first on, and lists those
// nothing missed.
func mutants(t *testing.T, c ptxtest.Case, fl ptx.Flavour, every, first int) (n int, alive []string) {
	t.Helper()
	l, whole, _ := runCase(t, c, fl, 0)
	s := &suspects{bench: newBench(l, c, c.Fill(c.Rand()), 0), fl: fl, whole: whole}
	at := 0
	changes(l.Kernel, func(k *ptx.Kernel, what string) {
		if at++; (at-1)%every != first {
			return
		}
		n++
		if s.survives(k) {
			alive = append(alive, what)
		}
	})
	return n, alive
}

// suspects are changed kernels of one case.
type suspects struct {
	*bench
	fl    ptx.Flavour
	whole Stats
	fills [][]ptxtest.Tensor // of the trials so far
	bufs  []ptxtest.Tensor
}

// trial is the buffers of a fill, and what they held before the launch.
func (s *suspects) trial(n int) (before, bufs []ptxtest.Tensor) {
	if n == len(s.fills) {
		s.fills = append(s.fills, s.c.Fill(s.c.Trial(n)))
	}
	if s.bufs == nil {
		s.bufs = ptxtest.Snapshot(s.fills[n])
	}
	for i, b := range s.fills[n] {
		copy(s.bufs[i].Bytes, b.Bytes)
	}
	return s.fills[n], s.bufs
}

// changes calls f with copies of a kernel that lack one instruction or one guard.
func changes(whole *ptx.Kernel, f func(k *ptx.Kernel, what string)) {
	body := whole.Body
	try := func(i int, what string, changed ...ptx.Inst) {
		k := *whole
		k.Body = slices.Concat(body[:i], changed, body[i+1:])
		f(&k, what+trimSpace(&body[i]))
	}
	for i, in := range body {
		if in.Op == nil {
			continue
		}
		try(i, "")
		if in.Guard.Class != ptx.NoClass {
			in.Guard = ptx.Reg{}
			try(i, "guard of ", in)
		}
	}
}

// survives reports whether a changed kernel passes everything, in at most twice the whole one's steps.
func (s *suspects) survives(k *ptx.Kernel) bool {
	if ptx.Verify(&ptx.Module{Flavour: s.fl, Kernels: []*ptx.Kernel{k}}) != nil {
		return false
	}
	p, err := Compile(k)
	if err != nil {
		return false
	}
	for n := range max(s.c.Trials, 1) {
		before, bufs := s.trial(n)
		st, err := s.run(p, 2*s.whole.Steps+1000, bufs)
		if err != nil || s.c.Check(before, bufs) != nil {
			return false
		}
		if n == 0 && st.LoadBytes+st.StoreBytes > s.whole.LoadBytes+s.whole.StoreBytes {
			return false // see TestBytesMoved
		}
		if n == 0 && st.Steps > s.whole.Steps {
			return false // what is lost makes the kernel faster: an unrolled loop before the one for the rest
		}
	}
	return true
}
