//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// Descriptor types of the cuDNN backend.
const (
	dConvolution, dEngineCfg, dEngineHeur, dPlan                 = 1, 3, 4, 5
	dOpConv, dOpConvFilter, dOpConvData, dOpPointwise, dGraph    = 10, 11, 12, 13, 15
	dPack, dTensor, dMatmul, dOpMatmul, dReduction, dOpReduction = 16, 17, 18, 19, 21, 22
	dPointwise, dOpReshape                                       = 0, 31
)

// Value types of attributes.
const (
	tHandle, tDataType, tBool, tInt64, tFloat, tPtr        = 0, 1, 2, 3, 4, 6
	tConvMode, tHeurMode, tNote, tPwMode, tDesc, tReduceOp = 7, 8, 11, 14, 15, 18
)

// Attributes.
const (
	aTensorAlign, aTensorType, aTensorDims, aTensorStrides           = 900, 901, 902, 903
	aTensorUID, aTensorVirtual, aTensorByValue                       = 906, 907, 908
	aConvComp, aConvMode, aConvDil, aConvStride, aConvPost, aConvPre = 100, 101, 102, 103, 104, 105
	aConvSpatial                                                     = 106
	aPwMode, aPwPrec, aPwAxis                                        = 0, 1, 9
	aOpPwDesc, aOpPwX, aOpPwB, aOpPwY, aOpPwT                        = 750, 751, 752, 753, 758
	aMatmulComp, aOpMatmulA, aOpMatmulB, aOpMatmulC, aOpMatmulDesc   = 1500, 1520, 1521, 1522, 1523
	aReduceOp, aReduceComp, aOpReduceX, aOpReduceY, aOpReduceDesc    = 1600, 1601, 1610, 1611, 1612
	aReshapeX, aReshapeY                                             = 2200, 2201
	aGraphHandle, aGraphOps                                          = 800, 801
	aHeurMode, aHeurGraph, aHeurResults                              = 200, 201, 202
	aCfgEngine, aEngineNotes                                         = 300, 1303
	aPlanHandle, aPlanCfg, aPlanWorkspace                            = 400, 401, 402
	aPackIDs, aPackPtrs, aPackWorkspace                              = 1000, 1001, 1003
	heurA, heurFallback                                              = 3, 2
	noteTensorCore, noteDownConvert, noteNondeterministic            = 0, 1, 4
	dEngine                                                          = 2
	crossCorrelation                                                 = 1
)

// dnnBackend is cuDNN. It implements Dnn.
type dnnBackend struct {
	lib    *library
	handle uintptr
}

var _ Dnn = (*dnnBackend)(nil)

