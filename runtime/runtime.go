// Package runtime is what every backend offers: one store of variables that
// several programs share, and executables that run a lowered Program step by step.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/world"
)

// Backend runs Programs on one device.
type Backend interface {
	Name() string
	Target() lower.Target
	// NewStore allocates variables, filled with zeros. It ignores inputs and constants among vars.
	NewStore(vars []lower.Var) (Store, error)
	// Load prepares p to run on the variables of s. The store must have every variable of p.
	Load(p *lower.Program, s Store) (Exec, error)
	Close() error
}

// Fallback is a Backend whose libraries may refuse what its Target promised.
type Fallback interface {
	// FallBack restricts Target if err, an error of Load, says that a library refused an operation
	// for which another implementation exists. It returns a sentence about what changed, or "" if
	// nothing changed.
	FallBack(err error) string
}

// Bounded is a Backend that knows how much memory it may have.
type Bounded interface {
	// Room is the memory in bytes that is left for variables and Programs, math.MaxInt64 where
	// nothing says.
	Room() (int64, error)
}

// Sized is a Backend that knows how much memory a Program takes before it is loaded.
type Sized interface {
	// Need is the memory in bytes that Load of p over s asks for, that the caller feeds to it, and that
	// its results take where the caller reads them, in addition to what is there.
	Need(p *lower.Program, s Store) (int64, error)
	// Fed says that the caller holds the inputs of n micro-batches at the same time in memory of its
	// own, for each Program that is loaded from now on. Before the first call it is one.
	Fed(n int)
}

// RoomError says that a Program, or variables, need more memory than there is.
type RoomError struct {
	Need, Room int64
	Spare      int64  // how much less room another process may find
	Text       string // what exceeds what
	Advice     string // "": make the batch or the model smaller
}

func (e *RoomError) Error() string { return e.Text + e.Ending() }

// Ending is how the message ends: the advice.
func (e *RoomError) Ending() string {
	if e.Advice == "" {
		return ": make the batch or the model smaller"
	}
	return ": " + e.Advice
}

// FallBack reports whether b refused to load a Program that is worth lowering
// again, for the Target that b has now, and why.
func FallBack(b Backend, err error) (why string, again bool) {
	n, ok := b.(Fallback)
	if !ok || err == nil {
		return "", false
	}
	why = n.FallBack(err)
	return why, why != ""
}

// Store holds variables by name, and 16-bit copies of them with the version they
// were cast from. Data is little-endian, row-major, dense.
type Store interface {
	// Declare adds the variables that the store does not have yet, filled with zeros. A variable
	// that it has must be of the same type.
	Declare(vars []lower.Var) error
	Write(name string, src []byte) error
	Read(name string, dst []byte) error
	// Drop removes variables that no loaded Program uses any more.
	Drop(names ...string) error
	Close() error
}

// Filler is a Store that reads what a variable holds when it needs it.
type Filler interface {
	// Fill sets the function that computes the content of a variable which no program reads yet.
	// The function writes the content into dst. The store may call it at any time, from any
	// goroutine, until Close. The store may free its own copy and call fill again.
	Fill(name string, fill func(dst []byte) error) error
}

// Viewer is a Store that lies in this process's memory.
type Viewer interface {
	// View shows the memory of a variable. Steps and Write change it.
	View(name string) (Shown, error)
}

// Shown is memory of a backend that a caller may read until Release. The zero Shown is none.
type Shown struct {
	mem     []byte
	release func()
}

// NewShown shows mem. release, if not nil, ends the caller's hold on it.
func NewShown(mem []byte, release func()) Shown { return Shown{mem, release} }

// Bytes is the memory. The caller must not change it, nor read it after Release.
func (s Shown) Bytes() []byte { return s.mem }

// Release ends the reading. It is called once.
func (s Shown) Release() {
	if s.release != nil {
		s.release()
	}
}

