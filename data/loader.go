package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Last says what becomes of the records at the end of an epoch that fill no batch.
type Last uint8

// The values of Options.Last.
const (
	Short Last = iota // a smaller batch, for which Step.For gives the step
	Pad               // a batch filled up by Options.Pad
	Drop              // nothing; in the next epoch others are left over
)

// Options describe a Loader.
type Options struct {
	Batch   int    // records in a batch
	Shuffle bool   // each epoch in an order of its own, which Seed and its number give
	Seed    uint64 // of the order and of random transformations
	Last    Last
	// Pad gives the numbers that fill up fields of the last batch, zero where it names
	// none: {"y": -100} is the label that losses leave out.
	Pad  map[string]float64
	Mask string // a further field: 1 for each record, 0 for padding, float32

	Workers int // goroutines that read and transform records; 0: a quarter of the processors, so that the step keeps the others
	Ahead   int // batches made before they are asked for, at most; 0: 2

	// OnBad gets each BadRecord, in order, in a goroutine of the loader. If it returns nil,
	// the record is left out and the batch filled by the next one; an error ends the
	// epoch. nil: the record's own error does. Skip leaves all of them out.
	OnBad func(error) error
	// Collate makes the feed of records; nil: the fields of all records, one after
	// the other.
	Collate func(records []Example) (map[string]any, error)

	// Rank and Ranks give this process its part of each epoch: records Rank,
	// Rank+Ranks and so on of the order, equally many for all. OnBad must be nil then,
	// as ranks would have different numbers of batches.
	Rank, Ranks int
}

// State is where a Loader stands. It is small and can be written as JSON.
type State struct {
	Epoch    int    `json:"epoch"`
	Position int    `json:"position"` // records of the epoch's order that were handed out or left out
	Seed     uint64 `json:"seed"`
	Records  int    `json:"records"` // of the set
}

// Loader hands out the batches of a set. It is used by one goroutine at a time; it has
// goroutines of its own during the range over an epoch only.
type Loader struct {
	set    Set
	o      Options
	state  State
	waited time.Duration
	share  share
}

// NewLoader makes a loader that stands at the beginning of epoch 0.
func NewLoader(s Set, o Options) (*Loader, error) {
	o.Ranks, o.Ahead = cmp.Or(o.Ranks, 1), cmp.Or(o.Ahead, 2)
	o.Workers = cmp.Or(o.Workers, max(runtime.GOMAXPROCS(0)/4, 1))
	switch {
	case s == nil:
		return nil, errors.New("loader: the set is nil")
	case o.Batch < 1:
		return nil, fmt.Errorf("loader: Options.Batch is %d, want 1 or more", o.Batch)
	case o.Last > Drop:
		return nil, fmt.Errorf("loader: Options.Last is %d, want Short, Pad or Drop", o.Last)
	case o.Workers < 0 || o.Ahead < 0:
		return nil, fmt.Errorf("loader: Options.Workers is %d and Options.Ahead %d, want 0 or more", o.Workers, o.Ahead)
	case o.Rank < 0 || o.Rank >= o.Ranks:
		return nil, fmt.Errorf("loader: Options.Rank is %d of %d ranks", o.Rank, o.Ranks)
	case o.Ranks > 1 && o.OnBad != nil:
		return nil, errors.New("loader: Options.OnBad is set for several ranks, which would have different numbers of batches")
	case o.Last == Pad && o.Collate != nil:
		return nil, errors.New("loader: Options.Last is Pad and Options.Collate is set: let Collate fill the batch up, with Last Short")
	case s.Len()/o.Ranks == 0:
		return nil, fmt.Errorf("loader: the set has %d records for %d ranks", s.Len(), o.Ranks)
	case o.Last == Drop && s.Len()/o.Ranks < o.Batch:
		return nil, fmt.Errorf("loader: the set has %d records, a batch %d, and Options.Last is Drop: no batch is left", s.Len()/o.Ranks, o.Batch)
	}
	return &Loader{set: s, o: o, state: State{Seed: o.Seed, Records: s.Len()}}, nil
}