// OpenDnn opens cuDNN for the bound device. The error wraps ErrUnavailable when it is missing.
func OpenDnn() (Dnn, error) {
	w := realPlaces()
	newest := newestCUDA(openLibrary(libDriver, w.candidates(libDriver)))
	w.open(libRTC, newest) // engines find these two by name
	blas := w.open(libBlas, newest)
	n, err := openDnn(w.open(libDNN, newest), blas)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// openDnn refuses a cuDNN that was built for another CUDA than the cuBLASLt it would call.
func openDnn(lib, blas *library) (*dnnBackend, error) {
	if !lib.loaded() {
		return nil, fmt.Errorf("%w: no cuDNN; tried %s; install it or set AMPC_LIBCUDNN", ErrUnavailable, summary(lib.tried))
	}
	if mine, theirs := lib.cuda(), blas.cuda(); mixed(mine, theirs) {
		return nil, fmt.Errorf("%w: %s is built for CUDA %d, %s is of CUDA %d; set AMPC_LIBCUDNN to a cuDNN for CUDA %d", ErrUnavailable, lib.path, mine, blas.path, theirs, theirs)
	}
	n := &dnnBackend{lib: lib}
	return n, lib.status("cudnnCreate", uintptr(unsafe.Pointer(&n.handle)))
}

// Version is the library's number.
func (n *dnnBackend) Version() int { return int(n.lib.call("cudnnGetVersion")) }

// Close destroys the handle.
func (n *dnnBackend) Close() error { return n.lib.status("cudnnDestroy", n.handle) }

// describer makes descriptors and remembers them, and the first error.
type describer struct {
	n   *dnnBackend
	all []uintptr
	err error
}

func (d *describer) create(kind int) uintptr {
	var p uintptr
	if d.err == nil {
		d.err = d.n.lib.status("cudnnBackendCreateDescriptor", uintptr(kind), uintptr(unsafe.Pointer(&p)))
	}
	if p != 0 {
		d.all = append(d.all, p)
	}
	return p
}

func (d *describer) set(desc uintptr, attr, typ int, count int, array unsafe.Pointer) {
	if d.err == nil {
		d.err = d.n.lib.status("cudnnBackendSetAttribute", desc, uintptr(attr), uintptr(typ), uintptr(count), uintptr(array))
	}
}

func (d *describer) ints(desc uintptr, attr int, v ...int64) {
	d.set(desc, attr, tInt64, len(v), unsafe.Pointer(&v[0]))
}

// enum sets an attribute of a 32-bit enumeration type.
func (d *describer) enum(desc uintptr, attr, typ int, v int32) {
	d.set(desc, attr, typ, 1, unsafe.Pointer(&v))
}

func (d *describer) flag(desc uintptr, attr int, v bool) {
	b := [1]byte{}
	if v {
		b[0] = 1
	}
	d.set(desc, attr, tBool, 1, unsafe.Pointer(&b[0]))
}

func (d *describer) float(desc uintptr, attr int, v float32) {
	d.set(desc, attr, tFloat, 1, unsafe.Pointer(&v))
}

// refer sets an attribute to other descriptors.
func (d *describer) refer(desc uintptr, attr int, to ...uintptr) {
	d.set(desc, attr, tDesc, len(to), unsafe.Pointer(&to[0]))
}

func (d *describer) finalize(desc uintptr) uintptr {
	if d.err == nil {
		d.err = d.n.lib.status("cudnnBackendFinalize", desc)
	}
	return desc
}

// drop destroys every descriptor made, last first.
func (d *describer) drop() error {
	var err error
	for i := len(d.all) - 1; i >= 0; i-- {
		err = errors.Join(err, d.n.lib.status("cudnnBackendDestroyDescriptor", d.all[i]))
	}
	d.all = nil
	return err
}

// tensorAlign is the alignment promised for every tensor.
const tensorAlign = 16

func (d *describer) tensor(t *DnnTensor) uintptr {
	p := d.create(dTensor)
	d.enum(p, aTensorType, tDataType, int32(t.Type))
	d.ints(p, aTensorDims, t.Dims...)
	d.ints(p, aTensorStrides, t.Strides...)
	d.ints(p, aTensorUID, t.UID)
	d.ints(p, aTensorAlign, tensorAlign)
	if t.Virtual {
		d.flag(p, aTensorVirtual, true)
	}
	if t.ByValue {
		d.flag(p, aTensorByValue, true)
	}
	return d.finalize(p)
}

// opShape lists the descriptors and attributes of an operation; 0 means absent.
type opShape struct {
	op, param, paramAttr int
	x, b, t, y           int
}

var opShapes = map[DnnKind]opShape{
	DnnConv:       {op: dOpConv, param: dConvolution, paramAttr: 702, x: 704, b: 703, y: 705},
	DnnConvData:   {op: dOpConvData, param: dConvolution, paramAttr: 708, x: 710, b: 709, y: 711},
	DnnConvFilter: {op: dOpConvFilter, param: dConvolution, paramAttr: 714, x: 716, b: 715, y: 717},
	DnnPointwise:  {op: dOpPointwise, param: dPointwise, paramAttr: aOpPwDesc, x: aOpPwX, b: aOpPwB, t: aOpPwT, y: aOpPwY},
	DnnMatmul:     {op: dOpMatmul, param: dMatmul, paramAttr: aOpMatmulDesc, x: aOpMatmulA, b: aOpMatmulB, y: aOpMatmulC},
	DnnReduction:  {op: dOpReduction, param: dReduction, paramAttr: aOpReduceDesc, x: aOpReduceX, y: aOpReduceY},
	DnnReshape:    {op: dOpReshape, paramAttr: 0, x: aReshapeX, y: aReshapeY},
}

// alphaAttr is the first scaling attribute of each convolution; beta follows it.
var alphaAttr = map[DnnKind]int{DnnConv: 700, DnnConvData: 706, DnnConvFilter: 712}

// node makes one operation.
func (d *describer) node(n *DnnNode, tensors map[tensorKey]uintptr) uintptr {
	s := opShapes[n.Kind]
	var param uintptr
	if s.paramAttr != 0 {
		param = d.param(s.param, n)
	}
	op := d.create(s.op)
	if s.paramAttr != 0 {
		d.refer(op, s.paramAttr, param)
	}
	for _, e := range []struct {
		attr int
		t    *DnnTensor
	}{{s.x, n.X}, {s.b, n.B}, {s.t, n.T}, {s.y, n.Y}} {
		if e.t == nil {
			continue
		}
		if tensors[keyOf(e.t)] == 0 {
			tensors[keyOf(e.t)] = d.tensor(e.t)
		}
		d.refer(op, e.attr, tensors[keyOf(e.t)])
	}
	if a := alphaAttr[n.Kind]; a != 0 {
		d.float(op, a, 1)
		d.float(op, a+1, 0)
	}
	return d.finalize(op)
}

// tensorKey distinguishes descriptions of one tensor, whose memory may also be described as
// transposed.
type tensorKey struct {
	uid   int64
	shape string
}

func keyOf(t *DnnTensor) tensorKey { return tensorKey{t.UID, fmt.Sprint(t.Dims, t.Strides)} }

// param makes the parameter descriptor of an operation.
func (d *describer) param(kind int, n *DnnNode) uintptr {
	p := d.create(kind)
	switch n.Kind {
	case DnnPointwise:
		d.enum(p, aPwMode, tPwMode, int32(n.Mode))
		prec := DnnFloat
		if n.Mode == PwCmpGE {
			prec = DnnBool
		}
		d.enum(p, aPwPrec, tDataType, int32(prec))
		if n.Mode == PwGenIndex {
			d.ints(p, aPwAxis, n.Axis)
		}
	case DnnMatmul:
		d.enum(p, aMatmulComp, tDataType, int32(DnnFloat))
	case DnnReduction:
		d.enum(p, aReduceComp, tDataType, int32(DnnFloat))
		d.enum(p, aReduceOp, tReduceOp, int32(n.Mode))
	default:
		c := n.Conv
		d.enum(p, aConvComp, tDataType, int32(DnnFloat))
		d.enum(p, aConvMode, tConvMode, crossCorrelation)
		d.ints(p, aConvSpatial, int64(len(c.Pads)))
		d.ints(p, aConvPre, c.Pads...)
		d.ints(p, aConvPost, c.EndPads...)
		d.ints(p, aConvStride, c.Strides...)
		d.ints(p, aConvDil, c.Dilations...)
	}
	return d.finalize(p)
}

// Plan compiles a graph with the first engine that works.
func (n *dnnBackend) Plan(g *DnnGraph, o DnnOptions) (DnnPlan, error) {
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
	avoid := o.avoid(g)
	for _, mode := range []int32{heurA, heurFallback} {
		if p := d.tryEngines(graph, mode, avoid, o.Workspace); p != nil {
			return p.bind(g), nil
		}
	}
	err := &Error{Lib: libDNN, Call: "cudnnBackendFinalize", Code: 3000, Name: "no engine", Text: g.Name}
	return nil, errors.Join(err, d.drop())
}

// maxEngines is how many candidates of each heuristic are considered.
const maxEngines = 16

// tryEngines asks a heuristic and returns the first configuration that compiles to a plan.
func (d *describer) tryEngines(graph uintptr, mode int32, avoid []int32, workspace int64) *dnnPlan {
	heur := &describer{n: d.n}
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
		heur.err = d.n.lib.status("cudnnBackendGetAttribute", h, aHeurResults, tDesc, maxEngines,
			uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&configs[0])))
	}
	d.all = append(d.all, heur.all...) // a plan keeps its configuration
	if heur.err != nil {
		return nil
	}
	for _, c := range configs[:min(max(int(got), 0), maxEngines)] {
		if d.noted(c, avoid) {
			continue
		}
		if p := d.plan(c, workspace); p != nil {
			return p
		}
	}
	return nil
}