// Exec is a loaded Program. Steps run one at a time and two programs over one
// store do not run at once, unless the Exec is Concurrent.
type Exec interface {
	// Step runs prepare, then micro for every feed, then update. It checks the feeds before
	// anything runs. The caller may reuse the feeds when Step returns. A program without inputs
	// takes one empty Feed per micro-batch. A program without a micro part takes no feeds. If ctx
	// ends before update begins, Step returns an error that wraps the cause and leaves all
	// variables unchanged. Once update has begun, the step runs to its end.
	Step(ctx context.Context, feeds []Feed) (Future, error)
	Close() error
}

// Future gives the results of one step, once they are there. The last
// RingSize steps keep theirs; a result of more than SmallResult bytes may be gone when the next step
// of the program begins.
type Future interface {
	// Read copies a result to dst. out is the index of the result in Program.Outputs.
	Read(out int, dst []byte) error
}

// Kept is a Future whose results nothing overwrites: they are there until Release,
// or until nothing refers to it.
type Kept interface {
	// Bytes returns the memory of a result. It is valid until Release. The caller must not change
	// it.
	Bytes(out int) ([]byte, error)
	// Release lets a later step reuse the memory. Reading after Release is an error. No other
	// method may be running.
	Release()
}

// Concurrent is an Exec that may allow Step to be called by several goroutines at a
// time, also beside steps of other programs over its store that allow it. Its futures
// are Kept.
type Concurrent interface{ Concurrent() bool }

// Prompt is an Exec whose results are there when Step returns: reading them
// waits for nothing.
type Prompt interface{ Prompt() }

// RingSize is how many steps keep their results.
const RingSize = 4

// SmallResult is the size in bytes up to which a result is kept for RingSize steps.
const SmallResult = 64 << 10

// Tensor is host data.
type Tensor struct {
	Type ir.Type
	Data []byte // little-endian, row-major, dense
}

// Feed is one micro-batch: a tensor for every input by name. Inputs with a
// role are filled by the runtime. A Feed has the memory of caches (ir.RoleCache) as
// well, which the step writes.
type Feed map[string]Tensor

// RoleMicro is the role of an i32[] input that holds the index of the
// micro-batch within its step.
const RoleMicro = "micro"

// filled reports whether the runtime, not the caller, fills in an input.
func filled(v *lower.Var) bool {
	return v.Role() == RoleMicro || v.Role() == ir.RoleRank || v.Role() == ir.RoleSlice
}

