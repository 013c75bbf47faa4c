package generate_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"ampc"
	"ampc/generate"
	"ampc/ir"
	"ampc/pretrained"
)

// small is a GPT-2 of a few thousand weights.
func small() *pretrained.GPT2 {
	return &pretrained.GPT2{Vocab: 61, Positions: 48, Width: 32, Layers: 2, Heads: 4, Inner: 64, Eps: 1e-5, Activation: "gelu_new", Tied: true}
}

// windowed is the same model that computes the whole window for each token.
type windowed interface {
	generate.Decoder
	Logits(m *ampc.Model, ids ampc.Tensor) ampc.Tensor
}

// recomputed is the logits of the next token for every prefix of ids.
func recomputed(t *testing.T, d windowed, seed int64, ids []int32, vocab int) [][]float32 {
	rows, _ := recomputedIn(t, ampc.Policy{}, d, seed, ids, vocab)
	return rows
}

// recomputedIn is recomputed under a policy, and the step.
func recomputedIn(t *testing.T, p ampc.Policy, d windowed, seed int64, ids []int32, vocab int) ([][]float32, *ampc.Step) {
	t.Helper()
	m := ampc.New("window", ampc.Seed(seed))
	defer m.Close()
	out := d.Logits(m, m.Input("ids", ampc.I32, 1, len(ids)))
	step, err := m.Infer(ampc.InferConfig{Policy: p}, out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), ampc.Feed{"ids": ids})
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Value(out)
	if err != nil {
		t.Fatal(err)
	}
	f := h.Floats()
	var rows [][]float32
	for i := range ids {
		rows = append(rows, f[i*vocab:][:vocab])
	}
	return rows, step
}

func best(x []float32) int32 {
	at := 0
	for i := range x {
		if x[i] > x[at] {
			at = i
		}
	}
	return int32(at)
}

// llama is a model of few weights with shared heads of keys, rotary positions and scaled wavelengths.
func llama(scaling pretrained.Scaling) *pretrained.Llama {
	return &pretrained.Llama{Vocab: 61, Positions: 48, Width: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, Inner: 48, Eps: 1e-6, Base: 1e4, Scaling: scaling, Activation: "silu"}
}

