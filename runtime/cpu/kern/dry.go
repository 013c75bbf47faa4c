package kern

import (
	"reflect"
	"sync"
	"unsafe"
)

// NewDry makes a machine of n workers on a host, in use, that only counts memory. Of every region it runs the
// first task, on the caller, and of long tasks the first and the last part. The scratch memory that
// kernels then request is that of a machine of n workers (Scratch). The results are not those of the
// kernels.
func NewDry(p *Path, n int, h Host) *Machine {
	t := newTeam(max(n, 1), 0, Host{Caches: h.Caches})
	t.dry = true
	pool := newPoolOf(t)
	pool.Enter()
	return newMachine(p, pool)
}

// dry reports whether the machine counts memory, and may leave out work that requests no more.
func (m *Machine) dry() bool { return m.pool.team.dry && m.plans == nil }

// next is the part of a task that follows the one at i, of those that begin every step indices before
// end. On a dry machine it is the last one: those between request what the first does, except for a row
// of a panel.
func (m *Machine) next(i, step, end int) int {
	if m.dry() && i+step < end {
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

// Scratch is the number of bytes of temporary memory that the machine's kernels have requested in
// the steps that have run. On a dry machine all workers count as requesting what the first one did.
func (m *Machine) Scratch() int64 {
	n := int64(8*m.conv.kept.total) + scratch(m) // with tables of offsets
	for _, w := range m.worker {
		if m.dry() {
			w = m.worker[0]
		}
		if w != nil {
			n += scratch(w)
		}
	}
	return n
}

// scratch is the number of bytes that the scratch memory in *x had at its largest.
func scratch[T any](x *T) (n int64) {
	eachFloats(reflect.ValueOf(x).Elem(), func(f *floats) { n += int64(4 * f.most) })
	return n
}

// Shrink gives the temporary memory back. Kernels ask for it again. No kernel may be running.
func (m *Machine) Shrink() {
	eachFloats(reflect.ValueOf(m).Elem(), (*floats).drop)
	for _, w := range m.worker {
		if w != nil {
			eachFloats(reflect.ValueOf(w).Elem(), (*floats).drop)
		}
	}
}

var floatsType = reflect.TypeFor[floats]()

// eachFloats calls f for all scratch memory in v, at any depth, but not behind pointers.
func eachFloats(v reflect.Value, f func(*floats)) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == floatsType {
			f((*floats)(unsafe.Pointer(v.UnsafeAddr())))
			return
		}
		for _, i := range fieldsWithFloats(v.Type()) {
			eachFloats(v.Field(i), f)
		}
	case reflect.Array, reflect.Slice:
		if hasFloats(v.Type()) {
			for i := range v.Len() {
				eachFloats(v.Index(i), f)
			}
		}
	}
}

var fieldLists sync.Map // by type: see fieldsWithFloats

// fieldsWithFloats are the indices of the fields of the struct t that may hold scratch memory.
func fieldsWithFloats(t reflect.Type) (list []int) {
	if known, ok := fieldLists.Load(t); ok {
		return known.([]int)
	}
	for i := range t.NumField() {
		if hasFloats(t.Field(i).Type) {
			list = append(list, i)
		}
	}
	fieldLists.Store(t, list)
	return list
}

func hasFloats(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return t == floatsType || len(fieldsWithFloats(t)) > 0
	case reflect.Array, reflect.Slice:
		return hasFloats(t.Elem())
	}
	return false
}