// Batches is the number of batches of an epoch without bad records.
func (l *Loader) Batches() int {
	n := l.set.Len() / l.o.Ranks
	if l.o.Last == Drop {
		return n / l.o.Batch
	}
	return (n + l.o.Batch - 1) / l.o.Batch
}

// Options returns what the loader was made with, defaults filled in.
func (l *Loader) Options() Options { return l.o }

// State is the place behind the batch that was handed out last. A loader of the same
// set and options that Restore puts there continues with the same batches.
func (l *Loader) State() State { return l.state }

// Restore puts the loader where State was taken. It refuses the state of a set with
// another number of records, or of another seed.
func (l *Loader) Restore(s State) error {
	switch {
	case s.Records != l.set.Len():
		return fmt.Errorf("restore: the state is that of a set of %d records, this one has %d", s.Records, l.set.Len())
	case s.Seed != l.o.Seed:
		return fmt.Errorf("restore: the state has seed %d, the loader %d", s.Seed, l.o.Seed)
	case s.Epoch < 0 || s.Position < 0 || s.Position > s.Records/l.o.Ranks:
		return fmt.Errorf("restore: record %d of epoch %d is not in the set", s.Position, s.Epoch)
	}
	l.state = s
	return nil
}

// Waited is how long the ranges over epochs have waited for batches so far.
func (l *Loader) Waited() time.Duration { return l.waited }

// order lists the records of an epoch.
func (l *Loader) order(epoch int) []int {
	var all []int
	if l.o.Shuffle {
		all = rand.New(rand.NewPCG(l.o.Seed, uint64(epoch))).Perm(l.set.Len())
	} else {
		for i := range l.set.Len() {
			all = append(all, i)
		}
	}
	if l.o.Ranks == 1 {
		return all
	}
	var mine []int
	for i := l.o.Rank; len(mine) < len(all)/l.o.Ranks; i += l.o.Ranks {
		mine = append(mine, all[i])
	}
	return mine
}

// draws is the random generator of a record in an epoch; nil if nothing is random.
func (l *Loader) draws(epoch, record int) *rand.Rand {
	if !l.o.Shuffle {
		return nil
	}
	return rand.New(rand.NewPCG(l.o.Seed^uint64(epoch)<<32, uint64(record)|1<<62))
}

// Epoch ranges over the batches of the current epoch that are left. After the last one
// the loader stands at the beginning of the next epoch. A break leaves it behind the
// batch of the break. An error is the last thing of the range.
func (l *Loader) Epoch(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		order := l.order(l.state.Epoch)
		made, stop := l.start(ctx, order, l.state.Position)
		defer stop()
		for {
			asked := time.Now()
			b, more := <-made
			l.waited += time.Since(asked)
			if !more {
				if err := context.Cause(ctx); err != nil {
					yield(Batch{}, err)
					return
				}
				break
			}
			if b.err != nil {
				yield(Batch{}, b.err)
				return
			}
			l.state.Position = b.next
			if !yield(b.Batch, nil) {
				if b.next == len(order) {
					break
				}
				return
			}
		}
		l.state.Epoch, l.state.Position = l.state.Epoch+1, 0
	}
}

