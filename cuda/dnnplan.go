//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// Plans compiles a graph with the engines that work.
func (n *dnnBackend) Plans(g *DnnGraph, o DnnOptions) ([]DnnPlan, error) {
	if err := g.Allows(n.Version()); err != nil {
		return nil, err
	}
	d := &describer{n: n}
	tensors := map[tensorKey]uintptr{}
	var ops []uintptr
	for i := range g.Nodes {
		ops = append(ops, d.node(&g.Nodes[i], tensors))
	}
	graph := d.create(dGraph)
	d.set(graph, aGraphHandle, tHandle, 1, unsafe.Pointer(&n.handle))
	d.refer(graph, aGraphOps, ops...)
	d.finalize(graph)
	if d.err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: %s graph: %w", g.Name, d.err), d.drop())
	}
	f := &planner{d: d, g: g, o: o, most: max(o.Most, 1)}
	for _, h := range []struct {
		name string
		mode int32
	}{{"a", heurA}, {"fallback", heurFallback}} {
		if len(f.plans) == 0 {
			f.engines(graph, h.name, h.mode)
		}
	}
	if len(f.plans) > 0 {
		f.shared.users = len(f.plans)
		return f.plans, nil
	}
	if f.failed == nil {
		f.failed = &Error{Lib: libDNN, Call: "cudnnBackendFinalize", Code: dnnNotSupported, Name: "no engine", Text: g.Name}
	}
	return nil, errors.Join(f.failed, d.drop())
}

// planner collects the plans of a graph.
type planner struct {
	d      *describer // of the graph and its configurations
	g      *DnnGraph
	o      DnnOptions
	most   int
	plans  []DnnPlan
	shared sharedGraph
	failed error // of the first engine that could not be used
}

// sharedGraph destroys the descriptors of a graph with the last of its plans.
type sharedGraph struct {
	d     *describer
	users int
}

// maxEngines is how many candidates of each heuristic are considered.
const maxEngines = 16

// engines asks a heuristic and compiles its configurations.
func (f *planner) engines(graph uintptr, name string, mode int32) {
	lib := f.d.n.lib
	heur := &describer{n: f.d.n}
	h := heur.create(dEngineHeur)
	heur.refer(h, aHeurGraph, graph)
	heur.enum(h, aHeurMode, tHeurMode, mode)
	heur.finalize(h)
	configs := make([]uintptr, maxEngines)
	for i := range configs {
		configs[i] = heur.create(dEngineCfg)
	}
	var got int64
	if heur.err == nil {
		heur.err = lib.status("cudnnBackendGetAttribute", h, aHeurResults, tDesc, maxEngines,
			uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&configs[0])))
	}
	f.d.all = append(f.d.all, heur.all...) // plans keep their configurations
	if heur.err != nil {
		f.note(heur.err)
		return
	}
	for i, c := range configs[:min(max(int(got), 0), maxEngines)] {
		index, notes, err := f.d.engine(c)
		if err != nil || f.o.Avoids(f.g, notes) {
			continue
		}
		engine := fmt.Sprintf("%s%d:%d", name, i, index)
		if f.o.Engine != "" && f.o.Engine != engine {
			continue
		}
		p, err := f.d.plan(c, f.o.Workspace)
		if err != nil {
			f.note(err)
			continue
		}
		f.shared.d = f.d
		p.shared, p.engine, p.varies = &f.shared, engine, slices.Contains(notes, NoteNondeterministic)
		if f.plans = append(f.plans, p.bind(f.g)); len(f.plans) == f.most {
			return
		}
	}
}

// note keeps the first error. An installation that does not work counts more than an engine that
// does not support the graph.
func (f *planner) note(err error) {
	if f.failed == nil || errors.Is(err, ErrBroken) && !errors.Is(f.failed, ErrBroken) {
		f.failed = err
	}
}

