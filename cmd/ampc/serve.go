package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"ampc/fit"
	"ampc/ir"
	"ampc/view"
)

// livePage shows a training run in progress.
type livePage struct {
	stream view.Stream
	stop   context.CancelFunc
	ended  chan struct{}
}

// serveRun opens the page of a run and prints its address. The page closes when the run ends.
func (t *trainer) serveRun(ctx context.Context, address string, out io.Writer) error {
	l := &livePage{ended: make(chan struct{})}
	for _, p := range t.curves.points {
		if err := l.stream.Add(t.curves.row(p)); err != nil {
			return err
		}
	}
	training := view.Training{Title: t.curves.title, Live: true, Points: []view.Point{}}
	g := t.step.Graph()
	s, err := view.Listen(address, &view.Page{Title: t.curves.title, Live: &l.stream, Blocks: []view.Block{
		{Name: "training", Make: func() (any, error) { return training, nil }},
		new(view.Layouts).Block("graph", "compiled", g),
	}})
	if err != nil {
		return err
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx)) // stopped by close, after the end of the event stream
	go func() {
		defer close(l.ended)
		s.Run(ctx) // an error of the page does not end training
	}()
	t.live = l
	_, err = fmt.Fprintf(out, "watch it: %s\n", s.Address())
	return err
}

// showLive shows the last step of a run.
func (t *trainer) showLive() error {
	if t.live == nil {
		return nil
	}
	p := t.curves.points[len(t.curves.points)-1]
	return t.live.stream.Add(t.curves.row(p))
}

// close tells the pages that the run has ended and stops the server.
func (l *livePage) close() {
	if l == nil {
		return
	}
	l.stream.End()
	l.stop()
	<-l.ended
}

// runPage is the page of a run that has ended: its curves, from the log in its folder, and
// its step.
func runPage(folder string) (*view.Page, error) {
	path := filepath.Join(folder, curvesLines)
	rows, damaged, err := fit.ReadJSONLines(path)
	switch {
	case err != nil:
		return nil, err
	case damaged > 0:
		return nil, fmt.Errorf("%s:%d: is no line of a run's log", path, damaged)
	}
	t := view.Training{Title: folder, Points: []view.Point{}}
	for _, r := range rows {
		p, err := view.NewPoint(r)
		if err != nil {
			return nil, err
		}
		t.Points = append(t.Points, p)
	}
	p := &view.Page{Title: folder, Blocks: []view.Block{{Name: "training", Make: func() (any, error) { return t, nil }}}}
	path = filepath.Join(folder, graphFile)
	src, err := os.ReadFile(path)
	if err != nil {
		return p, nil // the curves are shown without the step
	}
	g, err := ir.ParseOpaque(path, src)
	if err == nil {
		err = ir.Verify(g, ir.Training)
	}
	if err != nil {
		return nil, err
	}
	p.Blocks = append(p.Blocks, new(view.Layouts).Block("graph", "as trained", g))
	return p, nil
}

// isRun reports whether spec names the folder of a run.
func isRun(spec string) bool {
	info, err := os.Stat(spec)
	return err == nil && info.IsDir() && !strings.HasPrefix(spec, "zoo:")
}
