package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ampc"
	"ampc/internal/onnxmodel"
	"ampc/internal/ort"
	"ampc/runtime/cpu"
)

//go:embed ort/time.js
var ortScript string

// inference compares inference with onnxruntime, and bf16 with f32.
type inference struct {
	models, threads, batches string
	rounds, runs             int
	decode                   bool
}

func (b *inference) flags(f *flag.FlagSet) {
	f.StringVar(&b.models, "models", "resnet50,squeezenet,bert,gpt2", "which of them")
	f.StringVar(&b.threads, "threads", "1,2", "numbers of threads")
	f.StringVar(&b.batches, "batches", "1,8", "batches")
	f.IntVar(&b.rounds, "rounds", 5, "rounds; in each, every contender runs in turn")
	f.IntVar(&b.runs, "runs", 3, "runs of a contender in a round; the fastest counts")
	f.BoolVar(&b.decode, "decode", false, "decode lengths 1 to 128 by GPT-2 instead, and say how much of it is compiling")
}

// subject is a network of the comparison.
type subject struct {
	graph func() *onnxmodel.Graph
	feed  func(batch int) ampc.Feed
}

func subjects() map[string]subject {
	picture := func(batch int) ampc.Feed { return ampc.Feed{"x": wave(batch, 3, 224, 224)} }
	tokens := func(inputs ...string) func(batch int) ampc.Feed {
		return func(batch int) ampc.Feed {
			f := ampc.Feed{}
			for _, name := range inputs {
				f[name] = ones(batch, 128)
			}
			return f
		}
	}
	return map[string]subject{
		"resnet50":   {onnxmodel.ResNet50, picture},
		"squeezenet": {onnxmodel.SqueezeNet, picture},
		"bert":       {func() *onnxmodel.Graph { return onnxmodel.BERT(onnxmodel.BERTBase) }, tokens("input_ids", "attention_mask", "token_type_ids")},
		"gpt2": {func() *onnxmodel.Graph { return onnxmodel.GPT2(onnxmodel.GPT2Small) }, func(batch int) ampc.Feed {
			f := tokens("input_ids", "attention_mask")(batch)
			withPast(f, batch, 0)
			return f
		}},
	}
}

// withPast feeds GPT-2 keys and values of a past.
func withPast(f ampc.Feed, batch, past int) {
	for i := range onnxmodel.GPT2Small.Layers {
		for _, kind := range []string{"key", "value"} {
			f[fmt.Sprintf("past_key_values.%d.%s", i, kind)] = wave(batch, 12, past, 64)
		}
	}
}

func wave(dims ...int) ampc.HostTensor {
	t := ampc.TypeOf(ampc.F32, dims...)
	x := make([]float32, t.IR().Shape.Elements())
	for i := range x {
		x[i] = float32(i%17)/8 - 1
	}
	return must(ampc.NewHostTensor(t, x))
}

func ones(dims ...int) ampc.HostTensor {
	t := ampc.TypeOf(ampc.I64, dims...)
	x := make([]int64, t.IR().Shape.Elements())
	for i := range x {
		x[i] = 1
	}
	return must(ampc.NewHostTensor(t, x))
}

// must is for values made for their types.
func must(h ampc.HostTensor, err error) ampc.HostTensor {
	if err != nil {
		panic(err)
	}
	return h
}

