package gpu

import (
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// OpenOn makes a backend on a device that the caller uses, too. d is the result of cuda.Adopt for
// the caller's CUcontext, or a sim.Device. Close does not close d.
//
// The backend has its own streams. If s is not 0, events order the work of each call after
// everything that was in s when the call began, and before everything that is put into s after the
// call returned; the host does not wait. s may be cuda.LegacyStream. If s is 0, the caller must
// wait for its own work.
//
// The methods of d are called on another goroutine, whose thread has the context current, one at a
// time, and only while a method of the Backend or of its Stores, Execs and Futures runs. The
// caller's memory that a Program uses must stay allocated until the Program's Exec and Store are
// closed.
func OpenOn(d cuda.Driver, s cuda.Stream) (*Backend, error) {
	b := &Backend{name: fmt.Sprintf("cuda:%d", d.Info().Ordinal), open: blasOf(d), foreign: true}
	if n, ok := d.(fmt.Stringer); ok {
		b.name = n.String()
	}
	err := b.start(func() (cuda.Driver, error) { return d, nil })
	if err != nil || s == 0 {
		return b, err
	}
	return b, b.call(func() error {
		var errs [2]error
		b.fork, errs[0] = d.NewEvent(false)
		b.join, errs[1] = d.NewEvent(false)
		b.user = s
		return errors.Join(errs[:]...)
	})
}

// enter makes the backend's stream wait for the caller's.
func (b *Backend) enter() error {
	if b.user == 0 {
		return nil
	}
	return errors.Join(b.d.Record(b.fork, b.user), b.d.Wait(b.stream(), b.fork))
}

// leave makes the caller's stream wait for the backend's.
func (b *Backend) leave() error {
	if b.user == 0 {
		return nil
	}
	return errors.Join(b.d.Record(b.join, b.stream()), b.d.Wait(b.user, b.join))
}

// Adopt declares a variable in the caller's memory. The address must be a multiple of 16, and all
// bytes must be set. The caller may read the memory between calls, and must call Touch after
// writing to it.
func (s *Store) Adopt(v lower.Var, at cuda.Ptr) error {
	return s.b.do(func() error {
		switch {
		case s.vars[v.Name] != nil:
			return fmt.Errorf("variable %q is in the store already", v.Name)
		case v.Kind != ir.Param && v.Kind != ir.State:
			return fmt.Errorf("%q is not a parameter or state", v.Name)
		case at == 0 || at%foreignAlign != 0:
			return fmt.Errorf("variable %q: address %#x is not a multiple of %d", v.Name, uint64(at), foreignAlign)
		}
		s.vars[v.Name] = newVariable(v.Type, at, nil)
		return nil
	})
}

// foreignAlign is the alignment that cuBLASLt and kernels with 16-byte accesses
// require.
const foreignAlign = 16

// Touch must be called after the caller wrote to a variable, so that its 16-bit copies are cast
// again.
func (s *Store) Touch(name string) error {
	return s.b.do(func() error {
		v := s.vars[name]
		if v == nil {
			return fmt.Errorf("the store has no variable %q", name)
		}
		v.version++
		return nil
	})
}

// Address is the device address of a variable, valid from Declare until the store is closed. Call
// Touch after writing there.
func (s *Store) Address(name string) (at cuda.Ptr, t ir.Type, err error) {
	v := s.vars[name]
	if v == nil {
		return 0, ir.Type{}, fmt.Errorf("the store has no variable %q", name)
	}
	return v.at, v.t, nil
}

// DeviceFeed is one micro-batch in device memory: the address of every input, by name. The data
// have the input's type and are row-major and dense.
type DeviceFeed map[string]cuda.Ptr

// StepOn is Step with inputs in device memory. The device copies them before the step begins;
// nothing waits for the host.
func (e *Exec) StepOn(feeds []DeviceFeed) (*Future, error) {
	if len(feeds) == 0 && len(e.p.Parts[lower.Micro]) > 0 {
		return nil, fmt.Errorf("%s: no feeds: a step takes one per micro-batch", e.p.Name)
	}
	for _, f := range feeds {
		for _, in := range e.inputs {
			if f[in.name] == 0 {
				return nil, fmt.Errorf("%s: no feed for input %q %s", e.p.Name, in.name, in.t)
			}
		}
		if len(f) != len(e.inputs) {
			return nil, fmt.Errorf("%s: a feed has %d tensors, the program takes %d", e.p.Name, len(f), len(e.inputs))
		}
	}
	return e.issue(len(feeds), func() error { return e.gather(feeds) })
}

// gather copies inputs from the caller's device memory to the step's input buffers.
func (e *Exec) gather(feeds []DeviceFeed) error {
	s := e.b.stream()
	for i, f := range feeds {
		base := e.feedAt(i, len(feeds))
		for _, in := range e.inputs {
			if n := in.t.Bytes(); n > 0 {
				if err := e.b.d.Copy(base+in.at, f[in.name], n, s); err != nil {
					return fmt.Errorf("input %q: %w", in.name, err)
				}
			}
		}
		for k := range e.filled {
			f := &e.filled[k]
			if err := e.b.d.Fill32(base+f.at, uint32(f.value(i, e.rank())), 1, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// CopyTo copies the step's result number out to the caller's device memory, ordered after the step;
// the host does not wait.
func (t *Future) CopyTo(out int, dst cuda.Ptr) error {
	return t.e.b.do(func() error {
		at, n, err := t.result(out)
		if err != nil || n == 0 {
			return err
		}
		return t.e.b.d.Copy(dst, at, n, t.e.b.stream())
	})
}

var _ runtime.Store = (*Store)(nil)
