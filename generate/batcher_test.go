package generate_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"

	"ampc"
	"ampc/generate"
	"ampc/pretrained"
)

// drawn are the tokens of a sequence.
func drawn(t *testing.T, tokens iter.Seq2[generate.Token, error]) (out []int32) {
	t.Helper()
	for token, err := range tokens {
		if err != nil {
			t.Error(err)
			return out
		}
		out = append(out, token.ID)
	}
	return out
}

// Callers that come and go at any time, more than there are slots, each get the tokens
// that they get alone, and share steps.
func TestBatcher(t *testing.T) {
	for name, policy := range map[string]ampc.Policy{"f32": {}, "mixed-bf16": ampc.MixedBF16()} {
		d := llama(pretrained.Scaling{})
		alone := started(t, d, generate.Config{Chunk: 8, Policy: policy})
		b, err := started(t, d, generate.Config{Chunk: 8, Batch: 3, Policy: policy}).Batcher()
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for i := range 9 {
			o := generate.Options{MaxTokens: 3 + 2*i}
			if i%3 == 2 {
				o.Sampling = generate.Sampling{Temperature: 1, TopK: 5, Repetition: 1.1, Seed: uint64(i)}
			}
			from := prompt[i : i+1+i%4*3]
			want := all(t, sequences(t, alone), o, from)[0]
			group.Go(func() {
				for range 2 { // the second takes a slot that others have used
					if got := drawn(t, b.Generate(t.Context(), o, from)); !slices.Equal(got, want) {
						t.Errorf("%s: sequence %d gives %v, alone %v", name, i, got, want)
					}
				}
			})
		}
		group.Wait()
	}
}

// A caller who leaves, whose context ends, or whose prompt is at fault takes nothing from
// the others.
func TestBatcherFaults(t *testing.T) {
	d := small()
	b, err := started(t, d, generate.Config{Chunk: 8, Batch: 4, Length: 40}).Batcher()
	if err != nil {
		t.Fatal(err)
	}
	o := generate.Options{MaxTokens: 15}
	want := all(t, sequences(t, started(t, d, generate.Config{Chunk: 8, Length: 40})), o, prompt)[0]
	last := func(ctx context.Context, o generate.Options, p ...int32) (n int, failed error) {
		for _, err := range b.Generate(ctx, o, p) {
			if n++; err != nil {
				failed = err
			}
		}
		return n, failed
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			if got := drawn(t, b.Generate(t.Context(), o, prompt)); !slices.Equal(got, want) {
				t.Errorf("%v, alone %v", got, want)
			}
		})
		group.Go(func() {
			for range b.Generate(t.Context(), generate.Options{}, prompt[:3]) {
				break
			}
		})
		group.Go(func() {
			for _, err := range b.Generate(ctx, generate.Options{}, prompt[:3]) {
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			if n, err := last(t.Context(), o, 61); n != 1 || err == nil || errors.Is(err, generate.ErrFull) {
				t.Errorf("a token beyond the vocabulary: %d answers, %v", n, err)
			}
		})
		group.Go(func() {
			if n, err := last(t.Context(), generate.Options{}, prompt...); n != 40-len(prompt)+2 || !errors.Is(err, generate.ErrFull) {
				t.Errorf("without an end: %d answers, %v", n, err)
			}
		})
	}
	group.Wait()
	for _, p := range [][]int32{nil, make([]int32, 41)} {
		if n, err := last(t.Context(), o, p...); n != 1 || err == nil {
			t.Errorf("a prompt of %d: %d answers, %v", len(p), n, err)
		}
	}
	if _, err := last(t.Context(), generate.Options{MaxTokens: -1}, 1); err == nil || err.Error() != "generate: MaxTokens is -1, want 0 or more" {
		t.Error(err)
	}
}
