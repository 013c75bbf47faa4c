package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"

	"ampc"
	"ampc/pretrained"
)

// Decoder is a language model that continues sequences: pretrained.GPT2,
// pretrained.Llama, models.GPT.
type Decoder interface {
	// Next builds the logits [B,vocabulary] of the token that follows each sequence.
	Next(m *ampc.Model, ids ampc.Tensor, c pretrained.Cached) ampc.Tensor
	// Limit is the number of positions of the model.
	Limit() int
}

// Config says how a Generator is compiled.
type Config struct {
	Policy ampc.Policy // zero: f32
	Cache  ampc.DType  // dtype of keys and values; zero: bf16 or f16 if the policy computes in it, otherwise f32
	Length int         // largest number of tokens in a sequence, including the prompt; 0: the model's number of positions
	Batch  int         // number of sequences that one call continues; 0: 1
	Chunk  int         // number of tokens of a prompt that one call processes; 0: 64

	Compile ampc.CompileOptions
}

// Generator is a model compiled to continue sequences: for one token of each, and for
// a chunk of a prompt. All its Sequences share the weights. Any goroutine may call it.
type Generator struct {
	model  *ampc.Model
	config Config
	logits ampc.Tensor
	sizes  []int        // sizes of the steps, ascending, the first is 1
	steps  []*ampc.Step // number of tokens of each sequence that fit the caches
}

// New builds d in m, which has no ids of its own yet, and compiles it. Load weights
// afterwards.
func New(m *ampc.Model, d Decoder, c Config) (*Generator, error) {
	if d.Limit() < 1 {
		return nil, fmt.Errorf("generate: the model has %d positions (Limit): want 1 or more; a GPT takes them from its option seq", d.Limit())
	}
	if c.Length == 0 {
		c.Length = d.Limit()
	}
	c.Batch, c.Chunk = max(c.Batch, 1), min(cmp.Or(c.Chunk, 64), c.Length)
	if c.Length < 1 || c.Length > d.Limit() || c.Chunk < 1 {
		return nil, fmt.Errorf("generate: Length is %d and Chunk %d: want 1 to %d, which the model has positions for", c.Length, c.Chunk, d.Limit())
	}
	if c.Cache == 0 {
		c.Cache = cmp.Or(c.Policy.Low, ampc.F32)
	}
	g := &Generator{model: m, config: c}
	ids, at := m.Input("ids", ampc.I32, c.Batch, ampc.Dim("T")), m.Input("positions", ampc.I32, c.Batch, ampc.Dim("T"))
	g.logits = d.Next(m, ids, pretrained.Cached{Pos: m.Input("pos", ampc.I32, c.Batch), Count: m.Input("count", ampc.I32, c.Batch), Positions: at, Length: c.Length, DType: c.Cache})
	for _, n := range []int{1, c.Chunk / 8, c.Chunk} {
		if len(g.sizes) > 0 && n <= g.sizes[len(g.sizes)-1] {
			continue
		}
		step, err := m.Infer(ampc.InferConfig{Policy: c.Policy, Compile: c.Compile, Sizes: ampc.Sizes{"T": int64(n)}}, g.logits)
		if err != nil {
			return nil, err
		}
		g.sizes, g.steps = append(g.sizes, n), append(g.steps, step)
	}
	return g, nil
}

// fitting returns the smallest step for n tokens, or the largest step.
func (g *Generator) fitting(n int) (*ampc.Step, int) {
	i := min(sort.SearchInts(g.sizes, n), len(g.sizes)-1)
	return g.steps[i], g.sizes[i]
}

// Model is the model that New was given, for loading weights.
func (g *Generator) Model() *ampc.Model { return g.model }

// Length is how many tokens a sequence may have.
func (g *Generator) Length() int { return g.config.Length }

// ErrFull is the error of a sequence that has as many tokens as its cache holds.
var ErrFull = errors.New("the cache is full")

