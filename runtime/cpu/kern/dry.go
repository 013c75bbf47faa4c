package kern

import (
	"reflect"
	"unsafe"
)

// NewDry makes a machine of n workers, in use, that only counts memory. Of every region it runs the
// first task, on the caller, and of long tasks the first and the last part. The scratch memory that
// kernels then request is that of a machine of n workers (Scratch). The results are not those of the
// kernels.
func NewDry(p *Path, n int) *Machine {
	t := newTeamOf(max(n, 1), false)
	t.dry = true
	pool := newPoolOf(t)
	pool.Enter()
	return newMachine(p, pool)
}

// next is the part of a task that follows the one at i, of those that begin every step indices before
// end. On a dry machine it is the last one: those between request what the first does, except for a row
// of a panel.
func (m *Machine) next(i, step, end int) int {
	if m.pool.team.dry && i+step < end {
		return i + (end-1-i)/step*step
	}
	return i + step
}

// next is the column of the tiles behind those at j. Post-ops on chunks of columns want all of them.
func (x *block) next(j int) int {
	if x.chunk > 0 {
		return j + x.t.p.nr
	}
	return x.t.m.next(j, x.t.p.nr, x.j1)
}

// NewPlanner makes a machine of n workers, in use, that runs no task. plan sees how the work of each
// region is divided.
func NewPlanner(p *Path, n int, plan func(Division)) *Machine {
	m := NewDry(p, n)
	m.plans = func(_ box, d Division) { plan(d) }
	return m
}

// Scratch is the number of bytes of temporary memory that the machine's kernels have requested in
// the steps that have run. On a dry machine all workers count as requesting what the first one did.
func (m *Machine) Scratch() int64 {
	own, each := int64(0), make([]int64, len(m.worker))
	own += int64(8 * m.conv.kept.total) // tables of offsets
	eachFloats(reflect.ValueOf(m).Elem(), func(f *floats) { own += int64(4 * f.most) })
	for w := range m.worker {
		n := int64(0)
		eachFloats(reflect.ValueOf(&m.worker[w]).Elem(), func(f *floats) { n += int64(4 * f.most) })
		own -= n
		each[w] = n
	}
	for w := range each {
		if m.pool.team.dry {
			own += each[0]
		} else {
			own += each[w]
		}
	}
	return own
}

// Shrink gives the temporary memory back. Kernels ask for it again. No kernel may be running.
func (m *Machine) Shrink() { eachFloats(reflect.ValueOf(m).Elem(), (*floats).drop) }

var floatsType = reflect.TypeFor[floats]()

// eachFloats calls f for all scratch memory in v, at any depth, but not behind pointers.
func eachFloats(v reflect.Value, f func(*floats)) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == floatsType {
			f((*floats)(unsafe.Pointer(v.UnsafeAddr())))
			return
		}
		for i := range v.NumField() {
			eachFloats(v.Field(i), f)
		}
	case reflect.Array, reflect.Slice:
		if k := v.Type().Elem().Kind(); k != reflect.Struct && k != reflect.Array && k != reflect.Slice {
			return
		}
		for i := range v.Len() {
			eachFloats(v.Index(i), f)
		}
	}
}
