package cpu

import (
	"bytes"
	"context"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// A program over spare memory, whatever that holds, computes the bits of one over
// new memory. It changes no variable of the caller's, and leaves all memory to
// the next program.
func TestReplayStore(t *testing.T) {
	g, err := ir.Parse("mlp.ir", []byte(strings.NewReplacer("16,12", "16,300", "12,20", "300,400", "kaiming(12)", "kaiming(300)",
		"16,20]", "16,400]", "[20]", "[400]", "20,10", "400,10").Replace(mlp)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, err := lower.LowerReplay(g, lower.Replay{Nodes: true, Spread: true})
	if err != nil {
		t.Fatal(err)
	}
	x := eval.New(ir.T(ir.F32, 16, 300))
	for i := range x.F {
		x.F[i] = float64(i%7) / 8
	}
	feed := runtime.Feed{"x": {Type: ir.T(ir.F32, 16, 300), Data: x.Bytes()}, "y": {Type: ir.T(ir.I32, 16), Data: make([]byte, 64)}}
	state, before := map[string][]byte{}, map[string][]byte{}
	for i := range p.Vars {
		v := &p.Vars[i]
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		if state[v.Name], err = runtime.InitialBytes(v, 1); err != nil {
			t.Fatal(err)
		}
		before[v.Name] = bytes.Clone(state[v.Name])
	}
	run := func(open func() (runtime.Store, error)) [][]byte {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e, err := b.Load(p, s)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		goruntime.GC() // the program's memory stays
		future, err := e.Step(context.Background(), []runtime.Feed{feed})
		if err != nil {
			t.Fatal(err)
		}
		var out [][]byte
		for i, o := range p.Outputs {
			data := make([]byte, o.Type.Bytes())
			if err := future.Read(i, data); err != nil {
				t.Fatal(err)
			}
			out = append(out, data)
		}
		for _, name := range p.Written {
			data := make([]byte, len(state[name]))
			if err := s.Read(name, data); err != nil {
				t.Fatal(err)
			}
			out = append(out, data)
		}
		return out
	}
	want := run(func() (runtime.Store, error) {
		s, err := b.NewStore(p.Vars)
		for name, data := range state {
			if err == nil {
				err = s.Write(name, data)
			}
		}
		return s, err
	})
	made, err := b.ReplayStore(p, state, &Spares{})
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range made.(*store).vars {
		if in := &v.mem[0] == &state[name][0]; in == slices.Contains(p.Written, name) {
			t.Errorf("%s is read in place: %t", name, in)
		}
	}
	if _, err := b.ReplayStore(p, map[string][]byte{}, &Spares{}); err == nil || err.Error() != `cpu: variable "w1" is f32[300,400], 480000 bytes, not 0` {
		t.Errorf("without a variable: %v", err)
	}
	spares := &Spares{}
	held := int64(0)
	for round := range 3 {
		got := run(func() (runtime.Store, error) { return b.ReplayStore(p, state, spares) })
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("round %d: result %d differs from that over new memory", round, i)
			}
		}
		for name, data := range state {
			if !bytes.Equal(data, before[name]) {
				t.Errorf("round %d: the step wrote to the caller's %s", round, name)
			}
		}
		if n := spares.Bytes(); n == 0 || round > 0 && n != held {
			t.Errorf("round %d: %d bytes are spare, %d before", round, n, held)
		}
		held = spares.Bytes()
		for _, free := range spares.free {
			for i := range free.Bytes() {
				free.Bytes()[i] = 0xff // NaN in every dtype
			}
		}
	}
}

// Memory of spares counts as used until nothing refers to it.
func TestSparesReturnToTheSystem(t *testing.T) {
	before := kern.MappedBytes()
	s := &Spares{}
	b := s.take(3 << 20)
	for i := range b.Bytes() {
		b.Bytes()[i] = 1
	}
	if goruntime.GOOS == "linux" && !kern.RaceEnabled && kern.MappedBytes() < before+3<<20 {
		t.Errorf("%d bytes lie outside the heap, %d before", kern.MappedBytes(), before)
	}
	s.give(b)
	goruntime.KeepAlive(s)
	b, s = nil, nil
	for range 100 {
		goruntime.GC()
		if kern.MappedBytes() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d bytes are still outside the heap, %d before", kern.MappedBytes(), before)
}
