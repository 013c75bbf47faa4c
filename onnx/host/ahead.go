package host

import (
	"context"
	"errors"
	"maps"
	"time"

	"ampc/ir"
)

// errLater says that elements are needed which are not computed yet.
var errLater = errors.New("its elements are not computed yet")

// next finds or makes what runs at a stage, ready to run.
func (r *run) next(st *stage, f *frame) (*entry, error) {
	start, before := time.Now(), r.s.traced
	e, made, err := r.entry(st, f)
	if made {
		r.ahead(e, f)
	}
	r.join()
	if err == nil && e.program != nil {
		err = e.program.err
	}
	if made || err != nil {
		r.s.traced = before + time.Since(start)
	}
	return e, err
}

// ahead makes the entries that run after e, which was just made, as far as types are enough to choose
// them: up to a node on the host, or a guard of elements that are not computed yet. So what a decoder
// compiles for another length is compiled at one go. Between steps, which read all weights, each region
// would find the compiler's code and tables evicted from the processor's caches, and take about twice as
// long. Errors are left to the run, which meets them again if it gets there.
func (r *run) ahead(e *entry, f *frame) {
	if p := e.program; p != nil {
		p.users++ // it stays until it has run
		defer func() { p.users-- }()
	}
	left := &room{r.s.o.Programs / 2, r.s.o.ProgramBytes / 2} // the cache keeps as much beside those of another run
	types := &frame{scope: f.scope, outer: f.outer, env: maps.Clone(f.env)}
	if r.follow(e, types, left) {
		r.foresee(e.at.plan, left)
	}
}

// room is what entries may take that are made ahead.
type room struct {
	programs int
	bytes    int64
}

// follow makes the entries after e in a frame of types, and reports whether they are all there.
func (r *run) follow(e *entry, types *frame, left *room) bool {
	for e.next != nil {
		if len(e.nodes) > 0 || context.Cause(r.ctx) != nil {
			return false
		}
		if p := e.program; p != nil {
			r.s.cache.use(e)
			left.programs, left.bytes = left.programs-1, left.bytes-p.bytes
		}
		if left.programs <= 0 || left.bytes <= 0 {
			return false
		}
		for _, o := range e.outs {
			if o.at >= 0 {
				types.env[o.name] = &Value{Type: e.program.result(o.at), later: true}
			}
		}
		e.pass(types)
		e.bury(types)
		next, _, err := r.entry(e.next, types)
		if err != nil {
			return false
		}
		e = next
	}
	return len(e.nodes) == 0
}

// result is the type of a result.
func (p *program) result(at int) ir.Type {
	if p.build != nil {
		return p.build.types[at]
	}
	return p.whole(p.code.Outputs[at].Type)
}

// pass gives a frame the results that e does not compute: known ones, and other names of values.
func (e *entry) pass(f *frame) {
	for _, o := range e.outs {
		switch {
		case o.known != nil:
			f.env[o.name] = o.known
		case o.given != "":
			f.env[o.name], _, _ = f.find(o.given)
		}
	}
}

// bury takes from a frame what nothing reads after e.
func (e *entry) bury(f *frame) {
	for _, name := range e.dead {
		delete(f.env, name)
	}
}
