package interp

import (
	"math/bits"

	"ampc/ptx"
)

// collective executes an instruction that lanes perform together. The last operand is the member
// mask. Exactly its members must arrive.
func (w *warp) collective(in *inst, eff uint32) error {
	s, err := w.sources(in, eff)
	if err != nil {
		return err
	}
	first := bits.TrailingZeros32(eff)
	if members := uint32(s[in.nargs-1][first]); members != eff {
		return w.fault(Divergence, in, first, "lanes %08x arrive, the mask names %08x", eff, members)
	}
	switch in.op.Kind {
	case ptx.WarpBarrier:
		w.passed++
	case ptx.Shuffle:
		return w.shuffle(in, eff, s)
	case ptx.Vote:
		w.fill(in.dst[0], eff, vote(in.op.Mode, ballot(s[0], eff), eff))
	case ptx.Ballot:
		w.fill(in.dst[0], eff, uint64(ballot(s[0], eff)))
	case ptx.Match:
		for m := eff; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			w.regs[in.dst[0]][l] = uint64(matching(s[0], s[0][l], eff))
		}
		w.init[in.dst[0]] |= eff
	case ptx.Redux:
		acc, rest := s[0][first], eff&(eff-1)
		for ; rest != 0; rest &= rest - 1 {
			acc = in.op.Eval(acc, s[0][bits.TrailingZeros32(rest)], 0, 0)
		}
		w.fill(in.dst[0], eff, acc)
	}
	return nil
}

// matching returns the lanes that hold v.
func matching(x *lanes, v uint64, eff uint32) uint32 {
	var out uint32
	for l, y := range x {
		if y == v {
			out |= 1 << l
		}
	}
	return out & eff
}

func ballot(p *lanes, eff uint32) uint32 {
	var out uint32
	for l, v := range p {
		if v != 0 {
			out |= 1 << l
		}
	}
	return out & eff
}

func vote(mode string, yes, eff uint32) uint64 {
	ok := false
	switch mode {
	case "any":
		ok = yes != 0
	case "all":
		ok = yes == eff
	case "uni":
		ok = yes == 0 || yes == eff
	}
	if ok {
		return 1
	}
	return 0
}

// shuffle gives each lane the value of another lane; see PTX ISA, "shfl.sync".
func (w *warp) shuffle(in *inst, eff uint32, s [4]*lanes) error {
	src := *s[0]
	for m := eff; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		from := shuffleSource(in.op.Mode, l, int(s[1][l]&31), int(s[2][l]))
		if eff>>from&1 == 0 {
			return w.fault(Divergence, in, l, "reads lane %d, which does not take part", from)
		}
		w.regs[in.dst[0]][l] = src[from]
	}
	w.init[in.dst[0]] |= eff
	return nil
}

func shuffleSource(mode string, lane, b, c int) int {
	seg, clamp := c>>8&31, c&31
	low := lane & seg
	high := low | clamp&^seg
	from := lane
	switch mode {
	case "bfly":
		from = lane ^ b
	case "down":
		from = lane + b
	case "up":
		if from = lane - b; from < high {
			return lane
		}
		return from
	case "idx":
		from = low | b&^seg
	}
	if from > high {
		return lane
	}
	return from
}