func started(t *testing.T, d generate.Decoder, c generate.Config, o ...ampc.ModelOption) *generate.Generator {
	t.Helper()
	m := ampc.New("cached", append([]ampc.ModelOption{ampc.Seed(3)}, o...)...)
	t.Cleanup(func() { m.Close() })
	g, err := generate.New(m, d, c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func sequences(t *testing.T, g *generate.Generator) *generate.Sequences {
	t.Helper()
	s, err := g.Start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// all are the tokens of each sequence.
func all(t *testing.T, s *generate.Sequences, o generate.Options, prompts ...[]int32) [][]int32 {
	t.Helper()
	out := make([][]int32, len(prompts))
	for token, err := range s.Generate(t.Context(), o, prompts...) {
		if err != nil {
			t.Fatal(err)
		}
		out[token.Sequence] = append(out[token.Sequence], token.ID)
	}
	return out
}

var prompt = []int32{5, 17, 33, 8, 60, 2, 2, 41, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29}

// Decoding greedily by the cache gives the tokens that recomputing the window gives.
func TestGreedy(t *testing.T) {
	for name, d := range map[string]windowed{
		"gpt2": small(), "llama": llama(pretrained.Scaling{}), "linear": llama(pretrained.Scaling{Kind: "linear", Factor: 4}),
		"llama3": llama(pretrained.Scaling{Kind: "llama3", Factor: 8, Low: 1, High: 4, Original: 32}),
	} {
		for _, chunk := range []int{1, 16} {
			s := sequences(t, started(t, d, generate.Config{Chunk: chunk}))
			ids := append(slices.Clone(prompt), all(t, s, generate.Options{MaxTokens: 20}, prompt)[0]...)
			want := recomputed(t, d, 3, ids, 61)
			for i := len(prompt); i < len(ids); i++ {
				if w := best(want[i-1]); w != ids[i] {
					t.Errorf("%s in chunks of %d: token %d is %d, the window gives %d", name, chunk, i, ids[i], w)
				}
			}
			if len(ids) != len(prompt)+20 {
				t.Errorf("%s: %d tokens", name, len(ids)-len(prompt))
			}
		}
	}
}

// roundings is the largest number of roundings to 16 bits on a way through g, where a node
// of several 16-bit operands has those of the longest way and one of each other.
func roundings(g *ir.Graph) (most int) {
	count := map[*ir.Value]int{}
	for _, n := range g.Nodes {
		longest, others := 0, -1
		for _, v := range n.In {
			if v != nil && (v.Type.DType.Low() || count[v] > 0) {
				longest, others = max(longest, count[v]), others+1
			}
		}
		for _, v := range n.Out {
			if count[v] = longest + max(others, 0); v.Type.DType.Low() {
				count[v]++
			}
			most = max(most, count[v])
		}
	}
	return most
}

// apart is the largest difference of two rows of logits, as a share of the largest logit.
func apart(a, b []float32) float64 {
	worst, most := 0.0, 0.0
	for i := range a {
		worst, most = max(worst, math.Abs(float64(a[i]-b[i]))), max(most, math.Abs(float64(b[i])))
	}
	return worst / most
}

// In bf16 the logits of a window lie within its roundings of those in f32, and the cached
// ones within what the window is off by at some position: a cache rounds what the window
// rounds, too.
//
// A rounding is off by at most u = 2^-8 of the number, evenly spread, with a deviation of
// u/√3. R of them, one behind the other and independent, have the deviation u·√(R/3); no
// logit of a few hundred is off by more than four, as a share of the largest.
func TestBF16(t *testing.T) {
	for name, d := range map[string]windowed{"gpt2": small(), "llama": llama(pretrained.Scaling{})} {
		want := recomputed(t, d, 3, prompt, 61)
		window, step := recomputedIn(t, ampc.MixedBF16(), d, 3, prompt, 61)
		r, off := roundings(step.Graph()), 0.0
		for i := range window {
			off = max(off, apart(window[i], want[i]))
		}
		bound := 4 * math.Sqrt(float64(r)/3) / 256
		if off > bound || r < 10 || r > 60 {
			t.Errorf("%s: logits of the window differ by %.4f, want %.4f after %d roundings", name, off, bound, r)
		}
		s := sequences(t, started(t, d, generate.Config{Policy: ampc.MixedBF16(), Chunk: 8}))
		got, err := s.Append(t.Context(), prompt)
		if err != nil {
			t.Fatal(err)
		}
		cached := apart(got[0], want[len(prompt)-1])
		if cached > off {
			t.Errorf("%s: cached logits differ by %.4f, those of the window by %.4f at most", name, cached, off)
		}
		t.Logf("%s: cached %.4f, window %.4f, bound %.4f of %d roundings", name, cached, off, bound, r)
	}
}

// Sequences of different lengths in one batch give the tokens that each gives alone, the one that ended long ago included.
func TestBatch(t *testing.T) {
	for _, policy := range []ampc.Policy{{}, ampc.MixedBF16()} {
		d := llama(pretrained.Scaling{})
		alone, batch := started(t, d, generate.Config{Chunk: 8, Policy: policy}), started(t, d, generate.Config{Chunk: 8, Batch: 3, Policy: policy})
		prompts := [][]int32{prompt[:1], prompt, prompt[4:9]}
		o := generate.Options{MaxTokens: 12, Stop: []int32{best(logits(t, alone, prompt[4:9]))}}
		got := all(t, sequences(t, batch), o, prompts...)
		for i, p := range prompts {
			if want := all(t, sequences(t, alone), o, p)[0]; !slices.Equal(got[i], want) {
				t.Errorf("sequence %d gives %v, alone %v", i, got[i], want)
			}
		}
		if len(got[2]) != 1 {
			t.Errorf("%d tokens up to a stop token", len(got[2]))
		}
	}
}

func logits(t *testing.T, g *generate.Generator, p []int32) []float32 {
	t.Helper()
	out, err := sequences(t, g).Append(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// Many sequences in flight share the weights and nothing else, and no step is compiled for them.
func TestConcurrent(t *testing.T) {
	passes := 0
	g := started(t, small(), generate.Config{Chunk: 8, Compile: ampc.CompileOptions{After: func(ampc.PassEvent) { passes++ }}})
	compiled := passes
	want := all(t, sequences(t, g), generate.Options{MaxTokens: 20}, prompt)
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			s, err := g.Start()
			if err != nil {
				t.Error(err)
				return
			}
			n := 0
			for token, err := range s.Generate(t.Context(), generate.Options{MaxTokens: 20}, prompt[:len(prompt)-i%2]) {
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 && token.ID != want[0][n] {
					t.Errorf("sequence %d gives %d as token %d, alone %d", i, token.ID, n, want[0][n])
				}
				n++
			}
		})
	}
	group.Wait()
	if passes != compiled || compiled == 0 {
		t.Errorf("%d passes ran in New, %d until the end", compiled, passes)
	}
}

// A sequence that does not fit is one line that says so, and changes nothing.
func TestFull(t *testing.T) {
	g := started(t, small(), generate.Config{Length: 24, Chunk: 8})
	s := sequences(t, g)
	n := 0
	for _, err := range s.Generate(t.Context(), generate.Options{}, prompt) {
		if n++; err == nil {
			continue
		}
		const want = "generate: the cache is full: sequence 0 has 24 tokens of 24, and 1 more do not fit: raise Config.Length, or drop tokens by Truncate"
		if err.Error() != want || !errors.Is(err, generate.ErrFull) {
			t.Errorf("%v", err)
		}
	}
	if n != 24-len(prompt)+2 || s.Len(0) != 24 {
		t.Errorf("%d tokens are held after %d steps", s.Len(0), n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Truncate(0, 3)
	if _, err := s.Append(ctx, prompt[:5]); !errors.Is(err, context.Canceled) || s.Len(0) != 3 {
		t.Errorf("%v, %d tokens", err, s.Len(0))
	}
	for _, bad := range []struct {
		o    generate.Options
		want string
	}{
		{generate.Options{Sampling: generate.Sampling{Temperature: -1}}, "generate: Temperature is -1, want 0 or more"},
		{generate.Options{Sampling: generate.Sampling{TopP: 2}}, "generate: TopP is 2, want 0 to 1"},
		{generate.Options{MaxTokens: -1}, "generate: MaxTokens is -1, want 0 or more"},
	} {
		for _, err := range s.Generate(t.Context(), bad.o, prompt[:1]) {
			if err == nil || err.Error() != bad.want {
				t.Errorf("%v, want %s", err, bad.want)
			}
		}
	}
}

// Truncating is as never having had the tokens.
func TestTruncate(t *testing.T) {
	g := started(t, small(), generate.Config{Chunk: 8})
	s := sequences(t, g)
	want := all(t, s, generate.Options{MaxTokens: 5}, prompt)
	s.Truncate(0, 6)
	if got := all(t, s, generate.Options{MaxTokens: 5}, prompt[6:]); !slices.Equal(got[0], want[0]) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSampling(t *testing.T) {
	draw := func(o generate.Sampling, logits []float32, before ...int32) map[int32]int {
		s, err := generate.NewSampler(o, 0)
		if err != nil {
			t.Fatal(err)
		}
		count := map[int32]int{}
		for range 4000 {
			id, err := s.Pick(slices.Clone(logits), before)
			if err != nil {
				t.Fatal(err)
			}
			count[id]++
		}
		return count
	}
	ln := func(p ...float64) (x []float32) {
		for _, p := range p {
			x = append(x, float32(math.Log(p)))
		}
		return x
	}
	near := func(what string, got map[int32]int, want ...float64) {
		t.Helper()
		for i, p := range want {
			if d := float64(got[int32(i)])/4000 - p; math.Abs(d) > 0.03 || p == 0 && d != 0 {
				t.Errorf("%s: %v of 4000, want the shares %v", what, got, want)
			}
		}
	}
	p := ln(0.1, 0.5, 0.25, 0.15)
	near("greedy", draw(generate.Sampling{}, p), 0, 1, 0, 0)
	near("temperature 1", draw(generate.Sampling{Temperature: 1}, p), 0.1, 0.5, 0.25, 0.15)
	near("temperature 1/2", draw(generate.Sampling{Temperature: 0.5}, p), 0.029, 0.725, 0.181, 0.065)
	near("top 2", draw(generate.Sampling{Temperature: 1, TopK: 2}, p), 0, 2.0/3, 1.0/3, 0)
	near("top 0.7", draw(generate.Sampling{Temperature: 1, TopP: 0.7}, p), 0, 2.0/3, 1.0/3, 0)
	near("top 0.4", draw(generate.Sampling{Temperature: 1, TopP: 0.4}, p), 0, 1, 0, 0)
	near("repetition", draw(generate.Sampling{Repetition: 4}, []float32{2, 4, 3, -1}, 1, 1), 0, 0, 1, 0)
	near("repetition below 0", draw(generate.Sampling{Repetition: 4}, []float32{-2, -1, -3, -5}, 1), 1, 0, 0, 0)
	a, b := draw(generate.Sampling{Temperature: 1, Seed: 7}, p), draw(generate.Sampling{Temperature: 1, Seed: 7}, p)
	if !maps.Equal(a, b) || maps.Equal(a, draw(generate.Sampling{Temperature: 1, Seed: 8}, p)) {
		t.Error("a seed does not decide the tokens")
	}
}

// A character of several tokens appears whole.
func TestText(t *testing.T) {
	decode := func(ids []int32) string {
		var b []byte
		for _, id := range ids {
			b = append(b, byte(id))
		}
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	text, got := generate.NewText(decode, []int32{'a'}), []string{}
	for _, b := range []byte("bé€") {
		got = append(got, text.Add(int32(b)))
	}
	if !slices.Equal(got, []string{"b", "", "é", "", "", "€"}) {
		t.Errorf("%q", got)
	}
}
