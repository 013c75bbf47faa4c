package cpu

import "ampc/ir"

// lanes are one worker's registers, a block each, by class and slot.
type lanes struct {
	f [][]float32
	i [][]int64
	d [][]float64

	product []float32 // what a product has computed, from element at on
	at      int
}

// grow makes room for n slots of each class, without memory.
func (l *lanes) grow(n [numClasses]int) {
	l.f, l.i, l.d = make([][]float32, n[floats]), make([][]int64, n[ints]), make([][]float64, n[doubles])
}

// size is how many floats of memory the slots need, those in has excepted.
func (l *lanes) size(has map[slotID]bool, block int) int {
	return (len(l.f) + 2*len(l.i) + 2*len(l.d) - l.given(has)) * block
}

// given counts what the slots in has would need.
func (l *lanes) given(has map[slotID]bool) int {
	n := 0
	for id := range has {
		n += 2
		if id.kind == floats {
			n--
		}
	}
	return n
}

// slotID names a slot.
type slotID struct {
	kind class
	slot int
}

// place lays the slots out in mem, those in has excepted.
func (l *lanes) place(has map[slotID]bool, mem []float32, block int) {
	next := func(k class, slot, n int) []float32 {
		if has[slotID{k, slot}] {
			return nil
		}
		part := mem[:n*block]
		mem = mem[n*block:]
		return part
	}
	for k := range l.i { // wider elements first: they stay aligned
		if m := next(ints, k, 2); m != nil {
			l.i[k] = cast[int64](m)
		}
	}
	for k := range l.d {
		if m := next(doubles, k, 2); m != nil {
			l.d[k] = cast[float64](m)
		}
	}
	for k := range l.f {
		if m := next(floats, k, 1); m != nil {
			l.f[k] = m
		}
	}
}

// reg reads a register's block: from the shared lanes where it is uniform.
type reg struct {
	slot   int
	shared *lanes // nil: the worker's own
}

func (c *clusterCompiler) reg(r ir.Reg) reg {
	if s := c.slot[r]; s < 0 {
		return reg{-s - 1, &c.step.shared}
	}
	return reg{c.slot[r], nil}
}

func (r reg) from(l *lanes) *lanes {
	if r.shared != nil {
		return r.shared
	}
	return l
}

func (r reg) f(l *lanes, n int) []float32 { return r.from(l).f[r.slot][:n] }
func (r reg) i(l *lanes, n int) []int64   { return r.from(l).i[r.slot][:n] }
func (r reg) d(l *lanes, n int) []float64 { return r.from(l).d[r.slot][:n] }