func (b *inference) run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "ampc-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if b.decode {
		return b.decodes(dir, out)
	}
	fmt.Fprintln(out, "ours: sessions (OpenONNX), which multiply batch norms into the convolutions before them")
	fmt.Fprintln(out, "model batch threads  onnxruntime ms  f32 ms  bf16 ms  f32 against onnxruntime  bf16 against f32")
	for name := range strings.SplitSeq(b.models, ",") {
		s, ok := subjects()[name]
		if !ok {
			return fmt.Errorf("no model %q", name)
		}
		path := filepath.Join(dir, name+".onnx")
		if err := s.graph().WriteFile(path); err != nil {
			return err
		}
		for batch := range strings.SplitSeq(b.batches, ",") {
			for threads := range strings.SplitSeq(b.threads, ",") {
				if err := b.compare(out, name, path, s, atoi(batch), atoi(threads)); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// atoi is a number of a flag, 1 where it is none.
func atoi(s string) int {
	n := 1
	if _, err := fmt.Sscan(s, &n); err != nil {
		return 1
	}
	return n
}

// rest is how long every contender waits for its turn: onnxruntime's threads still poll for work, and so take a
// processor, some time after their last.
const rest = 250 * time.Millisecond

// contender runs a model some times and returns the fastest time in ms.
type contender func(runs int) (float64, error)

// compare times the contenders in turn. Times are medians over rounds; ratios are
// medians of the rounds' ratios, as what else runs on the machine changes meanwhile.
func (b *inference) compare(out io.Writer, name, path string, s subject, batch, threads int) error {
	feed := s.feed(batch)
	var all []contender
	end := func() {}
	if theirs, stop, err := openRuntime(path, threads, feed); err == nil {
		all, end = append(all, theirs), stop
	} else {
		fmt.Fprintln(out, "without onnxruntime:", err)
		all = append(all, func(int) (float64, error) { return 0, nil })
	}
	defer end()
	for _, policy := range []ampc.Policy{{}, ampc.MixedBF16()} {
		ours, stop, err := openOurs(path, threads, feed, policy)
		if err != nil {
			return err
		}
		defer stop()
		all = append(all, ours)
	}
	times := make([][]float64, len(all))
	var against, low []float64
	for round := range b.rounds + 1 {
		var now []float64
		for i, c := range all {
			time.Sleep(rest)
			ms, err := c(b.runs)
			if err != nil {
				return err
			}
			if now = append(now, ms); round > 0 {
				times[i] = append(times[i], ms)
			}
		}
		if round > 0 { // the first warms up
			against, low = append(against, now[0]/now[1]), append(low, now[1]/now[2])
		}
	}
	_, err := fmt.Fprintf(out, "%-10s %5d %7d  %14.1f  %6.1f  %7.1f  %23.2f  %16.2f\n", name, batch, threads, middle(times[0]), middle(times[1]), middle(times[2]), middle(against), middle(low))
	return err
}

func middle(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// openOurs prepares a session.
func openOurs(path string, threads int, feed ampc.Feed, p ampc.Policy) (contender, func(), error) {
	b, err := cpu.Open(threads)
	if err != nil {
		return nil, nil, err
	}
	s, err := ampc.OpenONNX(path, ampc.ONNXRun{Policy: p, Backend: b})
	if err != nil {
		b.Close()
		return nil, nil, err
	}
	run := func(runs int) (float64, error) {
		best := 0.0
		for i := range runs {
			start := time.Now()
			if _, err := s.Run(context.Background(), feed); err != nil {
				return 0, err
			}
			if ms := time.Since(start).Seconds() * 1e3; i == 0 || ms < best {
				best = ms
			}
		}
		return best, nil
	}
	return run, func() {
		s.Close()
		b.Close()
	}, nil
}

// openRuntime prepares a session of onnxruntime's.
func openRuntime(path string, threads int, feed ampc.Feed) (contender, func(), error) {
	dir := os.Getenv(ort.Env)
	if dir == "" {
		return nil, nil, ort.ErrAbsent
	}
	c := exec.Command("node", "-e", ortScript)
	c.Dir = dir
	in, err := c.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	pipe, err := c.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(); err != nil {
		return nil, nil, err
	}
	replies := bufio.NewReaderSize(pipe, 1<<16)
	ask := func(job any) (times []float64, err error) {
		if err := json.NewEncoder(in).Encode(job); err != nil {
			return nil, err
		}
		line, err := replies.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("onnxruntime ended: %w", err)
		}
		var r struct {
			Error string
			Times []float64
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		if r.Error != "" {
			return nil, fmt.Errorf("onnxruntime: %s", r.Error)
		}
		return r.Times, nil
	}
	end := func() {
		in.Close()
		_ = c.Wait() // it only ends
	}
	inputs := map[string]ort.Tensor{}
	for name, v := range feed {
		h := v.(ampc.HostTensor)
		x := ort.Tensor{Type: map[ampc.DType]string{ampc.F32: "float32", ampc.I64: "int64"}[h.Type.DType()], Dims: []int64{}, Data: h.Bytes}
		for _, d := range h.Type.Shape() {
			x.Dims = append(x.Dims, int64(d))
		}
		inputs[name] = x
	}
	if _, err := ask(map[string]any{"model": path, "threads": threads, "inputs": inputs}); err != nil {
		end()
		return nil, nil, err
	}
	return func(runs int) (float64, error) {
		times, err := ask(map[string]int{"runs": runs})
		if err != nil {
			return 0, err
		}
		return slices.Min(times), nil
	}, end, nil
}

// decodes decodes by GPT-2, one token at a time.
func (b *inference) decodes(dir string, out io.Writer) error {
	path := filepath.Join(dir, "gpt2.onnx")
	if err := onnxmodel.GPT2(onnxmodel.GPT2Small).WriteFile(path); err != nil {
		return err
	}
	s, err := ampc.OpenONNX(path, ampc.ONNXRun{})
	if err != nil {
		return err
	}
	defer s.Close()
	for pass := range 2 {
		feed := ampc.Feed{}
		withPast(feed, 1, 0)
		start, before := time.Now(), s.Compiling()
		for n := range 128 {
			feed["input_ids"], feed["attention_mask"] = ones(1, 1), ones(1, n+1)
			r, err := s.Run(context.Background(), feed)
			if err != nil {
				return err
			}
			for name, h := range r.Tensors {
				if past, ok := strings.CutPrefix(name, "present."); ok {
					feed["past_key_values."+past] = h
				}
			}
		}
		all, compiling := time.Since(start), s.Compiling()-before
		programs, bytes := s.Programs()
		if _, err := fmt.Fprintf(out, "pass %d: lengths 1 to 128 in %.2f s, %.2f s of it compiling: %.1f %%; %d programs of %.1f MB\n", pass+1, all.Seconds(), compiling.Seconds(), 100*compiling.Seconds()/all.Seconds(), programs, float64(bytes)/1e6); err != nil {
			return err
		}
	}
	return nil
}