var errNoTokens = errors.New("generate: no tokens: a sequence begins with one at least")

// full is the error of sequence i, which holds so many tokens and should take more.
func (g *Generator) full(i, held, more int) error {
	return fmt.Errorf("generate: %w: sequence %d has %d tokens of %d, and %d more do not fit: raise Config.Length, or drop tokens by Truncate", ErrFull, i, held, g.config.Length, more)
}

// Sequences are Config.Batch sequences and the cache with their keys and values. One
// goroutine at a time may use them.
type Sequences struct {
	g                          *Generator
	cache                      *ampc.Cache
	held                       []int // number of tokens of each sequence in the cache
	ids, positions, pos, count []int32
}

// Start returns empty sequences. Their memory is Bytes; it goes when nothing refers to it.
func (g *Generator) Start() (*Sequences, error) {
	cache, err := g.model.NewCache()
	if err != nil {
		return nil, err
	}
	b := g.config.Batch
	return &Sequences{g: g, cache: cache, held: make([]int, b), pos: make([]int32, b), count: make([]int32, b)}, nil
}

// Bytes is how much memory the cache takes.
func (s *Sequences) Bytes() int64 { return s.cache.Bytes() }

// Len is how many tokens sequence i holds.
func (s *Sequences) Len(i int) int { return s.held[i] }

// Truncate drops the tokens of sequence i from n on; 0 starts another sequence.
func (s *Sequences) Truncate(i, n int) { s.held[i] = max(0, min(n, s.held[i])) }

// Append appends tokens to the sequences, none where they are nil, and returns the
// logits of the token that follows each, [vocabulary], nil for sequences without new
// tokens. The sequences are as before where it fails: ErrFull, a token that the model
// does not know, the end of ctx.
func (s *Sequences) Append(ctx context.Context, tokens ...[]int32) ([][]float32, error) {
	if len(tokens) != len(s.held) {
		return nil, fmt.Errorf("generate: tokens for %d sequences, want %d", len(tokens), len(s.held))
	}
	longest := 0
	for i, t := range tokens {
		if len(t) > s.g.config.Length-s.held[i] {
			return nil, s.g.full(i, s.held[i], len(t))
		}
		longest = max(longest, len(t))
	}
	if longest == 0 {
		return nil, errNoTokens
	}
	out, before := make([][]float32, len(tokens)), append([]int(nil), s.held...)
	for from := 0; from < longest; {
		step, n := s.g.fitting(longest - from)
		if err := s.run(ctx, step, n, from, tokens, out); err != nil {
			s.held = before
			return nil, err
		}
		from += n
	}
	return out, nil
}

// run appends up to n tokens of each sequence, from index from on.
func (s *Sequences) run(ctx context.Context, step *ampc.Step, n, from int, tokens [][]int32, out [][]float32) error {
	s.ids, s.positions = append(s.ids[:0], make([]int32, n*len(tokens))...), append(s.positions[:0], make([]int32, n*len(tokens))...)
	for i, t := range tokens {
		t = t[min(from, len(t)):min(from+n, len(t))]
		copy(s.ids[i*n:], t)
		s.pos[i], s.count[i] = int32(s.held[i]), int32(len(t))
		for k := range n {
			s.positions[i*n+k] = int32(min(s.held[i]+k, s.g.config.Length-1))
		}
	}
	r, err := step.Run(ctx, ampc.Feed{"ids": s.ids, "positions": s.positions, "pos": s.pos, "count": s.count, "cache": s.cache})
	if err != nil {
		return err
	}
	defer r.Release()
	h, err := r.Value(s.g.logits)
	if err != nil {
		return err
	}
	all, vocab := h.Floats(), h.Len()/len(tokens)
	for i := range tokens {
		s.held[i] += int(s.count[i])
		if s.count[i] > 0 && from+n >= len(tokens[i]) {
			out[i] = all[i*vocab : (i+1)*vocab : (i+1)*vocab]
		}
	}
	return nil
}
