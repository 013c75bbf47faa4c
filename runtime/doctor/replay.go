package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// replay is a run of a graph whose values can be read. There are three forms:
//
//   - Full: all values stay in memory and are scanned on request. Values that a fused step
//     does not store are computed on request.
//   - Streamed, if they do not fit into memory: every node is a step, each value is scanned
//     as soon as its step has run, and its memory is used again. Operands of a possible
//     first flaw are copied.
//   - Traced: a few chosen values are scanned as soon as their steps have run. Others are
//     not known.
type replay struct {
	*compiled
	*workers
	ctx     context.Context
	loaded  *loaded
	machine *machine
	exec    runtime.Traceable // of the machine
	held    []runtime.Shown   // memory of exec that values are read in
	state   map[string][]byte
	feeds   []runtime.Feed
	first   int  // the number of the first feed
	counts  bool // see Case.Exponents

	part   lower.Part          // that runs, or ran last
	micro  int                 // its micro-batch
	step   int                 // the last step of that part that has run
	ranges map[*ir.Value]Range // of values scanned since the part ran
	flaws  map[*ir.Value]flaw  // of values scanned for flaws since the part ran

	inner  map[*ir.Value][]byte // content of values that are not stored, computed since the part ran
	ready  map[*ir.Value]bool   // values that are not stored, but whose operands have all been made since the part ran
	failed error                // why a value that is not stored could not be computed

	afterStep func(part lower.Part, step int) bool // called after every step; nil: only parts are looked at

	traced     map[moment][]*ir.Value // values to scan after each step; nil: values are scanned on request
	ranged     map[*ir.Value]bool     // traced: values whose range is kept, not only the largest magnitude
	peaks      map[*ir.Value]float64  // traced: largest magnitudes
	incomplete bool                   // traced: a value was requested that is not known

	holds map[lower.BufferID]*ir.Value // streamed: the value that a step stores in a buffer
	views map[*ir.Value][]*ir.Value    // streamed: of each value
	kept  map[*ir.Value][]byte         // streamed: operands of nodes that may be the first flaw of this part
}

// prepare makes a compiled replay ready to run on the variables that state gives,
// see loaded.take.
func (x *analysis) prepare(c *compiled, feeds []runtime.Feed, state func(converted map[string][]byte) map[string][]byte) (*replay, error) {
	r := &replay{compiled: c, workers: x.workers, ctx: x.ctx, loaded: x.loaded, feeds: feeds, first: x.c.First, counts: x.c.Exponents, step: -1}
	r.renew()
	if c.streamed {
		r.scanAsMade()
	}
	var err error
	r.machine, err = x.loaded.take(c, x.b, func(converted map[string][]byte) map[string][]byte {
		r.state = state(converted)
		return r.state
	})
	if err != nil {
		return nil, err
	}
	exec, ok := r.machine.exec.(runtime.Traceable)
	if !ok {
		return nil, fmt.Errorf("the backend gives no access to the memory of a running step")
	}
	r.exec = exec
	return r, nil
}

// close frees the replay's memory for others.
func (r *replay) close() {
	r.letGo()
	r.machine.close()
}

// leave ends the replay and keeps it loaded for another diagnosis.
func (r *replay) leave() {
	r.letGo()
	if r.streamed {
		r.close()
		return
	}
	r.loaded.used[r.compiled] = r.machine
}

// run replays the step, calling look after every part that ran, until it
// returns false.
func (r *replay) run(ctx context.Context, look func() bool) error {
	w := runtime.Tracer{From: r.first, Part: func(part lower.Part, micro int) bool {
		r.at(part, len(r.p.Parts[part])-1)
		r.micro = micro
		if ctx.Err() != nil || !look() {
			return false
		}
		r.next()
		return true
	}}
	if r.streamed || r.traced != nil || r.afterStep != nil {
		w.Step = func(part lower.Part, step int) bool {
			r.at(part, step)
			switch {
			case r.streamed:
				r.scanned(part, step)
			case r.traced != nil:
				r.measured(moment{part, step})
			}
			return r.afterStep == nil || r.afterStep(part, step)
		}
	}
	r.exec.Trace(w)
	r.busy = true
	defer func() { r.busy = false }()
	_, err := r.machine.exec.Step(ctx, r.feeds)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, runtime.ErrStopped) {
		err = nil
	}
	return cmp.Or(err, r.failed)
}