// CheckFeeds says what is wrong with the feeds of a step of p, in one line.
func CheckFeeds(p *lower.Program, feeds []Feed) error {
	if len(feeds) == 0 && len(p.Parts[lower.Micro]) > 0 {
		return fmt.Errorf("%s: no feeds: a step takes one per micro-batch", p.Name)
	}
	for i, f := range feeds {
		if err := checkFeed(p, f); err != nil {
			if len(feeds) > 1 {
				return fmt.Errorf("%s: micro-batch %d: %w", p.Name, i, err)
			}
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

func checkFeed(p *lower.Program, f Feed) error {
	wanted := 0
	for i := range p.Vars {
		v := &p.Vars[i]
		if v.Kind != ir.Input && !v.PerCall() || filled(v) {
			continue
		}
		x, ok := f[v.Name]
		switch {
		case !ok && v.PerCall():
			return fmt.Errorf("no memory for the cache %q %s", v.Name, v.Type)
		case !ok:
			return fmt.Errorf("no feed for input %q %s", v.Name, v.Type)
		case x.Type != v.Type:
			return fmt.Errorf("feed %q is %s, the program takes %s", v.Name, x.Type, v.Type)
		case int64(len(x.Data)) != v.Type.Bytes():
			return fmt.Errorf("feed %q has %d bytes, %s takes %d", v.Name, len(x.Data), v.Type, v.Type.Bytes())
		}
		wanted++
	}
	if len(f) == wanted {
		return nil
	}
	return unknownFeed(p, f)
}

func unknownFeed(p *lower.Program, f Feed) error {
	known := map[string]bool{}
	var names []string
	for i := range p.Vars {
		if v := &p.Vars[i]; (v.Kind == ir.Input || v.PerCall()) && !filled(v) {
			known[v.Name] = true
			names = append(names, v.Name)
		}
	}
	var extra []string
	for name := range f {
		if !known[name] {
			extra = append(extra, name)
		}
	}
	sort.Strings(extra)
	if len(names) == 0 {
		return fmt.Errorf("feed %q: the program has no inputs", extra[0])
	}
	return fmt.Errorf("feed %q: no such input, the program takes %s", extra[0], strings.Join(names, ", "))
}

// Variables lists the variables of several programs, each name once: what a
// store for all of them declares. It fails where two programs disagree on a type.
func Variables(programs ...*lower.Program) ([]lower.Var, error) {
	var vars []lower.Var
	at := map[string]int{}
	for _, p := range programs {
		for _, v := range p.Vars {
			if v.Kind != ir.Param && v.Kind != ir.State || v.PerCall() {
				continue
			}
			k, ok := at[v.Name]
			if !ok {
				at[v.Name] = len(vars)
				vars = append(vars, v)
				continue
			}
			if vars[k].Type != v.Type {
				return nil, fmt.Errorf("variable %q is %s in one program and %s in %s", v.Name, vars[k].Type, v.Type, p.Name)
			}
		}
	}
	return vars, nil
}

// Counters are what an Exec has counted since it was loaded.
type Counters struct {
	Steps      int64
	CastBytes  int64 // bytes written by casts of variables in prepare
	CastsMade  int64
	CastsSaved int64         // casts skipped because the copy was current
	Messages   int64         // messages sent to other ranks
	Awaited    time.Duration // time that steps waited for messages
}

// Counted is an Exec that counts.
type Counted interface{ Counters() Counters }

// Timing is what one step of a Program took.
type Timing struct {
	Start   time.Time
	Spans   []Span // when each worker ran its share of the parallel regions
	Took    time.Duration
	Workers int           // number of workers
	Busy    time.Duration // time in parallel regions, summed over workers; at most Took for each
	Regions int           // number of parallel regions
	Alone   time.Duration // part of Took in which one worker ran and nothing was shared
}

// Span is a stretch of time that one worker was at work.
type Span struct {
	Worker int
	Start  time.Time
	Took   time.Duration
}

// Profiled is an Exec that can report what every step of the Program took.
// A nil f turns it off.
type Profiled interface {
	Profile(f func(part lower.Part, step int, timing Timing))
}

// Distributed is an Exec that can run a Program of several ranks.
type Distributed interface {
	// Join connects the Exec with the other ranks. It must be called before the first step. It
	// returns an error if the World does not reach the Exec's device.
	Join(w world.World) error
}

// Traceable is an Exec that reports its progress and shows its memory while it runs.
type Traceable interface {
	// Trace makes later steps call t. The zero Tracer ends tracing.
	Trace(t Tracer)
	// Buffer shows the current memory of a buffer of the Program.
	Buffer(id lower.BufferID) Shown
}

// Tracer is called while steps run; nil functions are left out.
type Tracer struct {
	// Step is called after each step of the Program. Part is called after each part, for the micro
	// part after each micro-batch. If one returns false, the training step ends with ErrStopped.
	Step func(part lower.Part, step int) bool
	Part func(part lower.Part, micro int) bool
	// From is the index of the first micro-batch of a step (RoleMicro).
	From int
}

// Pauser is an Exec whose steps can wait before their update, until the host has decided
// about flags that the micro-batches have set.
type Pauser interface {
	// BeforeUpdate watches flags, which are states of dtype bool. In every micro-batch of later
	// steps each flag starts as false. If one was set, decide is called after the last micro-batch.
	// It returns the values of the flags in the update. set[i][k] is the value of flag k after
	// micro-batch i. decide may read the store, whose weights are those before the update, and may
	// load programs beside the step. micro is the largest number of micro-batches of a step.
	BeforeUpdate(flags []string, micro int, decide Decide) error
}

// Decide is a function for BeforeUpdate. It gets the arguments of the running step.
type Decide func(ctx context.Context, feeds []Feed, set [][]bool) []bool

// ErrClosed is what a step returns whose Exec or Backend was closed.
var ErrClosed = errors.New("closed")

// ErrStopped is what a step returns that its Tracer ended.
var ErrStopped = errors.New("stopped by the test")
