package generate

import (
	"context"
	"fmt"
	"iter"
	"slices"
)

// Options say how far sequences are continued.
type Options struct {
	Sampling
	MaxTokens int     // largest number of new tokens of each sequence; 0: until a stop token or the end of the cache
	Stop      []int32 // tokens that end a sequence; they are part of the output
}

// sampler is that of sequence i.
func (o Options) sampler(i int) (*Sampler, error) {
	if o.MaxTokens < 0 {
		return nil, fmt.Errorf("generate: MaxTokens is %d, want 0 or more", o.MaxTokens)
	}
	return NewSampler(o.Sampling, i)
}

// Token is a new token of a sequence.
type Token struct {
	Sequence int
	ID       int32
}

// Generate appends a prompt to each sequence, none where it is nil, and yields the tokens
// that the model adds, as they come. A sequence ends with a stop token or after MaxTokens.
// An error ends all: ErrFull where a cache has no room, the end of ctx. A token that was
// yielded last is not in the cache yet: a call that continues has it as its prompt.
func (s *Sequences) Generate(ctx context.Context, o Options, prompts ...[]int32) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := s.generate(ctx, o, prompts, func(t Token) bool { return yield(t, nil) }); err != nil {
			yield(Token{}, err)
		}
	}
}

func (s *Sequences) generate(ctx context.Context, o Options, prompts [][]int32, yield func(Token) bool) error {
	samplers, before := make([]*Sampler, len(prompts)), make([][]int32, len(prompts))
	for i, p := range prompts {
		var err error
		if samplers[i], err = o.sampler(i); err != nil {
			return err
		}
		before[i] = slices.Clone(p)
	}
	next := slices.Clone(prompts)
	for made := 1; ; made++ {
		logits, err := s.Append(ctx, next...)
		if err != nil {
			return err
		}
		going := false
		for i, x := range logits {
			next[i] = nil
			if x == nil {
				continue
			}
			id, err := samplers[i].Pick(x, before[i])
			if err != nil {
				return err
			}
			before[i] = append(before[i], id)
			if !yield(Token{i, id}) {
				return nil
			}
			if made != o.MaxTokens && !slices.Contains(o.Stop, id) {
				next[i], going = before[i][len(before[i])-1:], true
			}
		}
		if !going {
			return nil
		}
	}
}
