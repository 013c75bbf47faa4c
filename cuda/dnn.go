//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"maps"
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
	aCfgEngine, aEngineIndex, aEngineNotes                           = 300, 1301, 1303
	aPlanHandle, aPlanCfg, aPlanWorkspace                            = 400, 401, 402
	aPackIDs, aPackPtrs, aPackWorkspace                              = 1000, 1001, 1003
	heurA, heurFallback                                              = 3, 2
	dEngine                                                          = 2
	crossCorrelation                                                 = 1
)

// dnnBackend is cuDNN. It implements Dnn.
type dnnBackend struct {
	lib     *library
	handle  uintptr            // of plans
	streams map[Stream]uintptr // of calls
}

var _ Dnn = (*dnnBackend)(nil)

// OpenDnn opens cuDNN for the bound device. The error wraps ErrUnavailable when it is missing.
func OpenDnn() (Dnn, error) {
	f := realFamily()
	n, err := openDnn(f.dnn, f.blas)
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
	if lib.broken != "" {
		return nil, fmt.Errorf("%w: a part of cuDNN %s, %s, does not load: %s; install it again, or set AMPC_LIBCUDNN to another", ErrBroken, lib.version(), lib.path, lib.broken)
	}
	n := &dnnBackend{lib: lib, streams: map[Stream]uintptr{}}
	return n, lib.status("cudnnCreate", uintptr(unsafe.Pointer(&n.handle)))
}

// Version is the library's number.
func (n *dnnBackend) Version() int { return n.lib.number() }

// Close destroys the handles.
func (n *dnnBackend) Close() error {
	err := n.lib.status("cudnnDestroy", n.handle)
	for _, s := range slices.Sorted(maps.Keys(n.streams)) {
		err = errors.Join(err, n.lib.status("cudnnDestroy", n.streams[s]))
	}
	return err
}

// on is the handle whose calls go to a stream. Each stream has its own: a handle has memory and
// state of its own, which two streams must not share.
func (n *dnnBackend) on(s Stream) (uintptr, error) {
	if h := n.streams[s]; h != 0 {
		return h, nil
	}
	var h uintptr
	if err := n.lib.status("cudnnCreate", uintptr(unsafe.Pointer(&h))); err != nil {
		return 0, err
	}
	if err := n.lib.status("cudnnSetStream", h, uintptr(s)); err != nil {
		return 0, errors.Join(err, n.lib.status("cudnnDestroy", h))
	}
	n.streams[s] = h
	return h, nil
}

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
