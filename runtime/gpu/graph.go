package gpu

import (
	"cmp"
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/lower"
)

// variant is the key of a captured graph: everything that a step's launches depend
// on.
type variant struct {
	micro  int  // micro-batches
	casts  bool // variables are first cast to their 16-bit copies
	stages stages
}

// stages says which parts of a step are issued.
type stages uint8

const (
	allStages stages = iota
	gradients        // prepare and micro, with the flags noted after each micro-batch
	update
)

// run issues one step. The first time it issues launch by launch, so that libraries load what they
// need; later it launches a graph.
func (e *Exec) run(v variant) error {
	issue := func() error { return e.issueVariant(v) }
	if err := e.b.clocked(func() error { return e.timeAll(issue) }); err != nil || v.stages == gradients {
		return err
	}
	e.warm = true
	e.made(v.casts)
	return nil
}

func (e *Exec) issueVariant(v variant) error {
	if e.b.eager || !e.warm || e.profiled() {
		return e.launches(v)
	}
	g, ok := e.graphs[v]
	if !ok {
		var err error
		if g, err = e.capture(v); err != nil {
			return fmt.Errorf("capturing the step: %w", err)
		}
		e.graphs[v] = g
	}
	return e.b.d.LaunchGraph(g, e.b.stream())
}

// capture makes a graph of the step's launches.
func (e *Exec) capture(v variant) (cuda.GraphExec, error) {
	d := e.b.d
	if err := d.BeginCapture(e.b.stream()); err != nil {
		return 0, err
	}
	err := e.launches(v)
	g, end := d.EndCapture(e.b.stream())
	if err != nil && end == nil {
		end = d.FreeGraph(g)
	}
	if err := cmp.Or(err, end); err != nil {
		return 0, err
	}
	x, err := d.Instantiate(g)
	return x, errors.Join(err, d.FreeGraph(g))
}

// launches issues everything a step does between its inputs and its results.
func (e *Exec) launches(v variant) error {
	if v.stages != update {
		if err := e.gradients(v); err != nil || v.stages == gradients {
			return err
		}
	}
	if err := e.part(lower.Update, true); err != nil {
		return err
	}
	for i, r := range e.results {
		if r.bytes == 0 {
			continue
		}
		if err := e.b.d.Copy(e.last+cuda.Ptr(r.at), e.at[e.p.Outputs[i].Buffer], r.bytes, e.b.stream()); err != nil {
			return fmt.Errorf("result %s: %w", e.p.Outputs[i].Name, err)
		}
	}
	return nil
}

// gradients issues prepare, and micro for every micro-batch.
func (e *Exec) gradients(v variant) error {
	if err := e.part(lower.Prepare, v.casts); err != nil {
		return err
	}
	for i := range v.micro {
		if v.micro > 1 && e.inputBytes() > 0 {
			if err := e.b.d.Copy(e.arena, e.feedAt(i, v.micro), e.inputBytes(), e.b.stream()); err != nil {
				return fmt.Errorf("inputs of micro-batch %d: %w", i, err)
			}
		}
		if err := e.microBatch(i, v.stages == gradients); err != nil {
			return err
		}
	}
	return nil
}

// microBatch issues micro, and notes the flags of micro-batch i if it is asked to.
func (e *Exec) microBatch(i int, noted bool) error {
	if !noted {
		return e.part(lower.Micro, true)
	}
	return errors.Join(e.clear(), e.part(lower.Micro, true), e.note(i))
}

// part issues one part's steps in order. Its streams start after the end of the
// part before, and the first stream ends after all others.
func (e *Exec) part(part lower.Part, casts bool) error {
	streams := 1
	for i := range e.steps[part] {
		if !e.single {
			streams = max(streams, e.steps[part][i].stream+1)
		}
	}
	if err := e.fork(streams); err != nil {
		return err
	}
	for i := range e.steps[part] {
		s := &e.steps[part][i]
		if err := e.step(s, casts || s.fresh == nil); err != nil {
			_ = e.join(streams) // what was issued ends before the next step; where that fails, err says more
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return e.join(streams)
}

// step issues one step after the steps that it waits for, and signals the steps that wait for it.
func (e *Exec) step(s *bound, run bool) error {
	on := e.on(s)
	wait, record := s.wait, s.record
	if e.single {
		wait, record = nil, nil
	}
	for _, w := range wait {
		if err := e.b.d.Wait(on.stream, w); err != nil {
			return err
		}
	}
	if run {
		err := e.timed(s, func() error {
			return e.b.hold(s.touches, func() error { return s.run(on) })
		})
		if err != nil {
			return err
		}
	}
	for _, r := range record {
		if err := e.b.d.Record(r, on.stream); err != nil {
			return err
		}
	}
	return nil
}

// on is the stream of a step, with the workspace of the stream that the Program names.
func (e *Exec) on(s *bound) workStream {
	on := e.b.streams[s.stream]
	if e.single {
		on.stream = e.b.stream()
	}
	return on
}

// fork makes the other streams wait for the first.
func (e *Exec) fork(streams int) error {
	if streams == 1 {
		return nil
	}
	err := e.b.d.Record(e.edge, e.b.stream())
	for _, l := range e.b.streams[1:streams] {
		err = errors.Join(err, e.b.d.Wait(l.stream, e.edge))
	}
	return err
}

// join makes the first stream wait for the others.
func (e *Exec) join(streams int) error {
	var err error
	for _, l := range e.b.streams[1:streams] {
		err = errors.Join(err, e.b.d.Record(e.edge, l.stream), e.b.d.Wait(e.b.stream(), e.edge))
	}
	return err
}
