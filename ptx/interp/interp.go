// Package interp runs parsed PTX on the CPU as a debugging device: warps of 32 lanes with their
// own program counters, block barriers, shuffles, votes, shared memory and atomics, with checks a
// GPU does not make: bounds and alignment of each access, reads of registers and memory never
// written, races between threads that no barrier orders, warp instructions reached by some lanes
// only. It counts the bytes kernels move.
//
// Blocks run one after the other, warps of a block in order until each reaches a barrier, so a run
// is deterministic; order independence is what the race check establishes.
package interp

import (
	"fmt"

	"ampc/ptx"
)

// FaultKind classifies what a kernel did wrong.
type FaultKind string

// The faults.
const (
	OutOfBounds   FaultKind = "out of bounds"
	Misaligned    FaultKind = "misaligned"
	Uninitialized FaultKind = "uninitialized"
	Race          FaultKind = "race"
	Divergence    FaultKind = "divergence"
	Runaway       FaultKind = "runaway"
	BadLaunch     FaultKind = "bad launch"
)

// Fault says what happened, where in the text and in which thread.
type Fault struct {
	Kind   FaultKind
	Kernel string
	Line   int    // line in the parsed text, 0 if the kernel was not parsed
	Inst   string // the instruction
	Block  [3]int
	Thread int
	What   string
}

func (f *Fault) Error() string {
	where := f.Kernel
	if f.Line > 0 {
		where = fmt.Sprintf("%s line %d", f.Kernel, f.Line)
	}
	if f.Inst == "" {
		return fmt.Sprintf("interp: %s: %s: %s", where, f.Kind, f.What)
	}
	return fmt.Sprintf("interp: %s: %s: %s (`%s`, block %v thread %d)", where, f.Kind, f.What, f.Inst, f.Block, f.Thread)
}

// Options tune a run.
type Options struct {
	NoRaces  bool  // skip the race check, which costs time and at least 12 bytes per byte touched
	MaxSteps int64 // number of warp instructions after which the run is aborted; 0 means 1<<34
	Trace    bool  // record the touched pages of memory, for Memory.Touched
}

// Stats counts what a launch did. Neighbouring lanes that access one address together count once, as
// the memory system serves them once.
type Stats struct {
	Steps                   int64         // number of warp instructions
	LoadBytes, StoreBytes   int64         // global memory
	LoadWidths, StoreWidths map[int]int64 // number of global accesses by bytes per lane
}

// Config is the shape of a launch.
type Config struct {
	Grid  [3]int
	Block int // threads, in one dimension
	Args  []uint64
}

// Run executes the kernel on mem.
func (p *Program) Run(mem *Memory, cfg Config, opt Options) (Stats, error) {
	stats := Stats{LoadWidths: map[int]int64{}, StoreWidths: map[int]int64{}}
	if err := p.checkLaunch(cfg); err != nil {
		return stats, err
	}
	mem.launch++
	mem.startTrace(opt.Trace)
	r := &run{p: p, mem: mem, cfg: cfg, opt: opt, stats: &stats, left: opt.MaxSteps}
	r.smem = mem.sharedOf(p.nshared)
	if r.left == 0 {
		r.left = 1 << 34
	}
	for z := 0; z < cfg.Grid[2]; z++ {
		for y := 0; y < cfg.Grid[1]; y++ {
			for x := 0; x < cfg.Grid[0]; x++ {
				if err := r.block([3]int{x, y, z}); err != nil {
					return stats, err
				}
				r.number++
			}
		}
	}
	return stats, nil
}

func (p *Program) checkLaunch(cfg Config) error {
	bad := func(format string, args ...any) error {
		return &Fault{Kind: BadLaunch, Kernel: p.Kernel.Name, What: fmt.Sprintf(format, args...)}
	}
	switch {
	case cfg.Block < 1 || cfg.Block > 1024:
		return bad("block of %d threads", cfg.Block)
	case p.Kernel.Threads > 0 && cfg.Block > p.Kernel.Threads:
		return bad("block of %d threads, .maxntid is %d", cfg.Block, p.Kernel.Threads)
	case len(cfg.Args) != len(p.Kernel.Params):
		return bad("%d arguments for %d parameters", len(cfg.Args), len(p.Kernel.Params))
	}
	limits := [3]int{1<<31 - 1, 65535, 65535}
	for i, n := range cfg.Grid {
		if n < 1 || n > limits[i] {
			return bad("grid %v", cfg.Grid)
		}
	}
	return nil
}

// run is a launch in progress.
type run struct {
	p      *Program
	mem    *Memory
	cfg    Config
	opt    Options
	stats  *Stats
	left   int64
	number uint32 // block number
	id     [3]int // block index
	epoch  uint32
	smem   *buffer
	warps  []*warp
}

// block runs one block to its end.
func (r *run) block(id [3]int) error {
	r.id, r.epoch = id, 0
	clear(r.smem.init)
	r.smem.marks.clear()
	r.prepareWarps()
	for {
		waiting := 0
		var at *inst
		for _, w := range r.warps {
			if err := w.run(); err != nil {
				return err
			}
			if w.barrier != nil {
				waiting++
				at = w.barrier
			}
		}
		if waiting == 0 {
			return nil
		}
		if err := r.release(waiting, at); err != nil {
			return err
		}
	}
}

// release lets the warps pass the barrier that all of them have reached.
func (r *run) release(waiting int, at *inst) error {
	for _, w := range r.warps {
		if w.barrier == nil || w.exited != 0 {
			return w.fault(Divergence, at, 0, "%d of %d warps wait at a barrier that other threads left the kernel without reaching", waiting, len(r.warps))
		}
		if *w.barrier.arg0() != *at.arg0() {
			return w.fault(Divergence, at, 0, "warps of one block wait at different barriers")
		}
	}
	for _, w := range r.warps {
		w.barrier = nil
	}
	r.epoch++
	return nil
}

// arg0 is the constant barrier number.
func (in *inst) arg0() *uint64 { return &in.src.Args[0].Imm }

func (r *run) prepareWarps() {
	n := (r.cfg.Block + warpSize - 1) / warpSize
	if r.warps == nil {
		for i := range n {
			r.warps = append(r.warps, newWarp(r, i, n))
		}
	}
	for _, w := range r.warps {
		w.reset()
	}
}

func (w *warp) fault(kind FaultKind, in *inst, lane int, format string, args ...any) error {
	f := &Fault{Kind: kind, Kernel: w.r.p.Kernel.Name, Block: w.r.id, Thread: w.index*warpSize + lane, What: fmt.Sprintf(format, args...)}
	if in != nil {
		f.Line, f.Inst = in.src.Line, trimSpace(in.src)
	}
	return f
}

func trimSpace(in *ptx.Inst) string {
	s := in.String()
	return s[1 : len(s)-1]
}
