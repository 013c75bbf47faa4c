package cpu

import (
	"fmt"

	"ampc/ir"
)

// copyState is a state with the role ir.RoleCopy. It is current if synced is the version of its
// variable.
type copyState struct {
	from, to *variable
	written  bool // the program writes the copy whenever it writes the variable
}

// bindCopies finds the states of p that are copies of other variables.
func (e *exec) bindCopies(s *store) error {
	written := map[string]bool{}
	for _, name := range e.p.Written {
		written[name] = true
	}
	for i := range e.p.Vars {
		v := &e.p.Vars[i]
		if v.Kind != ir.State || v.Role() != ir.RoleCopy {
			continue
		}
		of, _ := v.Attr.Get("of").(string)
		from, to := s.vars[of], s.vars[v.Name]
		if from == nil || to == nil || from.t.DType != ir.F32 || from.t.Shape != to.t.Shape || !to.t.DType.Low() {
			return fmt.Errorf("state %q is not a 16-bit copy of an f32 variable %q", v.Name, of)
		}
		e.copies = append(e.copies, copyState{from, to, written[of] && written[v.Name]})
	}
	return nil
}

// refreshCopies casts the copies whose variable was written by anything but this program.
func (e *exec) refreshCopies() {
	if len(e.copies) == 0 {
		return
	}
	e.of.store.casting.Lock()
	defer e.of.store.casting.Unlock()
	for _, s := range e.copies {
		if s.to.synced == s.from.version {
			continue
		}
		e.castAll(s.to, s.from)
		s.to.synced = s.from.version
		e.count.CastsMade++
		e.count.CastBytes += int64(len(s.to.mem))
	}
}

// castChunk is the number of elements of a copy that one task casts.
const castChunk = 1 << 14

// castTask casts a variable to its copy.
type castTask struct {
	b        *Backend
	to, from *variable
}

// castAll casts a whole variable to its copy.
func (e *exec) castAll(to, from *variable) {
	n := len(to.mem) / 2
	e.machine().Run(6*moveWork*n, (n+castChunk-1)/castChunk, &castTask{e.b, to, from})
}

// Run implements kern.Task.
func (t *castTask) Run(_, i int) {
	lo, hi := i*castChunk, min((i+1)*castChunk, len(t.to.mem)/2)
	t.b.Narrow(t.to.mem[2*lo:2*hi], t.to.t.DType, t.from.mem[4*lo:4*hi])
}

// syncCopies records that the step wrote copies together with their variables.
func (e *exec) syncCopies() {
	for _, s := range e.copies {
		if s.written {
			s.to.synced = s.from.version
		}
	}
}
