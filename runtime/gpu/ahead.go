package gpu

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"

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

// deliver copies a step's inputs to the device, by way of the staging memory src, which fill fills. It
// returns the stream on which src is read.
func (e *Exec) deliver(dst cuda.Ptr, src []byte, fill filler) (cuda.Stream, error) {
	d, s := e.b.d, e.b.stream()
	var err error
	if len(src) >= aheadBytes && !e.ahead.off {
		err = e.makeAhead(int64(len(src)))
	}
	if errors.Is(err, cuda.ErrOutOfMemory) { // the step does without
		e.ahead.off, err = true, nil
	}
	if err != nil || len(src) < aheadBytes || e.ahead.off {
		return s, errors.Join(err, e.copyIn(dst, src, fill, s))
	}
	a, on := &e.ahead, e.b.copier
	k := a.next
	a.next = 1 - k
	if err = d.Wait(on, a.used[k]); err == nil {
		err = e.copyIn(a.at[k], src, fill, on)
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

// filler writes the bytes from one offset to another of a step's staging memory. Calls for parts that do
// not overlap may run at once.
type filler func(from, to int64)

const (
	blockBytes = 8 << 20 // copied to the device in one piece
	chunkBytes = 1 << 20 // the least that is worth another processor
	maxCopiers = 8       // processors; as many kept up with ResNet-50 on an H200
)

// copyIn fills src and copies it to the device, block by block: processors fill a block while the one before
// is on its way. One processor alone copies a batch of images more slowly than a GPU trains on it.
func (e *Exec) copyIn(dst cuda.Ptr, src []byte, fill filler, on cuda.Stream) error {
	total := int64(len(src))
	for from := int64(0); from < total; from += blockBytes {
		to := min(from+blockBytes, total)
		fill.split(from, to, min(maxCopiers, goruntime.GOMAXPROCS(0)))
		if err := e.b.d.CopyToDevice(dst+cuda.Ptr(from), src[from:to], on); err != nil {
			return err
		}
	}
	return nil
}

// split calls fill for equal chunks at once, by as many goroutines at most.
func (fill filler) split(from, to int64, goroutines int) {
	n := max(1, min(int64(goroutines), (to-from)/chunkBytes))
	chunk := (to - from + n - 1) / n
	var all sync.WaitGroup
	for at := from + chunk; at < to; at += chunk {
		all.Go(func() { fill(at, min(at+chunk, to)) })
	}
	fill(from, min(from+chunk, to))
	all.Wait()
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