// engine is the number of a configuration's engine, and its notes.
func (d *describer) engine(config uintptr) (index int64, notes []int32, err error) {
	lib := d.n.lib
	e := &describer{n: d.n}
	engine := e.create(dEngine)
	defer func() { err = errors.Join(err, e.drop()) }()
	var got int64
	if e.err != nil {
		return 0, nil, e.err
	}
	if err := lib.status("cudnnBackendGetAttribute", config, aCfgEngine, tDesc, 1, uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&engine))); err != nil {
		return 0, nil, err
	}
	if err := lib.status("cudnnBackendGetAttribute", engine, aEngineIndex, tInt64, 1, uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&index))); err != nil {
		return 0, nil, err
	}
	notes = make([]int32, 8)
	if err := lib.status("cudnnBackendGetAttribute", engine, aEngineNotes, tNote, uintptr(len(notes)), uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&notes[0]))); err != nil {
		return 0, nil, err
	}
	return index, notes[:min(max(int(got), 0), len(notes))], nil
}

// plan compiles one configuration.
func (d *describer) plan(config uintptr, limit int64) (*dnnPlan, error) {
	e := &describer{n: d.n}
	p := e.create(dPlan)
	e.set(p, aPlanHandle, tHandle, 1, unsafe.Pointer(&d.n.handle))
	e.refer(p, aPlanCfg, config)
	e.finalize(p)
	var size, got int64
	if e.err == nil {
		e.err = d.n.lib.status("cudnnBackendGetAttribute", p, aPlanWorkspace, tInt64, 1, uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&size)))
	}
	if e.err == nil && size > limit {
		e.err = &Error{Lib: libDNN, Call: "cudnnBackendFinalize", Code: dnnNotSupported, Name: "no engine", Text: fmt.Sprintf("it needs %d bytes of workspace, %d are allowed", size, limit)}
	}
	if e.err != nil {
		return nil, errors.Join(e.err, e.drop())
	}
	return &dnnPlan{d: e, plan: p, workspace: size}, nil
}

// dnnPlan is a compiled graph with its variant pack.
type dnnPlan struct {
	d         *describer // of the plan
	shared    *sharedGraph
	engine    string
	varies    bool
	plan      uintptr
	workspace int64
	ids       []int64
	feeds     int
	consts    []float32 // by-value tensors, read from host memory by the call that executes
}

func (p *dnnPlan) bind(g *DnnGraph) *dnnPlan {
	for _, t := range g.Feeds {
		p.ids = append(p.ids, t.UID)
	}
	p.feeds = len(p.ids)
	for _, t := range g.Consts {
		p.ids = append(p.ids, t.UID)
		p.consts = append(p.consts, t.Value)
	}
	return p
}

// Engine names the heuristic, the place in its list and the engine.
func (p *dnnPlan) Engine() string { return p.engine }

// Varies reports whether sums may change from run to run.
func (p *dnnPlan) Varies() bool { return p.varies }

// Workspace is the bytes Run needs.
func (p *dnnPlan) Workspace() int64 { return p.workspace }

// Run executes the graph on a stream.
func (p *dnnPlan) Run(feeds []Ptr, workspace Ptr, s Stream) error {
	if len(feeds) != p.feeds {
		return fmt.Errorf("cuda: graph takes %d tensors, %d given", p.feeds, len(feeds))
	}
	ptrs := make([]uintptr, 0, len(p.ids))
	for _, f := range feeds {
		ptrs = append(ptrs, uintptr(f))
	}
	for i := range p.consts {
		ptrs = append(ptrs, uintptr(unsafe.Pointer(&p.consts[i])))
	}
	e := &describer{n: p.d.n}
	pack := e.create(dPack)
	e.ints(pack, aPackIDs, p.ids...)
	e.set(pack, aPackPtrs, tPtr, len(ptrs), unsafe.Pointer(&ptrs[0]))
	ws := uintptr(workspace)
	e.set(pack, aPackWorkspace, tPtr, 1, unsafe.Pointer(&ws))
	e.finalize(pack)
	if e.err == nil {
		var handle uintptr
		if handle, e.err = p.d.n.on(s); e.err == nil {
			e.err = p.d.n.lib.status("cudnnBackendExecute", handle, p.plan, pack)
		}
	}
	runtime.KeepAlive(p.consts)
	return errors.Join(e.err, e.drop())
}

// Close destroys the plan, and the graph with its last plan.
func (p *dnnPlan) Close() error {
	err := p.d.drop()
	if p.shared.users--; p.shared.users == 0 {
		err = errors.Join(err, p.shared.d.drop())
	}
	return err
}