// avoid lists the notes of engines that are not to be picked for g.
func (o DnnOptions) avoid(g *DnnGraph) []int32 {
	notes := []int32{noteDownConvert}
	if o.Deterministic {
		notes = append(notes, noteNondeterministic)
	}
	if g.Feeds[0].Type == DnnFloat && !o.TF32 {
		notes = append(notes, noteTensorCore)
	}
	return notes
}

// noted reports whether a configuration's engine has one of the notes, or its notes are unknown.
func (d *describer) noted(config uintptr, avoid []int32) bool {
	lib := d.n.lib
	e := &describer{n: d.n}
	engine := e.create(dEngine)
	defer e.drop()
	var got int64
	if e.err != nil || lib.status("cudnnBackendGetAttribute", config, aCfgEngine, tDesc, 1, uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&engine))) != nil {
		return true
	}
	notes := make([]int32, 8)
	if lib.status("cudnnBackendGetAttribute", engine, aEngineNotes, tNote, uintptr(len(notes)), uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&notes[0]))) != nil {
		return true
	}
	for _, n := range notes[:min(max(int(got), 0), len(notes))] {
		if slices.Contains(avoid, n) {
			return true
		}
	}
	return false
}

// plan compiles one configuration, or gives nil.
func (d *describer) plan(config uintptr, limit int64) *dnnPlan {
	e := &describer{n: d.n}
	p := e.create(dPlan)
	e.set(p, aPlanHandle, tHandle, 1, unsafe.Pointer(&d.n.handle))
	e.refer(p, aPlanCfg, config)
	e.finalize(p)
	var size, got int64
	if e.err == nil {
		e.err = d.n.lib.status("cudnnBackendGetAttribute", p, aPlanWorkspace, tInt64, 1, uintptr(unsafe.Pointer(&got)), uintptr(unsafe.Pointer(&size)))
	}
	if e.err != nil || size > limit {
		e.drop()
		return nil
	}
	d.all = append(d.all, e.all...)
	return &dnnPlan{d: d, plan: p, workspace: size}
}

// dnnPlan is a compiled graph with its variant pack.
type dnnPlan struct {
	d         *describer
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

// Workspace is the bytes Run needs.
func (p *dnnPlan) Workspace() int64 { return p.workspace }

// Run executes the graph on a stream.
func (p *dnnPlan) Run(feeds []Ptr, workspace Ptr, s Stream) error {
	if len(feeds) != p.feeds {
		return fmt.Errorf("cuda: graph takes %d tensors, %d given", p.feeds, len(feeds))
	}
	lib, handle := p.d.n.lib, p.d.n.handle
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
		e.err = lib.status("cudnnSetStream", handle, uintptr(s))
	}
	if e.err == nil {
		e.err = lib.status("cudnnBackendExecute", handle, p.plan, pack)
	}
	runtime.KeepAlive(p.consts)
	return errors.Join(e.err, e.drop())
}

// Close destroys everything the plan is made of.
func (p *dnnPlan) Close() error { return p.d.drop() }
