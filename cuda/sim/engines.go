package sim

import (
	"fmt"
	"slices"

	"ampc/cuda"
)

// Engine is one of cuDNN's engines.
type Engine struct {
	Index     int64
	Notes     []int32 // such as cuda.NoteNondeterministic
	Times     float64 // what it takes, of the time of the device's model
	Workspace int64
	Parts     int // in which it adds
	Code      int // with which it does not compile; 0: it does
}

// graphSpace is the size of the smallest workspace of a simulated engine, which overwrites it.
const graphSpace = 1 << 10

// defaultEngines are those of a device by default, in the order of its heuristics: the first is not the
// fastest, and the fastest are those that are not to be used.
var defaultEngines = []Engine{
	{Index: 11, Notes: []int32{cuda.NoteDownConvert}, Times: 0.3, Workspace: graphSpace, Parts: 1},
	{Index: 12, Times: 1, Workspace: graphSpace, Parts: 1},
	{Index: 13, Notes: []int32{cuda.NoteTensorCore}, Times: 0.5, Workspace: 2 * graphSpace, Parts: 2},
	{Index: 14, Times: 0.8, Workspace: 4 * graphSpace, Parts: 4},
	{Index: 15, Notes: []int32{cuda.NoteTensorCore, cuda.NoteNondeterministic}, Times: 0.48, Workspace: graphSpace, Parts: 3},
	{Index: 16, Notes: []int32{cuda.NoteTensorCore, cuda.NoteShortSums}, Times: 0.4, Workspace: graphSpace, Parts: 1},
}

// Plans makes plans for a graph that no rule refuses.
func (n *Dnn) Plans(g *cuda.DnnGraph, o cuda.DnnOptions) ([]cuda.DnnPlan, error) {
	if err := g.Allows(n.Version()); err != nil {
		return nil, err
	}
	rules := attentionRules
	if g.Nodes[0].Conv != nil {
		rules = convRules
	}
	for _, r := range rules {
		if wrong := r.broken(g, n.d.opt); wrong != "" {
			return nil, dnnError(r.status, "%s: %s", r.name, wrong)
		}
	}
	if part := "engines_runtime_compiled"; len(g.Nodes) > 1 && n.d.lacks(part) {
		return nil, dnnError(3009, "libcudnn_%s is missing", part)
	}
	var plans []cuda.DnnPlan
	failed := dnnError(3000, "no engine for %s", g.Name)
	for i, e := range n.d.engines() {
		p := &dnnPlan{d: n.d, g: g, e: e, at: i}
		switch {
		case o.Avoids(g, e.Notes) || o.Engine != "" && o.Engine != p.Engine():
			continue
		case e.Workspace > o.Workspace:
			failed = dnnError(3000, "no engine within %d bytes of workspace", o.Workspace)
			continue
		}
		if err := n.d.fault("cudnnBackendFinalize"); err != nil || e.Code != 0 {
			if err == nil {
				err = dnnError(e.Code, "engine %d of %s", e.Index, g.Name)
			}
			failed = err
			continue
		}
		n.d.Stats.Plans++
		if plans = append(plans, p); len(plans) == max(o.Most, 1) {
			break
		}
	}
	if len(plans) == 0 {
		return nil, failed
	}
	return plans, nil
}

func (d *Device) engines() []Engine {
	if d.opt.Engines != nil {
		return d.opt.Engines
	}
	return defaultEngines
}

type dnnPlan struct {
	d    *Device
	g    *cuda.DnnGraph
	e    Engine
	at   int // in the list of engines
	runs int
}

// Engine names the engine.
func (p *dnnPlan) Engine() string { return fmt.Sprintf("a%d:%d", p.at, p.e.Index) }

// Varies reports whether sums may change from run to run.
func (p *dnnPlan) Varies() bool { return slices.Contains(p.e.Notes, cuda.NoteNondeterministic) }

// Workspace is the number of bytes that Run needs.
func (p *dnnPlan) Workspace() int64 { return p.e.Workspace }

// Close does nothing.
func (p *dnnPlan) Close() error { return nil }

// parts is the number of parts in which this run adds.
func (p *dnnPlan) parts() int {
	p.runs++
	if p.Varies() {
		return max(p.e.Parts, 1) + p.runs%3
	}
	return max(p.e.Parts, 1)
}

// flops are those of the graph's products.
func (p *dnnPlan) flops() float64 {
	total := 0.0
	for i := range p.g.Nodes {
		n := &p.g.Nodes[i]
		switch {
		case n.Conv != nil:
			total += 2 * float64(count(n.Y.Dims)) * float64(count(n.B.Dims[1:]))
		case n.Kind == cuda.DnnMatmul:
			total += 2 * float64(count(n.Y.Dims)) * float64(n.X.Dims[3])
		}
	}
	return total
}
