package gpu

import (
	"fmt"

	"ampc/lower"
	"ampc/runtime"
)

// Step implements runtime.Exec. It returns when everything is issued; nothing
// waits for the device. An id outside its table gives NaN, not an error.
func (e *exec) Step(feeds []runtime.Feed) (runtime.Ticket, error) {
	if err := runtime.CheckFeeds(e.p, feeds); err != nil {
		return nil, err
	}
	var t *ticket
	err := e.b.do(func() error {
		if err := e.part(lower.Prepare); err != nil {
			return err
		}
		for i, f := range feeds {
			if err := e.feed(f, i); err != nil {
				return err
			}
			if err := e.part(lower.Micro); err != nil {
				return err
			}
		}
		if err := e.part(lower.Update); err != nil {
			return err
		}
		t = &ticket{e, e.seq}
		return e.publish()
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", e.b.name, e.p.Name, err)
	}
	e.count.Steps++
	return t, nil
}

// part issues one part's steps in order.
func (e *exec) part(part lower.Part) error {
	for i := range e.steps[part] {
		s := &e.steps[part][i]
		if err := s.run(e.b.stream); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// feed copies a micro-batch to the inputs.
func (e *exec) feed(f runtime.Feed, micro int) error {
	if e.micro != 0 {
		if err := e.b.d.Fill32(e.micro, uint32(micro), 1, e.b.stream); err != nil {
			return err
		}
	}
	total := int64(0)
	for _, in := range e.inputs {
		total += roundUp(in.t.Bytes())
	}
	if total == 0 {
		return nil
	}
	s, err := e.freeStage(total)
	if err != nil {
		return err
	}
	at := int64(0)
	for _, in := range e.inputs {
		mem := s.mem[at : at+in.t.Bytes()]
		at += roundUp(in.t.Bytes())
		copy(mem, f[in.name].Data)
		if err := e.b.d.CopyToDevice(in.at, mem, e.b.stream); err != nil {
			return fmt.Errorf("input %q: %w", in.name, err)
		}
	}
	return e.b.d.Record(s.free, e.b.stream)
}

func roundUp(n int64) int64 { return (n + lower.Align - 1) / lower.Align * lower.Align }

// freeStage finds staging memory that no copy reads any more, or makes some.
func (e *exec) freeStage(n int64) (*stage, error) {
	for i := range e.stage {
		done, err := e.b.d.Done(e.stage[i].free)
		if err != nil {
			return nil, err
		}
		if done {
			return &e.stage[i], nil
		}
	}
	mem, err := e.b.d.HostAlloc(n)
	if err != nil {
		return nil, err
	}
	ev, err := e.b.d.NewEvent(false)
	if err != nil {
		return nil, err
	}
	e.stage = append(e.stage, stage{mem, ev})
	return &e.stage[len(e.stage)-1], nil
}

// publish copies the results to the ring, on the device.
func (e *exec) publish() error {
	slot := e.ring[e.seq%runtime.RingSize]
	e.seq++
	for i, o := range e.p.Outputs {
		if n := o.Type.Bytes(); n > 0 {
			if err := e.b.d.Copy(slot[i], e.at[o.Buffer], n, e.b.stream); err != nil {
				return fmt.Errorf("result %s: %w", o.Name, err)
			}
		}
	}
	return nil
}

// ticket reads the results of one step from the ring.
type ticket struct {
	e   *exec
	seq int64
}

var _ runtime.Ticket = (*ticket)(nil)

// Read implements runtime.Ticket: it waits for the device.
func (t *ticket) Read(out int, dst []byte) error {
	e := t.e
	return e.b.do(func() error {
		switch {
		case out < 0 || out >= len(e.p.Outputs):
			return fmt.Errorf("%s: result %d of %d", e.p.Name, out, len(e.p.Outputs))
		case e.seq-t.seq > runtime.RingSize:
			return fmt.Errorf("%s: the results of step %d are gone, the last %d steps keep theirs", e.p.Name, t.seq, runtime.RingSize)
		case int64(len(dst)) != e.p.Outputs[out].Type.Bytes():
			return fmt.Errorf("%s: result %s is %s, %d bytes, not %d", e.p.Name, e.p.Outputs[out].Name, e.p.Outputs[out].Type, e.p.Outputs[out].Type.Bytes(), len(dst))
		}
		return e.b.download(dst, e.ring[t.seq%runtime.RingSize][out])
	})
}
