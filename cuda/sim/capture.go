package sim

import (
	"time"

	"ampc/cuda"
)

// graph is the record of a capture: operations, event records and waits in program order, on
// numbered lanes. Lane 0 is the captured stream.
type graph struct {
	origin *lane
	lanes  []*lane       // captured streams
	number map[*lane]int // their places
	steps  []step
	marks  map[*event]int // event to the number of its latest record
	nrec   int
	replay []*lane // lanes at replay

	spoiled string // by this call, which is not allowed in a capture
}

type step struct {
	lane   int
	op     *op // or:
	record int // 1, 2, …
	wait   int
}

func (g *graph) enter(l *lane) {
	if _, ok := g.number[l]; !ok {
		g.number[l] = len(g.lanes)
		g.lanes = append(g.lanes, l)
	}
}

func (g *graph) add(l *lane, o op) { g.steps = append(g.steps, step{lane: g.number[l], op: &o}) }

func (g *graph) record(l *lane, e *event) {
	g.nrec++
	g.marks[e] = g.nrec
	g.steps = append(g.steps, step{lane: g.number[l], record: g.nrec})
}

func (g *graph) wait(l *lane, e *event) {
	g.steps = append(g.steps, step{lane: g.number[l], wait: g.marks[e]})
}

// BeginCapture starts recording.
func (d *Device) BeginCapture(s cuda.Stream) error {
	const call = "cuStreamBeginCapture_v2"
	l, err := d.lane(call, s)
	if err != nil {
		return err
	}
	switch {
	case s == cuda.LegacyStream:
		return d.fail(call, codeCaptureUnsupported, "the legacy stream cannot be captured")
	case l.graph != nil:
		return d.fail(call, cuda.CodeCaptureInvalid, "the stream is being captured already")
	}
	l.graph = &graph{origin: l, number: map[*lane]int{}, marks: map[*event]int{}}
	l.graph.enter(l)
	return nil
}

// EndCapture ends recording; streams that joined must have been joined back by an event.
func (d *Device) EndCapture(s cuda.Stream) (cuda.Graph, error) {
	const call = "cuStreamEndCapture"
	l, err := d.lane(call, s)
	if err != nil {
		return 0, err
	}
	g := l.graph
	if g == nil || g.origin != l {
		return 0, d.fail(call, cuda.CodeCaptureInvalid, "capture did not begin on this stream")
	}
	for _, x := range g.lanes {
		x.graph = nil
	}
	for _, e := range d.events {
		if e.graph == g {
			e.graph, e.known = nil, nil
		}
	}
	if g.spoiled != "" {
		return 0, d.fail(call, cuda.CodeCaptureInvalid, "%s was called, which is not allowed", g.spoiled)
	}
	if name := g.unjoined(); name != "" {
		return 0, d.fail(call, cuda.CodeCaptureUnjoined, "work on %s is not joined back", name)
	}
	h := cuda.Graph(d.handle())
	d.Stats.Captures++
	d.graphs[h] = g
	return h, nil
}

// unjoined returns a lane whose last operation lane 0 does not wait for.
func (g *graph) unjoined() string {
	known := make([]clock, len(g.lanes))
	at := map[int]clock{}
	for i := range known {
		known[i] = clock{}
	}
	for n, s := range g.steps {
		switch {
		case s.op != nil:
			known[s.lane][s.lane] = n + 1
		case s.record > 0:
			at[s.record] = known[s.lane].copy()
		default:
			known[s.lane].join(at[s.wait])
		}
	}
	for i := range known {
		if known[0][i] < known[i][i] {
			return g.lanes[i].name
		}
	}
	return ""
}

// Nodes counts the operations.
func (d *Device) Nodes(h cuda.Graph) (int, error) {
	const call = "cuGraphGetNodes"
	g := d.graphs[h]
	if g == nil {
		return 0, d.fail(call, cuda.CodeInvalidHandle, "no such graph")
	}
	n := 0
	for _, s := range g.steps {
		if s.op != nil {
			n++
		}
	}
	return n, d.ready(call)
}

// Instantiate makes a graph launchable.
func (d *Device) Instantiate(h cuda.Graph) (cuda.GraphExec, error) {
	const call = "cuGraphInstantiateWithFlags"
	if err := d.outside(call); err != nil {
		return 0, err
	}
	if err := d.fault(call); err != nil {
		return 0, err
	}
	g := d.graphs[h]
	if g == nil {
		return 0, d.fail(call, cuda.CodeInvalidHandle, "no such graph")
	}
	for _, l := range g.lanes {
		g.replay = append(g.replay, d.newLane("graph, "+l.name))
	}
	e := cuda.GraphExec(d.handle())
	d.execs[e] = g
	return e, nil
}

// FreeGraph destroys a graph.
func (d *Device) FreeGraph(h cuda.Graph) error {
	const call = "cuGraphDestroy"
	if d.graphs[h] == nil {
		return d.fail(call, cuda.CodeInvalidHandle, "no such graph")
	}
	delete(d.graphs, h)
	return d.ready(call)
}

// FreeExec destroys an executable graph.
func (d *Device) FreeExec(e cuda.GraphExec) error {
	const call = "cuGraphExecDestroy"
	if d.execs[e] == nil {
		return d.fail(call, cuda.CodeInvalidHandle, "no such graph")
	}
	delete(d.execs, e)
	return d.ready(call)
}

// LaunchGraph replays a graph. Its lanes start at the current end of the stream, and the stream
// continues from the end of lane 0.
func (d *Device) LaunchGraph(e cuda.GraphExec, s cuda.Stream) error {
	const call = "cuGraphLaunch"
	l, err := d.lane(call, s)
	if err != nil {
		return err
	}
	g := d.execs[e]
	if g == nil {
		return d.fail(call, cuda.CodeInvalidHandle, "no such graph")
	}
	if l.graph != nil {
		return d.fail(call, codeCaptureUnsupported, "graphs inside graphs are not simulated")
	}
	d.Stats.GraphLaunches++
	l.known.join(d.ticks)
	start := l.known.copy()
	for _, r := range g.replay { // launches of one graph follow each other
		start.join(r.known)
	}
	d.issued(l)
	for _, r := range g.replay {
		r.known, r.now = start.copy(), l.now
	}
	at, times := map[int]clock{}, map[int]time.Duration{}
	for _, st := range g.steps {
		r := g.replay[st.lane]
		switch {
		case st.op != nil:
			if err := d.execute(r, *st.op); err != nil {
				return err
			}
		case st.record > 0:
			at[st.record], times[st.record] = r.known.copy(), r.now
		default:
			r.known.join(at[st.wait])
			r.now = max(r.now, times[st.wait])
		}
	}
	l.now = g.replay[0].now
	l.known.join(g.replay[0].known)
	return nil
}
