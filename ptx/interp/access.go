package interp

import (
	"encoding/binary"
	"math/bits"

	"ampc/ptx"
)

// address computes and checks a lane's address and returns the bytes there.
func (w *warp) address(in *inst, lane int) (*buffer, uint64, error) {
	addr := in.off
	if in.base >= 0 {
		addr += w.regs[in.base][lane]
	}
	if addr%uint64(in.width) != 0 {
		return nil, 0, w.fault(Misaligned, in, lane, "%d bytes at address %#x", in.width, addr)
	}
	if in.op.Mode == "shared" {
		addr &= 0xffffffff
		if addr+uint64(in.width) > uint64(len(w.r.smem.data)) {
			return nil, 0, w.fault(OutOfBounds, in, lane, "%d bytes at shared offset %d of %d", in.width, addr, len(w.r.smem.data))
		}
		return w.r.smem, addr, nil
	}
	b := w.r.mem.find(addr, uint64(in.width))
	if b == nil {
		return nil, 0, w.fault(OutOfBounds, in, lane, "%d bytes at %#x are outside every allocation", in.width, addr)
	}
	return b, addr - b.addr, nil
}

// marksOf returns the race marks of an access, or nil if races are not checked.
func (w *warp) marksOf(b *buffer, off uint64, n int) []mark {
	switch {
	case b == w.r.smem:
		return b.touched(off, n)
	case w.r.opt.NoRaces:
		return nil
	}
	return w.r.mem.marksOf(b, off, n)
}

func (w *warp) stamp(lane int, atomic bool) stamp {
	thread := w.index*warpSize + lane
	return stamp{
		thread: w.r.number*uint32(w.r.cfg.Block) + uint32(thread) + 1,
		block:  w.r.number, warp: uint32(w.index),
		epoch: w.r.epoch, warpEpoch: w.passed, atomic: atomic,
	}
}

// access executes a load or store of every lane of eff.
func (w *warp) access(in *inst, eff uint32) error {
	if in.base >= 0 {
		if err := w.needInit(in, in.base, eff); err != nil {
			return err
		}
	}
	store := in.op.Kind == ptx.Store
	s, err := w.sources(in, eff)
	if err != nil {
		return err
	}
	for _, r := range in.list {
		if err := w.needInit(in, r, eff); err != nil {
			return err
		}
	}
	last, n := ^uint64(0), 0
	for m := eff; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		b, off, err := w.address(in, l)
		if err != nil {
			return err
		}
		if at := b.addr + off; at != last { // lanes with the same address share one access
			last = at
			n++
		}
		if store {
			err = w.store(in, l, b, off, s[0])
		} else {
			err = w.load(in, l, b, off)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range in.dst {
		w.init[r] |= eff
	}
	w.count(in, store, n)
	return nil
}

func (w *warp) count(in *inst, store bool, n int) {
	st := w.r.stats
	switch {
	case in.op.Mode != "global":
	case store:
		st.StoreBytes += int64(n * in.width)
		st.StoreWidths[in.width] += int64(n)
	default:
		st.LoadBytes += int64(n * in.width)
		st.LoadWidths[in.width] += int64(n)
	}
}

func (w *warp) load(in *inst, lane int, b *buffer, off uint64) error {
	if err := w.checkRead(in, lane, b, off, in.width, false); err != nil {
		return err
	}
	size := in.op.Bytes
	for i, r := range in.dst {
		w.regs[r][lane] = get(b.data[off+uint64(i*size):], size)
	}
	return nil
}

func (w *warp) checkRead(in *inst, lane int, b *buffer, off uint64, n int, atomic bool) error {
	if !b.written(off, n) {
		return w.fault(Uninitialized, in, lane, "byte %d of the allocation was never written", b.never(off, n))
	}
	w.trace(b, off, pageRead)
	marks := w.marksOf(b, off, n)
	if len(marks) == 0 {
		return nil
	}
	now := w.stamp(lane, atomic)
	for i := range marks {
		if marks[i].read(&now) {
			return w.fault(Race, in, lane, "reads byte %d, written by thread %d of block %d with no barrier between",
				off+uint64(i*n/len(marks)), (marks[i].writer.thread-1)%uint32(w.r.cfg.Block), marks[i].writer.block)
		}
	}
	return nil
}

func (w *warp) checkWrite(in *inst, lane int, b *buffer, off uint64, n int, atomic bool) error {
	w.trace(b, off, pageWrite)
	if marks := w.marksOf(b, off, n); len(marks) > 0 {
		now := w.stamp(lane, atomic)
		for i := range marks {
			if marks[i].write(&now) {
				return w.fault(Race, in, lane, "writes byte %d, touched by another thread with no barrier between", off+uint64(i*n/len(marks)))
			}
		}
	}
	setAll(b.init[off : off+uint64(n)])
	return nil
}

func (w *warp) trace(b *buffer, off uint64, kind uint8) {
	if w.r.mem.touch && b != w.r.smem {
		w.r.mem.note(b, off, kind)
	}
}

func (w *warp) store(in *inst, lane int, b *buffer, off uint64, scalar *lanes) error {
	if err := w.checkWrite(in, lane, b, off, in.width, false); err != nil {
		return err
	}
	size := in.op.Bytes
	if len(in.list) == 0 {
		put(b.data[off:], size, scalar[lane])
	}
	for i, r := range in.list {
		put(b.data[off+uint64(i*size):], size, w.regs[r][lane])
	}
	return nil
}

// atomic executes a read-modify-write of each lane in turn.
func (w *warp) atomic(in *inst, eff uint32) error {
	s, err := w.sources(in, eff)
	if err == nil && in.base >= 0 {
		err = w.needInit(in, in.base, eff)
	}
	if err != nil {
		return err
	}
	for m := eff; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		b, off, err := w.address(in, l)
		if err == nil {
			err = w.checkRead(in, l, b, off, in.width, true)
		}
		if err == nil {
			err = w.checkWrite(in, l, b, off, in.width, true)
		}
		if err != nil {
			return err
		}
		old := get(b.data[off:], in.width)
		put(b.data[off:], in.width, in.op.Eval(old, s[0][l], s[1][l], 0))
		if len(in.dst) > 0 {
			w.regs[in.dst[0]][l] = old
		}
	}
	for _, r := range in.dst {
		w.init[r] |= eff
	}
	w.count(in, false, bits.OnesCount32(eff))
	w.count(in, true, bits.OnesCount32(eff))
	return nil
}

// get reads n little-endian bytes.
func get(b []byte, n int) uint64 {
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// put writes the low n bytes of v.
func put(b []byte, n int, v uint64) {
	switch n {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}