// home is the buffer of v. It is None if the program has no such value, or if v is a
// variable whose content the replay was given.
func (c *compiled) home(v *ir.Value) lower.BufferID {
	name := v.Name
	switch {
	case v.Kind == ir.State && v.Attr.Get("role") == ir.RoleCopy: // refreshed when the step begins
	case v.Kind == ir.Param || v.Kind == ir.State:
		return lower.None
	case v.Next != nil:
		if id, ok := c.buffer[name+"'"]; ok {
			return id
		}
		name = v.Next.Name
	}
	if id, ok := c.buffer[name]; ok {
		return id
	}
	return lower.None
}

// data is the content of v; of a variable, that before the step. It is nil if the program
// has no such value, or it was not kept.
func (r *replay) data(v *ir.Value) []byte {
	id := r.home(v)
	switch {
	case !r.made(v):
		return nil
	case v.Kind == ir.Param || v.Kind == ir.State && id == lower.None:
		return r.state[v.Name]
	case r.fed(v) != nil: // which the program may have read in place, until the step ended
		return r.fed(v)
	case id == lower.None && (r.streamed || v.IsVar()):
		return nil
	case id == lower.None:
		return r.unstored(v)
	case r.streamed && r.p.Buffers[id].Arena == lower.WorkArena:
		return r.kept[v]
	case !r.stored(v):
		return r.unstored(v)
	}
	return r.memory(id)
}

// fed is what the caller fed to an input, nil for other values.
func (r *replay) fed(v *ir.Value) []byte {
	if v.Kind != ir.Input || r.micro >= len(r.feeds) {
		return nil
	}
	return r.feeds[r.micro][v.Name].Data
}

// memory is the memory of a buffer, until the replay ends.
func (r *replay) memory(id lower.BufferID) []byte {
	s := r.exec.Buffer(id)
	r.held = append(r.held, s)
	return s.Bytes()
}

// letGo ends the reading of memory.
func (r *replay) letGo() {
	for _, s := range r.held {
		s.Release()
	}
	r.held = nil
}

// rangeOf scans v, once per part.
func (r *replay) rangeOf(v *ir.Value) Range {
	s, ok := r.ranges[v]
	switch {
	case ok:
		return s
	case r.traced != nil && !v.IsVar():
		r.incomplete = true
		return Range{Name: v.Name}
	case r.streamed && v.Def != nil && v.Def.Def().Is(ir.View): // what it shows was scanned
		s = r.rangeOf(v.Def.In[0])
		s.Name = v.Name
	default:
		s = r.scan(v.Name, v.Type.DType, r.data(v))
	}
	r.ranges[v] = s
	return s
}

// flaw says what keeps v from being finite. It does not compute v's range: most values
// are finite, and most others have a NaN near their beginning.
func (r *replay) flaw(v *ir.Value) flaw {
	if v == nil || !v.Type.DType.Float() || !r.made(v) {
		return fine
	}
	if s, scanned := r.ranges[v]; scanned {
		return s.flaw()
	}
	if r.streamed {
		return r.rangeOf(v).flaw()
	}
	f, known := r.flaws[v]
	switch {
	case known:
	case r.strided(v):
		var nan atomic.Bool
		f = worst(r, v, func(run []byte) flaw { return r.flawIn(v.Type.DType, run, &nan) })
		r.flaws[v] = f
	default:
		f = r.flawOf(v.Type.DType, r.data(v))
		r.flaws[v] = f
	}
	return f
}

// bad reports whether v is a float value that is not finite.
func (r *replay) bad(v *ir.Value) bool { return r.flaw(v) != fine }
