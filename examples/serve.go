package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"ampc"
)

const (
	features = 16 // numbers of a row
	rowsOnce = 8  // rows that a call takes at most: a step keeps so many sizes compiled
)

// serve is an HTTP server of a model. POST /classify takes rows of 16 numbers as
// JSON and returns the probabilities of four classes for each. All requests share
// the weights; each runs as soon as a worker is free. SERVE=localhost:8080 serves
// there until it is interrupted; without it, eight clients ask some questions.
func serve(w io.Writer) error {
	m := ampc.New("classifier")
	defer m.Close() // waits for requests in flight
	x := m.Input("x", ampc.F32, ampc.Dim("N"), features)
	p := m.Softmax(m.Linear("out", m.Relu(m.Linear("hidden", x, 64)), 4), -1)
	step, err := m.Infer(ampc.InferConfig{Sizes: ampc.Sizes{"N": 1}}, p)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /classify", func(out http.ResponseWriter, r *http.Request) {
		answer, status, err := reply(r.Context(), step, p, http.MaxBytesReader(out, r.Body, 1<<20))
		if err != nil {
			http.Error(out, err.Error(), status)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		_, _ = out.Write(answer) // the client may be gone
	})
	addr := os.Getenv("SERVE")
	asked := addr != ""
	if !asked {
		addr = "localhost:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	if asked {
		fmt.Fprintf(w, "serving at http://%s/classify until interrupted\n", l.Addr())
		select {
		case <-ctx.Done():
			stop() // a second interrupt ends the process
		case err := <-done:
			return err
		}
	} else if err := ask(w, "http://"+l.Addr().String()+"/classify"); err != nil {
		return err
	}
	return server.Shutdown(context.Background()) // answers the requests that it has
}

// reply reads the rows of a request and makes the body of its answer, or says with which status
// it has none.
func reply(ctx context.Context, step *ampc.Step, p ampc.Tensor, body io.Reader) (answer []byte, status int, err error) {
	rows, err := rowsOf(body)
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("a request has at most %d bytes", large.Limit)
	}
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	classes, err := classify(ctx, step, p, rows)
	if err != nil {
		return nil, http.StatusInternalServerError, err
	}
	if answer, err = json.Marshal(classes); err != nil { // JSON has no NaN
		return nil, http.StatusUnprocessableEntity, errors.New("a probability is not finite: the numbers are too large")
	}
	return answer, http.StatusOK, nil
}

// rowsOf reads the rows of a request.
func rowsOf(body io.Reader) ([][]float32, error) {
	var rows [][]float32
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("want a list of rows of %d numbers", features)
	}
	for i, row := range rows {
		if len(row) != features {
			return nil, fmt.Errorf("row %d has %d numbers, want %d", i, len(row), features)
		}
	}
	return rows, nil
}

// classify runs the step for a few rows at a time. The request's context ends it if
// the client goes away.
func classify(ctx context.Context, step *ampc.Step, p ampc.Tensor, rows [][]float32) (classes [][]float32, err error) {
	for len(rows) > 0 && err == nil {
		n := min(len(rows), rowsOnce)
		classes, err = classifyOnce(ctx, step, p, rows[:n], classes)
		rows = rows[n:]
	}
	return classes, err
}

// classifyOnce appends the classes of rows.
func classifyOnce(ctx context.Context, step *ampc.Step, p ampc.Tensor, rows, classes [][]float32) ([][]float32, error) {
	sized, err := step.For(ampc.Sizes{"N": int64(len(rows))})
	if err != nil {
		return nil, err
	}
	var x []float32
	for _, row := range rows {
		x = append(x, row...)
	}
	r, err := sized.Run(ctx, ampc.Feed{"x": x})
	if err != nil {
		return nil, err
	}
	defer r.Release() // its memory serves a later request
	h, err := r.Value(p)
	if err != nil {
		return nil, err
	}
	for all := h.Floats(); len(all) > 0; all = all[4:] {
		classes = append(classes, all[:4])
	}
	return classes, nil
}

// ask has eight clients send the same rows, one, two or three at a time, and
// compares what comes back.
func ask(w io.Writer, url string) error {
	row := append([]float32{1, -1, 2}, make([]float32, features-3)...)
	var mu sync.Mutex
	answers := map[string]int{}
	var failed error
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := 1; n <= 3; n++ {
				got, err := post(url, [][]float32{row, row, row}[:n])
				mu.Lock()
				for _, classes := range got {
					answers[fmt.Sprint(classes)]++
				}
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for _, times := range answers {
		fmt.Fprintf(w, "%d rows of 24 requests: %d different answers\n", times, len(answers))
	}
	return failed
}

func post(url string, rows [][]float32) (classes [][]float32, err error) {
	body, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	r, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.Body)
		return nil, fmt.Errorf("%s: %s", r.Status, text)
	}
	return classes, json.NewDecoder(r.Body).Decode(&classes)
}
