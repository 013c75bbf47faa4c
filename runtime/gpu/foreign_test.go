package gpu_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/gpu"
)

// scaled keeps a count in w and returns w·x, 16-bit copy of w included.
const scaled = `graph @scaled {
  input %x : f32[256]
  param %w : f32[256] = 1
prepare:
  %w.l = cast %w {to=f16} : f16[256]
forward:
  %y = mul %x, %w.l {out=f32} : f32[256]
update:
  %w' = add %w, %x
  return %y
}
`

// owner is a program of another owner's: a device, a stream, and memory.
type owner struct {
	t *testing.T
	d *sim.Device
	s cuda.Stream
}

func newOwner(t *testing.T, legacy bool) *owner {
	d, err := sim.Open(sim.Options{Major: 9})
	if err != nil {
		t.Fatal(err)
	}
	o := &owner{t: t, d: d, s: cuda.LegacyStream}
	o.ok(d.Bind())
	if !legacy {
		o.s, err = d.NewStream()
	}
	o.ok(err)
	return o
}

func (o *owner) ok(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// tensor is 256 floats of value v, written by the owner's stream.
func (o *owner) tensor(v float32) cuda.Ptr {
	p, err := o.d.Alloc(1024)
	o.ok(err)
	o.fill(p, v)
	return p
}

func (o *owner) fill(p cuda.Ptr, v float32) {
	o.ok(o.d.Fill32(p, math.Float32bits(v), 256, o.s))
}

// first reads element 0, in the owner's stream.
func (o *owner) first(p cuda.Ptr) float32 {
	mem, err := o.d.HostAlloc(4)
	o.ok(err)
	o.ok(errors.Join(o.d.CopyToHost(mem, p, o.s), o.d.Synchronize(o.s)))
	v := math.Float32frombits(binary.LittleEndian.Uint32(mem))
	o.ok(o.d.HostFree(mem))
	return v
}

// TestOpenOn runs a Program on a device, a stream and memory of another owner
// else's, in a chain of steps and of the owner's own work with no wait of the
// host between. What nothing orders would be a hazard of the simulator's.
func TestOpenOn(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		o := newOwner(t, legacy)
		b, err := gpu.OpenOn(o.d, o.s)
		o.ok(err)
		g, err := ir.Parse("scaled.ir", []byte(scaled))
		o.ok(err)
		p, err := lower.Lower(g, b.Target())
		o.ok(err)
		s, err := b.NewStore(nil)
		o.ok(err)
		store := s.(*gpu.Store)
		w, x, y := o.tensor(2), o.tensor(3), o.tensor(0)
		o.ok(store.Adopt(p.Vars[1], w))
		if at, _, err := store.Address("w"); at != w || err != nil {
			t.Errorf("w lies at %#x (%v), was adopted at %#x", at, err, w)
		}
		loaded, err := b.Load(p, store)
		o.ok(err)
		e := loaded.(*gpu.Exec)
		syncs := o.d.Syncs()
		run := func() {
			future, err := e.StepOn([]gpu.DeviceFeed{{"x": x}})
			o.ok(err)
			o.ok(future.CopyTo(0, y))
		}
		run() // y = 6, w = 5
		o.fill(x, 10)
		run() // y = 50, w = 15
		o.fill(w, 4)
		o.ok(store.Touch("w"))
		run() // y = 40, w = 14
		run() // y = 140, w = 24
		if n := o.d.Syncs() - syncs; n != 0 {
			t.Errorf("%d waits of the host in four steps", n)
		}
		if gotY, gotW := o.first(y), o.first(w); gotY != 140 || gotW != 24 {
			t.Errorf("y = %g, w = %g; want 140 and 24", gotY, gotW)
		}
		o.ok(errors.Join(e.Close(), store.Close(), b.Close()))
		o.fill(x, 1) // the device is still the owner's
		o.ok(errors.Join(o.d.Synchronize(o.s), o.d.Free(w), o.d.Free(x), o.d.Free(y), o.d.Close()))
	}
}

// TestAdoptRefuses says what is wrong with memory and feeds that do not fit.
func TestAdoptRefuses(t *testing.T) {
	o := newOwner(t, false)
	b, err := gpu.OpenOn(o.d, 0)
	o.ok(err)
	s, err := b.NewStore([]lower.Var{{Name: "there", Type: ir.T(ir.F32), Kind: ir.Param}})
	o.ok(err)
	store := s.(*gpu.Store)
	for _, c := range []struct {
		v  lower.Var
		at cuda.Ptr
	}{
		{lower.Var{Name: "there", Type: ir.T(ir.F32), Kind: ir.Param}, 1 << 20},
		{lower.Var{Name: "x", Type: ir.T(ir.F32), Kind: ir.Input}, 1 << 20},
		{lower.Var{Name: "w", Type: ir.T(ir.F32), Kind: ir.Param}, 1<<20 + 4},
		{lower.Var{Name: "w", Type: ir.T(ir.F32), Kind: ir.Param}, 0},
	} {
		if err := store.Adopt(c.v, c.at); err == nil {
			t.Errorf("adopted %s at %#x", c.v.Name, uint64(c.at))
		}
	}
	if store.Touch("w") == nil {
		t.Error("touched a variable that is not there")
	}
	g, err := ir.Parse("scaled.ir", []byte(scaled))
	o.ok(err)
	p, err := lower.Lower(g, b.Target())
	o.ok(err)
	o.ok(store.Declare(p.Vars))
	e, err := b.Load(p, store)
	o.ok(err)
	for _, feeds := range [][]gpu.DeviceFeed{nil, {{}}, {{"x": 1 << 20, "y": 1 << 20}}} {
		if _, err := e.(*gpu.Exec).StepOn(feeds); err == nil {
			t.Errorf("took the feeds %v", feeds)
		}
	}
	if _, err := e.Step(context.Background(), []runtime.Feed{{}}); err == nil {
		t.Error("took a feed without x")
	}
	o.ok(errors.Join(e.Close(), store.Close(), b.Close(), o.d.Close()))
}
