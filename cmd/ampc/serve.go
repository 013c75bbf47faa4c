package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"ampc"
	"ampc/ir"
	"ampc/view"
)

// live shows a training run while it goes on.
type live struct {
	stream view.Stream
	stop   context.CancelFunc
	ended  chan struct{}
}

// serveRun opens the page of a run and prints its address. The page ends with the run.
func (t *trainer) serveRun(ctx context.Context, address string, out io.Writer) error {
	l := &live{ended: make(chan struct{})}
	for _, p := range t.curves.points {
		l.stream.Add(pagePoint(p.line()))
	}
	var memory int64
	for _, n := range t.step.Program().Arenas {
		memory += n
	}
	training := view.Training{Title: t.curves.title, Unit: t.unit, Memory: memory, Live: true, Points: []view.Point{}}
	g := t.step.Graph()
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address // loopback, unless another host is named
	}
	s, err := view.Listen(address, &view.Page{Title: t.curves.title, Live: &l.stream, Blocks: []view.Block{
		{Name: "training", Make: func() (any, error) { return training, nil }},
		view.GraphBlock("graph", "compiled", g),
	}})
	if err != nil {
		return err
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx)) // close stops it, after the end of the stream
	go func() {
		defer close(l.ended)
		s.Run(ctx) // a page that cannot be served any more does not end the training
	}()
	t.live = l
	_, err = fmt.Fprintf(out, "watch it: %s\n", s.Address())
	return err
}

// add shows the last step of a run.
func (l *live) add(p point, r ampc.Metrics, rate float64) {
	if l == nil {
		return
	}
	x := pagePoint(p.line())
	x.Rate = orNull(rate)
	if norm, err := r.GradNorm(); err == nil {
		x.Norm = orNull(norm)
	}
	l.stream.Add(x)
}

// close tells the pages that the run is over, and stops serving them.
func (l *live) close() {
	if l == nil {
		return
	}
	l.stream.End()
	l.stop()
	<-l.ended
}

func pagePoint(l line) view.Point {
	return view.Point{Step: l.Step, Loss: l.Loss, LR: l.Rate, Scale: l.Scale, Skipped: l.Skipped, HeldOut: l.Held}
}

// runPage is the page of a run that has ended: its curves, from the log in its folder, and
// its step.
func runPage(folder string) (*view.Page, error) {
	text, err := os.ReadFile(filepath.Join(folder, curvesLines))
	if err != nil {
		return nil, missing(filepath.Join(folder, curvesLines), err)
	}
	t := view.Training{Title: folder, Points: []view.Point{}}
	in := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; in.Scan(); n++ {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s:%d: %v", filepath.Join(folder, curvesLines), n, err)
		}
		t.Points = append(t.Points, pagePoint(l))
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, curvesLines), err)
	}
	p := &view.Page{Title: folder, Blocks: []view.Block{{Name: "training", Make: func() (any, error) { return t, nil }}}}
	path := filepath.Join(folder, graphFile)
	src, err := os.ReadFile(path)
	if err != nil {
		return p, nil // the curves are there all the same
	}
	g, err := ir.ParseOpaque(path, src)
	if err == nil {
		err = ir.Verify(g, ir.Training)
	}
	if err != nil {
		return nil, err
	}
	p.Blocks = append(p.Blocks, view.GraphBlock("graph", "as trained", g))
	return p, nil
}

// isRun reports whether spec names the folder of a run.
func isRun(spec string) bool {
	info, err := os.Stat(spec)
	return err == nil && info.IsDir() && !strings.HasPrefix(spec, "zoo:")
}
