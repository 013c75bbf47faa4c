package interp

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// TestDeletedInstructionsAreNoticed removes each instruction of each case's kernel in turn, and the
// guard of each that has one: the verifier, the interpreter's checks, the comparison with the reference
// or the bytes moved must object. With -short, only the cases of one odd size in one flavour.
func TestDeletedInstructionsAreNoticed(t *testing.T) {
	var total, alive atomic.Int64
	flavours := []ptx.Flavour{ptx.SM70, ptx.SM80}
	if testing.Short() {
		flavours = flavours[1:]
	}
	t.Run("all", func(t *testing.T) {
		for _, fl := range flavours {
			for _, c := range ptxtest.Cases() {
				if testing.Short() && c.Size != 33 {
					continue
				}
				t.Run(fmt.Sprintf("sm%d_%s", fl.SM, c.Name), func(t *testing.T) {
					t.Parallel()
					n, survivors := mutants(t, c, fl)
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

// mutants takes each instruction and each guard from the case's kernel and lists those nothing missed.
func mutants(t *testing.T, c ptxtest.Case, fl ptx.Flavour) (n int, alive []string) {
	t.Helper()
	l, whole, _ := runCase(t, c, fl, 0)
	changes(l.Kernel, func(k *ptx.Kernel, what string) {
		n++
		if survives(c, l, k, fl, whole) {
			alive = append(alive, what)
		}
	})
	return n, alive
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
func survives(c ptxtest.Case, l *ptx.Launch, k *ptx.Kernel, fl ptx.Flavour, whole Stats) bool {
	if ptx.Verify(&ptx.Module{Flavour: fl, Kernels: []*ptx.Kernel{k}}) != nil {
		return false
	}
	p, err := Compile(k)
	if err != nil {
		return false
	}
	for trial := range max(c.Trials, 1) {
		bufs := c.Fill(c.Trial(trial))
		before := ptxtest.Snapshot(bufs)
		st, err := runBuffers(p, l, c, 2*whole.Steps+1000, bufs, 0)
		if err != nil || c.Check(before, bufs) != nil {
			return false
		}
		if trial == 0 && st.LoadBytes+st.StoreBytes > whole.LoadBytes+whole.StoreBytes {
			return false // see TestBytesMoved
		}
	}
	return true
}
