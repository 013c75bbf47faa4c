package interp

import (
	"math/bits"
	"slices"

	"ampc/ptx"
)

// warp is 32 lanes that run in lockstep where possible. Each step runs the lanes with the lowest
// program counter, so diverged lanes reconverge at the join.
type warp struct {
	r        *run
	index    int
	exist    uint32 // lanes that have threads
	exited   uint32
	pc       [warpSize]int
	regs     []lanes
	init     []uint32 // by register: lanes that have written it
	special  []lanes  // in the order of specials
	barrier  *inst
	passed   uint32 // number of warp barriers passed
	zero     lanes
	branched bool
}

func newWarp(r *run, index, warps int) *warp {
	w := &warp{r: r, index: index, regs: r.mem.registersOf(index, warps, r.p.regs), init: make([]uint32, r.p.regs)}
	for l := 0; l < warpSize; l++ {
		if index*warpSize+l < r.cfg.Block {
			w.exist |= 1 << l
		}
	}
	w.special = make([]lanes, len(specials))
	grid := r.cfg.Grid
	for i, v := range []int{0, 0, 0, index * warpSize, 0, 0, 0, index, r.cfg.Block, 1, 1, grid[0], grid[1], grid[2]} {
		w.special[i].fill(uint64(v))
	}
	for _, i := range []int{slices.Index(specials, "%tid.x"), slices.Index(specials, "%laneid")} {
		for l := range w.special[i] {
			w.special[i][l] += uint64(l)
		}
	}
	return w
}

func (w *warp) reset() {
	w.exited, w.barrier, w.passed = 0, nil, 0
	clear(w.pc[:])
	clear(w.init)
	for i, n := range w.r.id { // the first of specials
		w.special[i].fill(uint64(n))
	}
}

// pick returns the lanes with the lowest program counter, and the lowest counter of the other
// lanes.
func (w *warp) pick() (pc int, mask uint32, limit int) {
	const none = int(^uint(0) >> 1)
	pc, limit = none, none
	for m := w.exist &^ w.exited; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		switch p := w.pc[l]; {
		case p < pc:
			pc, mask, limit = p, 1<<l, pc
		case p == pc:
			mask |= 1 << l
		case p < limit:
			limit = p
		}
	}
	return pc, mask, limit
}

// run executes until the warp ends or waits at a barrier.
func (w *warp) run() error {
	for w.barrier == nil {
		pc, mask, limit := w.pick()
		if mask == 0 {
			return nil
		}
		w.branched = false
		for pc < limit && !w.branched {
			in := &w.r.p.code[pc]
			w.r.stats.Steps++
			if w.r.left--; w.r.left < 0 {
				return w.fault(Runaway, in, bits.TrailingZeros32(mask), "more instructions than allowed")
			}
			if err := w.step(in, pc, mask); err != nil {
				return err
			}
			pc++
		}
		if !w.branched {
			w.setPC(mask, pc)
		}
	}
	return nil
}

func (w *warp) setPC(mask uint32, pc int) {
	for ; mask != 0; mask &= mask - 1 {
		w.pc[bits.TrailingZeros32(mask)] = pc
	}
}

// step executes one instruction for the lanes of mask. Branch, Exit and Barrier set the lanes'
// counters themselves and set branched.
func (w *warp) step(in *inst, pc int, mask uint32) error {
	eff := mask
	if in.guard >= 0 {
		if err := w.needInit(in, in.guard, mask); err != nil {
			return err
		}
		eff = w.holds(in.guard, in.not, mask)
	}
	switch in.op.Kind {
	case ptx.Branch:
		w.setPC(mask, pc+1)
		w.setPC(eff, in.target)
		w.branched = eff != 0
		return nil
	case ptx.Exit:
		w.setPC(mask, pc+1)
		w.exited |= eff
		w.branched = true
		return nil
	}
	if eff == 0 {
		return nil
	}
	switch in.op.Kind {
	case ptx.Compute:
		return w.compute(in, eff)
	case ptx.LoadParam:
		w.fill(in.dst[0], eff, w.r.cfg.Args[in.off])
	case ptx.Load, ptx.Store:
		return w.access(in, eff)
	case ptx.Atomic, ptx.Reduction:
		return w.atomic(in, eff)
	case ptx.Pack, ptx.Unpack:
		return w.pack(in, eff)
	case ptx.Barrier:
		if eff != w.exist&^w.exited {
			return w.fault(Divergence, in, bits.TrailingZeros32(eff), "lanes %08x of %08x reach the barrier", eff, w.exist&^w.exited)
		}
		w.setPC(mask, pc+1)
		w.barrier, w.branched = in, true
	case ptx.ActiveMask:
		w.fill(in.dst[0], eff, uint64(eff))
	case ptx.Fence:
	default:
		return w.collective(in, eff)
	}
	return nil
}

