package world_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc/ir"
	"ampc/world"
)

func message(name string, elements int, d ir.DType) *world.Message {
	m := &world.Message{Name: name, DType: d, Wire: ir.F32, In: [][]byte{make([]byte, int64(elements)*d.Size())}}
	m.Out = m.In
	return m
}

// play runs f on every rank and returns their errors.
func play(worlds []world.World, f func(w world.World) error) []error {
	errs := make([]error, len(worlds))
	var all sync.WaitGroup
	for r, w := range worlds {
		all.Go(func() {
			errs[r] = f(w)
			w.Close()
		})
	}
	all.Wait()
	return errs
}

func send(w world.World, ms ...*world.Message) error {
	for _, m := range ms {
		if err := w.Start(m); err != nil {
			return err
		}
	}
	for _, m := range ms {
		if err := w.Wait(context.Background(), m); err != nil {
			return err
		}
	}
	return nil
}

// Ranks that do not agree, or do not come, end all ranks with a line that says so.
func TestLocalNamesTheFault(t *testing.T) {
	died := errors.New("died")
	var others sync.WaitGroup // the ranks that wait for one that stalls
	others.Add(2)
	for name, c := range map[string]struct {
		f    func(w world.World) error
		want string
	}{
		"another order": {func(w world.World) error {
			a, b := message("a", 4, ir.F32), message("b", 4, ir.F32)
			if w.Rank() == 2 {
				a, b = b, a
			}
			return send(w, a, b)
		}, "rank 0 sends the message a (sum of 4 f32, sent as f32 with shift 0), and rank 2 sends b"},
		"another size": {func(w world.World) error { return send(w, message("a", 4+w.Rank()/2, ir.F32)) }, "rank 2 sends a (sum of 5"},
		"swapped tensors": {func(w world.World) error {
			m := message("a", 4, ir.F32)
			other := message("b", 6, ir.F32)
			m.In = append(m.In, other.In[0])
			if w.Rank() == 1 {
				m.In[0], m.In[1] = m.In[1], m.In[0]
			}
			m.Out = m.In
			return send(w, m)
		}, "tensor 0 of the message a has 4 elements on rank 0, and 6 on rank 1"},
		"another number of tensors": {func(w world.World) error {
			m := message("a", 4, ir.F32)
			if w.Rank() == 2 {
				m.In = [][]byte{m.In[0][:8], m.In[0][8:]}
			}
			m.Out = m.In
			return send(w, m)
		}, "rank 0 sends 1 tensors in the message a, and rank 2 sends 2"},
		"another dtype": {func(w world.World) error {
			return send(w, message("a", 4, []ir.DType{ir.F32, ir.I32, ir.F32}[w.Rank()]))
		}, "rank 1 sends a (sum of 4 i32"},
		"one leaves": {func(w world.World) error {
			if w.Rank() == 1 {
				return nil
			}
			return send(w, message("a", 4, ir.F32))
		}, "rank 1 has left"},
		"one stalls": {func(w world.World) error {
			if w.Rank() == 1 {
				others.Wait()
				return nil
			}
			defer others.Done()
			return send(w, message("a", 4, ir.F32))
		}, "rank 1 has not sent the message a within 100ms"},
		"one dies": {func(w world.World) error { return send(w, message("a", 4, ir.F32), message("dies", 4, ir.F32)) }, "rank 1 has left"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := play(world.Local(3, world.LocalOptions{Timeout: 100 * time.Millisecond, Before: func(rank int, m *world.Message) error {
				if rank == 1 && m.Name == "dies" {
					return died
				}
				return nil
			}}), c.f)
			for r, err := range errs {
				switch {
				case r == 1 && (err == nil || err == died):
				case err == nil || !strings.Contains(err.Error(), c.want):
					t.Errorf("rank %d: %v, want %q", r, err, c.want)
				}
			}
		})
	}
}

// A simulated link brings a message no sooner than a ring over such links would.
func TestLocalLink(t *testing.T) {
	start := time.Now()
	o := world.LocalOptions{Latency: time.Millisecond, Bandwidth: 1e6}
	for _, err := range play(world.Local(2, o), func(w world.World) error { return send(w, message("a", 25000, ir.F32)) }) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 102*time.Millisecond {
		t.Errorf("100 kB over 1 MB/s took %v", took)
	}
}

// A reduce-scatter leaves on each rank, bit for bit, its parts of what an all-reduce of the
// same tensors leaves on every rank, and gathering the parts makes the whole again.
func TestScatterAndGatherMakeAnAllReduce(t *testing.T) {
	for _, kind := range []world.Message{
		{DType: ir.F32, Wire: ir.F32}, {DType: ir.F32, Wire: ir.F32, Tree: true}, {DType: ir.F32, Wire: ir.F16, Shift: 2},
		{DType: ir.F32, Wire: ir.BF16, Op: world.Mean}, {DType: ir.F64, Wire: ir.F32}, {DType: ir.I32, Wire: ir.F32},
	} {
		for i, err := range play(world.Local(4, world.LocalOptions{}), func(w world.World) error {
			whole, parts := kind, kind
			for _, n := range []int{12, 4, 40} {
				whole.In = append(whole.In, operand(n, kind.DType, w.Rank()))
			}
			parts.In, parts.Scatter = whole.In, true
			gather := world.Message{Name: "gather", Op: world.Gather, DType: kind.DType, Wire: ir.F32}
			for _, in := range whole.In {
				whole.Out = append(whole.Out, make([]byte, len(in)))
				gather.Out = append(gather.Out, make([]byte, len(in)))
				parts.Out = append(parts.Out, make([]byte, len(in)/4))
			}
			gather.In = parts.Out
			if err := errors.Join(send(w, &whole), send(w, &parts), send(w, &gather)); err != nil {
				return err
			}
			for i := range whole.Out {
				if !bytes.Equal(whole.Out[i], gather.Out[i]) {
					return fmt.Errorf("%s as %s: tensor %d: other bits than an all-reduce leaves", kind.DType, kind.Wire, i)
				}
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
	}
}

// operand has elements that differ between ranks.
func operand(n int, d ir.DType, rank int) []byte {
	out := make([]byte, n*int(d.Size()))
	for i := range n {
		x := float64(i*7+1) / float64(rank+3)
		switch d {
		case ir.F32:
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(x)))
		case ir.F64:
			binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(x))
		default:
			binary.LittleEndian.PutUint32(out[4*i:], uint32(int32(x*100)))
		}
	}
	return out
}

// Messages whose sizes no rank can carry are refused where they start.
func TestSizesThatDoNotFit(t *testing.T) {
	m := message("odd", 5, ir.F32)
	m.Scatter, m.Out = true, [][]byte{make([]byte, 8)}
	if err := m.Check(2); err == nil || err.Error() != "tensor 0 of the message odd has 5 elements, which 2 ranks cannot share equally" {
		t.Error(err)
	}
	m = message("short", 4, ir.F32)
	m.Op, m.Out = world.Gather, [][]byte{make([]byte, 8)}
	if err := m.Check(2); err == nil || err.Error() != "result 0 of the message short has 8 bytes, want 32" {
		t.Error(err)
	}
}
