package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ampc"
	"ampc/runtime/cpu"
)

// serving measures how many requests a second one loaded model answers, and how long a request takes.
type serving struct {
	models  string
	clients int
	http    bool
	rounds  int
	each    time.Duration
}

func (b *serving) flags(f *flag.FlagSet) {
	f.StringVar(&b.models, "models", "squeezenet,resnet50", "which of resnet50, squeezenet, bert")
	f.IntVar(&b.clients, "clients", 8, "goroutines that ask at the same time")
	f.BoolVar(&b.http, "http", false, "ask over HTTP, on this machine")
	f.IntVar(&b.rounds, "rounds", 3, "rounds; in each, every set-up runs in turn")
	f.DurationVar(&b.each, "each", 3*time.Second, "how long a set-up runs in a round")
}

// setup is a number of goroutines that ask a session of so many threads.
type setup struct {
	threads, clients int
	ask              func() ([]byte, error)
	took             []time.Duration // of requests, in all rounds
	rates            []float64       // requests a second, by round
}

func (b *serving) run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "ampc-serve")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(out, "model       threads clients  requests/s   p50 ms   p99 ms  against 1 thread, 1 client  against its threads, 1 client")
	for name := range strings.SplitSeq(b.models, ",") {
		s, ok := subjects()[name]
		if !ok {
			return fmt.Errorf("no model %q", name)
		}
		path := filepath.Join(dir, name+".onnx")
		if err := s.graph().WriteFile(path); err != nil {
			return err
		}
		if err := b.model(out, name, path, s.feed(1)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// model runs all set-ups of a model in turn.
func (b *serving) model(out io.Writer, name, path string, feed ampc.Feed) error {
	var all []*setup
	var want []byte
	for _, threads := range []int{1, 2} {
		ask, end, err := b.open(path, threads, feed)
		if err != nil {
			return err
		}
		defer end()
		for _, clients := range []int{1, b.clients} {
			all = append(all, &setup{threads: threads, clients: clients, ask: ask})
		}
		got, err := ask()
		if err != nil {
			return err
		}
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%d threads give other bits", threads)
		}
	}
	for round := range b.rounds + 1 {
		for _, x := range all {
			if err := x.round(b.each, round > 0, want); err != nil { // the first warms up
				return err
			}
		}
	}
	for i, x := range all {
		slices.Sort(x.took)
		at := func(p int) float64 { return x.took[len(x.took)*p/100].Seconds() * 1e3 }
		if _, err := fmt.Fprintf(out, "%-11s %7d %7d  %10.1f  %7.1f  %7.1f  %27.2f  %29.2f\n", name, x.threads, x.clients, middle(x.rates), at(50), at(99),
			ratio(x.rates, all[0].rates), ratio(x.rates, all[i/2*2].rates)); err != nil {
			return err
		}
	}
	return nil
}

// ratio is the middle of the rounds' ratios.
func ratio(x, y []float64) float64 {
	r := make([]float64, len(x))
	for i := range x {
		r[i] = x[i] / y[i]
	}
	return middle(r)
}

// round asks for a while and compares every answer.
func (x *setup) round(each time.Duration, counts bool, want []byte) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var took []time.Duration
	start := time.Now()
	for range x.clients {
		group.Go(func() {
			for time.Since(start) < each {
				begun := time.Now()
				got, err := x.ask()
				if err == nil && !bytes.Equal(got, want) {
					err = fmt.Errorf("%d clients get other bits", x.clients)
				}
				mu.Lock()
				took = append(took, time.Since(begun))
				if failed == nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if counts {
		x.rates = append(x.rates, float64(len(took))/time.Since(start).Seconds())
		x.took = append(x.took, took...)
	}
	return failed
}

// open makes a session, behind a server if requests go over HTTP, and what asks it.
func (b *serving) open(path string, threads int, feed ampc.Feed) (ask func() ([]byte, error), end func(), err error) {
	backend, err := cpu.Open(threads)
	if err != nil {
		return nil, nil, err
	}
	s, err := ampc.OpenONNX(path, ampc.ONNXRun{Backend: backend})
	if err != nil {
		backend.Close()
		return nil, nil, err
	}
	answer := func(ctx context.Context, f ampc.Feed) ([]byte, error) {
		r, err := s.Run(ctx, f)
		if err != nil {
			return nil, err
		}
		var all []byte
		for _, h := range r.Tensors {
			all = append(all, h.Bytes...)
		}
		return all, nil
	}
	end = func() {
		s.Close()
		backend.Close()
	}
	if !b.http {
		return func() ([]byte, error) { return answer(context.Background(), feed) }, end, nil
	}
	return overHTTP(answer, feed, end)
}

// overHTTP puts a server between who asks and who answers. The body of a request is the elements of the feed's only input.
func overHTTP(answer func(context.Context, ampc.Feed) ([]byte, error), feed ampc.Feed, end func()) (func() ([]byte, error), func(), error) {
	if len(feed) > 1 {
		return nil, nil, fmt.Errorf("over HTTP the model must have one input")
	}
	var name string
	var x ampc.HostTensor
	for n, v := range feed {
		name, x = n, v.(ampc.HostTensor)
	}
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = answer(r.Context(), ampc.Feed{name: ampc.HostTensor{Type: x.Type, Bytes: body}})
		}
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = out.Write(body) // the client may be gone
	})}
	go server.Serve(l)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	url := "http://" + l.Addr().String()
	return func() ([]byte, error) {
			r, err := client.Post(url, "application/octet-stream", bytes.NewReader(x.Bytes))
			if err != nil {
				return nil, err
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if err == nil && r.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", r.Status, body)
			}
			return body, err
		}, func() {
			server.Close()
			end()
		}, nil
}