func (w *warp) holds(guard int, not bool, mask uint32) uint32 {
	var out uint32
	for l, p := range w.regs[guard] {
		if (p != 0) != not {
			out |= 1 << l
		}
	}
	return out & mask
}

func (w *warp) needInit(in *inst, reg int, eff uint32) error {
	if missing := eff &^ w.init[reg]; missing != 0 {
		return w.fault(Uninitialized, in, bits.TrailingZeros32(missing), "reads a register that was never written in this lane")
	}
	return nil
}

// lanesOf returns the 32 values of a source.
func (w *warp) lanesOf(in *inst, s *source, eff uint32) (*lanes, error) {
	switch {
	case s.reg >= 0:
	case s.immediate != nil:
		return s.immediate, nil
	default:
		return &w.special[s.special], nil
	}
	return &w.regs[s.reg], w.needInit(in, s.reg, eff)
}

func (w *warp) sources(in *inst, eff uint32) (src [4]*lanes, err error) {
	for i := range src {
		if i >= in.nargs {
			src[i] = &w.zero
			continue
		}
		if src[i], err = w.lanesOf(in, &in.arg[i], eff); err != nil {
			return src, err
		}
	}
	return src, nil
}

func (w *warp) compute(in *inst, eff uint32) error {
	s, err := w.sources(in, eff)
	if err != nil {
		return err
	}
	d, f := &w.regs[in.dst[0]], in.op.Eval
	w.init[in.dst[0]] |= eff
	if eff == 1<<warpSize-1 {
		whole(f, in.nargs, d, s)
		return nil
	}
	for m := eff; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		d[l] = f(s[0][l], s[1][l], s[2][l], s[3][l])
	}
	return nil
}

// whole computes all lanes. Operands that f does not have are zero.
func whole(f ptx.Eval, n int, d *lanes, s [4]*lanes) {
	a, b, c := s[0], s[1], s[2]
	switch n {
	case 1:
		for l := range d {
			d[l] = f(a[l], 0, 0, 0)
		}
	case 2:
		for l := range d {
			d[l] = f(a[l], b[l], 0, 0)
		}
	case 3:
		for l := range d {
			d[l] = f(a[l], b[l], c[l], 0)
		}
	default:
		for l := range d {
			d[l] = f(a[l], b[l], c[l], s[3][l])
		}
	}
}

func (w *warp) fill(reg int, eff uint32, v uint64) {
	for m := eff; m != 0; m &= m - 1 {
		w.regs[reg][bits.TrailingZeros32(m)] = v
	}
	w.init[reg] |= eff
}

// pack joins two registers into one of twice the width, or splits one.
func (w *warp) pack(in *inst, eff uint32) error {
	half := uint(16)
	if in.op.Bytes == 8 {
		half = 32
	}
	if in.op.Kind == ptx.Pack {
		for _, r := range in.list {
			if err := w.needInit(in, r, eff); err != nil {
				return err
			}
		}
		lo, hi, d := &w.regs[in.list[0]], &w.regs[in.list[1]], &w.regs[in.dst[0]]
		for l := range d {
			if eff>>l&1 != 0 {
				d[l] = lo[l] | hi[l]<<half
			}
		}
		w.init[in.dst[0]] |= eff
		return nil
	}
	s, err := w.sources(in, eff)
	if err != nil {
		return err
	}
	src := *s[0]
	for i, r := range in.dst {
		for l := range src {
			if eff>>l&1 != 0 {
				w.regs[r][l] = src[l] >> (uint(i) * half) & (1<<half - 1)
			}
		}
		w.init[r] |= eff
	}
	return nil
}
