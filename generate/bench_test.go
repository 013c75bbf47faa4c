package generate_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/generate"
	"ampc/pretrained"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
)

// gpt2 is the architecture of GPT-2 with 124 million parameters.
func gpt2() *pretrained.GPT2 {
	return &pretrained.GPT2{Vocab: 50257, Positions: 1024, Width: 768, Layers: 12, Heads: 12, Inner: 3072, Eps: 1e-5, Activation: "gelu_new", Tied: true}
}

// reader sums a gigabyte of zeros with the vector kernels of the CPU.
type reader struct {
	m    *kern.Machine
	x, y kern.Buf
}

// rows is how many sums a reader makes, in parallel.
const rows = 256

func newReader(b *testing.B, threads int) *reader {
	path, err := kern.Detect(os.Getenv)
	if err != nil {
		b.Fatal(err)
	}
	x := kern.Alloc(1 << 30)
	clear(x)
	return &reader{kern.New(path, threads), kern.Buf{Type: kern.F32, Data: x}, kern.Buf{Type: kern.F32, Data: make([]byte, 4*rows)}}
}

// rate is how many bytes a second the threads read.
func (r *reader) rate() float64 {
	start := time.Now()
	r.m.Reduce(kern.ReduceSum, r.y, r.x, rows, len(r.x.Data)/4/rows, 1)
	return float64(len(r.x.Data)) / time.Since(start).Seconds()
}

// BenchmarkDecode is the rate at which decoding reads the weights of GPT-2, each once a token in bf16, as a share of
// the rate of a sum over a gigabyte, measured in turn.
func BenchmarkDecode(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			sum := newReader(b, threads)
			defer sum.m.Close()
			back, err := cpu.Open(threads)
			if err != nil {
				b.Fatal(err)
			}
			defer back.Close()
			m := ampc.New("gpt2", ampc.On(back))
			defer m.Close()
			g, err := generate.New(m, gpt2(), generate.Config{Policy: ampc.MixedBF16(), Chunk: 1})
			if err != nil {
				b.Fatal(err)
			}
			s, err := g.Start()
			if err != nil {
				b.Fatal(err)
			}
			const weights = 2 * (12*(12*768*768+13*768) + 50257*768)
			if _, err := s.Append(context.Background(), []int32{1}); err != nil {
				b.Fatal(err)
			}
			var took time.Duration
			rate, turns := 0.0, 0
			for b.Loop() {
				rate += sum.rate()
				turns++
				start := time.Now()
				for i := range 20 {
					if _, err := s.Append(context.Background(), []int32{int32(i)}); err != nil {
						b.Fatal(err)
					}
				}
				took += time.Since(start)
				s.Truncate(0, 1)
			}
			rate /= float64(turns)
			token := took.Seconds() / float64(20*turns)
			b.ReportMetric(token*1e3, "ms/token")
			b.ReportMetric(rate/1e9, "GB/s-sum")
			b.ReportMetric(weights/token/1e9, "GB/s-decode")
			b.ReportMetric(100*weights/token/rate, "%-of-sum")
		})
	}
}

// BenchmarkClients is what eight clients at a time wait for, with prompts of 32 tokens and 16 new ones each: the median and
// the longest time to the first token and between tokens, where each has sequences of its own, and where they share steps.
func BenchmarkClients(b *testing.B) {
	o := generate.Options{MaxTokens: 17}
	b.Run("apart", func(b *testing.B) {
		clients(b, generate.Config{Chunk: 32}, func(g *generate.Generator) func(prompt []int32) iter.Seq2[generate.Token, error] {
			return func(prompt []int32) iter.Seq2[generate.Token, error] {
				s, err := g.Start()
				if err != nil {
					b.Error(err)
				}
				return s.Generate(context.Background(), o, prompt)
			}
		})
	})
	b.Run("together", func(b *testing.B) {
		clients(b, generate.Config{Batch: 8, Chunk: 8}, func(g *generate.Generator) func(prompt []int32) iter.Seq2[generate.Token, error] {
			s, err := g.Batcher()
			if err != nil {
				b.Fatal(err)
			}
			return func(prompt []int32) iter.Seq2[generate.Token, error] {
				return s.Generate(context.Background(), o, prompt)
			}
		})
	})
}

// clients measures eight of them, each of which ranges over the tokens after a prompt.
func clients(b *testing.B, c generate.Config, start func(g *generate.Generator) func(prompt []int32) iter.Seq2[generate.Token, error]) {
	m := ampc.New("gpt2")
	defer m.Close()
	c.Policy, c.Length = ampc.MixedBF16(), 64
	g, err := generate.New(m, gpt2(), c)
	if err != nil {
		b.Fatal(err)
	}
	tokens := start(g)
	var lock sync.Mutex
	var first, later []float64
	for b.Loop() {
		first, later = nil, nil
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				prompt := make([]int32, 32)
				for k := range prompt {
					prompt[k] = int32(100*i + k)
				}
				last, times := time.Now(), &first
				for _, err := range tokens(prompt) {
					if err != nil {
						b.Error(err)
						return
					}
					lock.Lock()
					*times = append(*times, 1e3*time.Since(last).Seconds())
					lock.Unlock()
					last, times = time.Now(), &later
				}
			})
		}
		group.Wait()
	}
	slices.Sort(first)
	slices.Sort(later)
	b.ReportMetric(first[len(first)/2], "ms-first-median")
	b.ReportMetric(first[len(first)-1], "ms-first-longest")
	b.ReportMetric(later[len(later)/2], "ms-next-median")
	b.ReportMetric(later[len(later)-1], "ms-next-longest")
}
