package gpu

import (
	"errors"
	"fmt"

	"ampc/cuda"
)

// ahead is device memory for the inputs of two steps. Those of a step arrive in one half, on a stream
// of their own, while the step before runs. Then they are copied within the device to where the step
// reads them, which takes a hundredth of the time.
type ahead struct {
	at    [2]cuda.Ptr
	bytes int64
	here  [2]cuda.Event // the inputs have arrived
	used  [2]cuda.Event // they have been copied on
	next  int
	off   bool // there is no memory for it
}

// aheadBytes is the size of inputs from which on they go ahead. Smaller ones arrive in less time than
// the second copy takes to start.
const aheadBytes = 256 << 10

// deliver copies a step's inputs to the device, and returns the stream on which the host memory is
// read.
func (e *Exec) deliver(dst cuda.Ptr, src []byte) (cuda.Stream, error) {
	d, s := e.b.d, e.b.stream()
	var err error
	if len(src) >= aheadBytes && !e.ahead.off {
		err = e.makeAhead(int64(len(src)))
	}
	if errors.Is(err, cuda.ErrOutOfMemory) { // the step does without
		e.ahead.off, err = true, nil
	}
	if err != nil || len(src) < aheadBytes || e.ahead.off {
		return s, errors.Join(err, d.CopyToDevice(dst, src, s))
	}
	a, on := &e.ahead, e.b.copier
	k := a.next
	a.next = 1 - k
	if err = d.Wait(on, a.used[k]); err == nil {
		err = d.CopyToDevice(a.at[k], src, on)
	}
	if err == nil {
		err = errors.Join(d.Record(a.here[k], on), d.Wait(s, a.here[k]))
	}
	if err == nil {
		err = d.Copy(dst, a.at[k], int64(len(src)), s)
	}
	if err == nil {
		err = d.Record(a.used[k], s)
	}
	return on, err
}

// makeAhead makes the stream, the events and memory for two times n bytes.
func (e *Exec) makeAhead(n int64) (err error) {
	a := &e.ahead
	if e.b.copier == 0 {
		if e.b.copier, err = e.b.d.NewStream(); err != nil {
			return err
		}
	}
	for _, ev := range []*cuda.Event{&a.here[0], &a.here[1], &a.used[0], &a.used[1]} {
		if *ev == 0 {
			if *ev, err = e.b.d.NewEvent(false); err != nil {
				return err
			}
		}
	}
	if n <= a.bytes {
		return nil
	}
	for k := range a.at {
		if a.at[k], err = e.own(n, fmt.Sprintf("inputs of step %d of two", k+1)); err != nil {
			return err
		}
	}
	a.bytes = n
	return nil
}
