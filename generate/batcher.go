package generate

import (
	"context"
	"iter"
	"slices"
	"sync"
)

// Batcher continues the sequences of many callers together. Each step reads the weights
// once and gives every sequence in flight a token, or takes a chunk of its prompt. A
// sequence joins before any step and leaves after any (continuous batching: Yu et al.,
// "Orca", OSDI 2022). At most Config.Batch are in flight; others wait in their order. Any
// goroutine may call it.
type Batcher struct {
	g *Generator

	mu      sync.Mutex
	s       *Sequences
	waiting []*request
	running bool

	slots []*request // of the goroutine that steps; nil: free
}

// request is the sequence of one caller.
type request struct {
	ctx     context.Context
	sampler *Sampler
	o       Options
	todo    []int32 // not yet in the cache
	before  []int32 // the prompt and what was made
	made    int
	out     chan answer // as long as a sequence: no caller holds up the others
}

// answer is a token or why there is none.
type answer struct {
	id  int32
	err error
}

// Batcher makes one. Its memory is that of Start.
func (g *Generator) Batcher() (*Batcher, error) {
	s, err := g.Start()
	if err != nil {
		return nil, err
	}
	return &Batcher{g: g, s: s, slots: make([]*request, g.config.Batch)}, nil
}

// Generate is Sequences.Generate for one new sequence, whose tokens are the same as
// alone, except for roundings. A caller that is slow to take its tokens delays no other.
func (b *Batcher) Generate(ctx context.Context, o Options, prompt []int32) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // the sequence leaves before the next step
		out, err := b.join(ctx, o, prompt)
		if err != nil {
			yield(Token{}, err)
			return
		}
		for {
			select {
			case x, more := <-out:
				if !more || !yield(Token{ID: x.id}, x.err) || x.err != nil {
					return
				}
			case <-ctx.Done():
				yield(Token{}, context.Cause(ctx))
				return
			}
		}
	}
}

// join lets a sequence wait for its turn, and makes sure that a caller steps.
func (b *Batcher) join(ctx context.Context, o Options, prompt []int32) (<-chan answer, error) {
	sampler, err := o.sampler(0)
	switch {
	case err != nil:
		return nil, err
	case len(prompt) == 0:
		return nil, errNoTokens
	case len(prompt) > b.g.config.Length:
		return nil, b.g.full(0, 0, len(prompt))
	}
	r := &request{ctx: ctx, sampler: sampler, o: o, todo: prompt, before: slices.Clone(prompt), out: make(chan answer, b.g.config.Length+1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, r)
	if !b.running {
		b.running = true
		go b.run()
	}
	return r.out, nil
}

// run steps until no caller is left.
func (b *Batcher) run() {
	for b.admit() {
		if err := b.step(b.slots); err != nil {
			b.apart()
		}
	}
}

// admit gives free slots to waiting callers; false: there is none.
func (b *Batcher) admit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(r *request) bool { return r.ctx.Err() != nil })
	busy := false
	for i, r := range b.slots {
		if r != nil && r.ctx.Err() != nil {
			r, b.slots[i] = nil, nil
		}
		if r == nil && len(b.waiting) > 0 {
			b.slots[i], b.waiting = b.waiting[0], b.waiting[1:]
			b.s.Truncate(i, 0)
		}
		busy = busy || b.slots[i] != nil
	}
	b.running = busy
	return busy
}

// step appends to each of some sequences what it has to append, up to a chunk, and picks
// a token for those that have appended all.
func (b *Batcher) step(who []*request) error {
	longest := 0
	for _, r := range who {
		if r != nil {
			longest = max(longest, len(r.todo))
		}
	}
	step, n := b.g.fitting(longest)
	tokens, logits := make([][]int32, len(who)), make([][]float32, len(who))
	for i, r := range who {
		if r != nil {
			tokens[i] = r.todo[:min(n, len(r.todo))]
		}
	}
	if err := b.s.run(context.Background(), step, n, 0, tokens, logits); err != nil { // it belongs to all: no caller ends it
		return err
	}
	var picks sync.WaitGroup
	for i, r := range who {
		if r == nil {
			continue
		}
		if r.todo = r.todo[len(tokens[i]):]; len(r.todo) > 0 {
			continue
		}
		picks.Go(func() {
			if !r.pick(logits[i], b.s.Len(i), b.g) {
				close(r.out)
				b.slots[i] = nil
			}
		})
	}
	picks.Wait()
	return nil
}

// apart steps each sequence alone, after a step of all failed: those at fault leave.
func (b *Batcher) apart() {
	for i, r := range b.slots {
		if r == nil {
			continue
		}
		one := make([]*request, len(b.slots))
		one[i] = r
		if err := b.step(one); err != nil {
			r.out <- answer{err: err}
			close(r.out)
			b.slots[i] = nil
		}
	}
}

// pick chooses the next token of a sequence that holds so many; false where that was
// the last.
func (r *request) pick(logits []float32, held int, g *Generator) bool {
	id, err := r.sampler.Pick(logits, r.before)
	r.out <- answer{id, err}
	r.before, r.made = append(r.before, id), r.made+1
	if err != nil || r.made == r.o.MaxTokens || slices.Contains(r.o.Stop, id) {
		return false
	}
	if held == g.config.Length {
		r.out <- answer{err: g.full(0, held, 1)}
		return false
	}
	r.todo = r.before[len(r.before)-1:]
	return true
}