// Epochs ranges over the batches of n epochs from the current one on, without end
// where n is 0.
func (l *Loader) Epochs(ctx context.Context, n int) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for i := 0; n == 0 || i < n; i++ {
			for b, err := range l.Epoch(ctx) {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// ready is a batch that is ready for the step.
type ready struct {
	Batch
	next int // position after it
	err  error
}

// portion are records that one worker reads.
type portion struct {
	records  []int
	examples []Example
	errs     []error
	done     chan struct{}
}

// start begins to make batches of the rest of an epoch. stop ends that and waits for the
// goroutines.
func (l *Loader) start(ctx context.Context, order []int, from int) (made chan ready, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	size := max(min(l.o.Batch/l.o.Workers, 16), 1)
	work := make(chan *portion)
	inOrder := make(chan *portion, max(l.o.Batch*(l.o.Ahead-1)/size, l.o.Workers))
	epoch, p := l.state.Epoch, place{at: from, end: len(order), batch: l.o.Batch}
	if l.share.ranks > 1 {
		order, p = l.share.own(order, from, l.o.Last)
		from = 0
	}
	running.Go(func() {
		defer close(work)
		defer close(inOrder)
		for at := from; at < len(order); at += size {
			p := &portion{records: order[at:min(at+size, len(order))], done: make(chan struct{})}
			if !send(ctx, inOrder, p) || !send(ctx, work, p) {
				return
			}
		}
	})
	for range l.o.Workers {
		running.Go(func() {
			for p := range work {
				l.read(ctx, epoch, p)
			}
		})
	}
	made = make(chan ready, max(l.o.Ahead-1, 0))
	running.Go(func() {
		defer close(made)
		l.assemble(ctx, inOrder, made, epoch, p)
	})
	return made, func() { cancel(); running.Wait() }
}

// send reports whether x was sent before ctx ended.
func send[T any](ctx context.Context, to chan<- T, x T) bool {
	select {
	case to <- x:
		return true
	case <-ctx.Done():
		return false
	}
}

// read fetches the records of a portion.
func (l *Loader) read(ctx context.Context, epoch int, p *portion) {
	defer close(p.done)
	for _, i := range p.records {
		if ctx.Err() != nil {
			return
		}
		e, err := l.at(epoch, i)
		p.examples, p.errs = append(p.examples, e), append(p.errs, err)
	}
}

// at reads one record. A panic in a set or a transform becomes an error.
func (l *Loader) at(epoch, i int) (e Example, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("record %d: panic: %v", i, r)
		}
	}()
	e, err = l.set.At(i, l.draws(epoch, i))
	if err == nil && len(e) == 0 {
		err = fmt.Errorf("record %d has no fields", i)
	}
	if bad := (*BadRecord)(nil); err != nil && !errors.As(err, &bad) {
		err = fmt.Errorf("record %d: %w", i, err)
	}
	return e, err
}

// assemble makes batches of the records in their order.
func (l *Loader) assemble(ctx context.Context, inOrder <-chan *portion, made chan<- ready, epoch int, at place) {
	var records []Example
	emit := func() bool {
		feed, err := l.feed(records)
		if len(records) == 0 && err == nil {
			feed, err = l.padding(epoch, at.template)
		}
		b := ready{Batch{feed, len(records), l.size(len(records)), epoch}, at.after(l.share, len(records) < at.batch), err}
		records = records[:0:0]
		return send(ctx, made, b) && err == nil
	}
	for p := range inOrder {
		select {
		case <-p.done:
		case <-ctx.Done():
			return
		}
		if len(p.examples) < len(p.records) { // ctx has ended
			return
		}
		for i, e := range p.examples {
			at.at++
			if err := p.errs[i]; err != nil {
				if err = judge(l.o.OnBad, err); err != nil {
					send(ctx, made, ready{err: err})
					return
				}
			} else {
				records = append(records, e)
			}
			if len(records) == l.o.Batch && !emit() {
				return
			}
		}
	}
	if at.at == at.end && (len(records) > 0 || at.padded) && l.o.Last != Drop {
		emit()
	}
}

// size is the size of a batch with n records, including padding.
func (l *Loader) size(n int) int {
	if l.o.Last == Pad {
		return l.o.Batch
	}
	return n
}

// feed makes the feed of records.
func (l *Loader) feed(records []Example) (map[string]any, error) {
	if len(records) == 0 {
		return nil, nil
	}
	if l.o.Collate != nil {
		return l.o.Collate(records)
	}
	n := l.size(len(records))
	feed, err := collate(records, n, l.o.Pad)
	if err == nil && l.o.Mask != "" {
		mask := make([]float32, n)
		for i := range records {
			mask[i] = 1
		}
		feed[l.o.Mask] = mask
	}
	return feed, err
}
