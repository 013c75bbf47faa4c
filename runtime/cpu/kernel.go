package cpu

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"unsafe"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// view is an operand or result of a kernel; the zero view is an absent one.
type view struct {
	t   ir.Type
	mem []byte
}

func (v view) absent() bool   { return !v.t.Shape.Known() }
func (v view) len() int       { return int(v.t.Shape.Elements()) }
func (v view) buf() kern.Buf  { return kern.Buf{Type: kernTypes[v.t.DType], Data: v.mem} }
func (v view) f32() []float32 { return slice[float32](v.mem) }
func (v view) i32() []int32   { return slice[int32](v.mem) }

// dims returns the sizes as int.
func (v view) dims() []int {
	d := make([]int, 0, v.t.Shape.Rank())
	for _, x := range v.t.Shape.Dims() {
		d = append(d, int(x))
	}
	return d
}

// index returns an integer operand as package kern takes it.
func (v view) index() kern.Index { return kern.Index{Data: v.mem, Width: int(v.t.DType.Size())} }

// float returns element i of a float operand.
func (v view) float(i int) float32 { return loadOne(v.buf(), i) }

// set rounds x to element i of a float result.
func (v view) set(i int, x float32) {
	switch p := unsafe.Pointer(unsafe.SliceData(v.mem)); v.t.DType {
	case ir.F32:
		*(*float32)(unsafe.Add(p, 4*i)) = x
	case ir.F64:
		*(*float64)(unsafe.Add(p, 8*i)) = float64(x)
	default:
		*(*uint16)(unsafe.Add(p, 2*i)) = narrow(v.t.DType, x)
	}
}

// int returns element i of an integer or bool operand.
func (v view) int(i int) int64 {
	switch p := unsafe.Pointer(unsafe.SliceData(v.mem)); v.t.DType {
	case ir.I64, ir.U64:
		return *(*int64)(unsafe.Add(p, 8*i))
	case ir.I32:
		return int64(*(*int32)(unsafe.Add(p, 4*i)))
	case ir.U32:
		return int64(*(*uint32)(unsafe.Add(p, 4*i)))
	case ir.I16:
		return int64(*(*int16)(unsafe.Add(p, 2*i)))
	case ir.U16:
		return int64(*(*uint16)(unsafe.Add(p, 2*i)))
	case ir.I8:
		return int64(*(*int8)(unsafe.Add(p, i)))
	default:
		return int64(*(*uint8)(unsafe.Add(p, i)))
	}
}

// setInt stores element i of an integer result, truncated to its width.
func (v view) setInt(i int, x int64) {
	switch p := unsafe.Pointer(unsafe.SliceData(v.mem)); v.t.DType.Size() {
	case 8:
		*(*int64)(unsafe.Add(p, 8*i)) = x
	case 4:
		*(*int32)(unsafe.Add(p, 4*i)) = int32(x)
	case 2:
		*(*int16)(unsafe.Add(p, 2*i)) = int16(x)
	default:
		*(*uint8)(unsafe.Add(p, i)) = uint8(x)
	}
}

// call is a kernel step that is being bound: the node with its attributes and types, and its
// memory.
type call struct {
	*ir.Node
	m       *kern.Machine
	in, out []view
	fault   *atomic.Pointer[fault]
	mem     *scratch
	end     lower.NormFusion
	copy    view            // second form of result 0, if a norm stores one
	window  *ir.Window      // window of the pool whose gradient this is, if known
	now     []func() []byte // by operand: its memory in the running step, which passes the memory of caches
	pre     *clusterPreOp   // computes operand 0, which then has no memory; nil: none
	post    *clusterPostOp  // runs on blocks of result 0, which has memory only if it is stored; nil: none
	fused   bool            // the kernel runs post itself (it called postOp)

	exec *exec // set for kernels that send messages

	own     *finiteCheck   // of a global_norm whose step also runs a check; nil: none
	norms   []*finiteCheck // norms that have read operands of this any_nonfinite
	checked map[int]bool   // operands that those norms have read
}

// unchecked lists the operands that no norm has read.
func (c *call) unchecked() (list []view) {
	for i, v := range c.in {
		if !c.checked[i] {
			list = append(list, v)
		}
	}
	return list
}

// fault is an error that only a kernel can detect, in the data of a step.
type fault struct{ err error }

// fail reports bad data. The part ends after this step, nothing is updated, and Step returns the
// error. If several are reported, the first one counts.
func (c *call) fail(format string, args ...any) {
	c.fault.CompareAndSwap(nil, &fault{fmt.Errorf("%s %s: %w", c.Def().Name, c.Name(), fmt.Errorf(format, args...))})
}

// arg returns operand i, an absent view if the step has fewer.
func (c *call) arg(i int) view {
	if i < len(c.in) {
		return c.in[i]
	}
	return view{}
}

// res returns result i, an absent view where the node omits it.
func (c *call) res(i int) view {
	if i < len(c.out) {
		return c.out[i]
	}
	return view{}
}

// binder checks that a kernel supports a call and returns the function that runs it. The binder
// allocates all memory; the function allocates none.
type binder func(c *call) (func(), error)

// kernels has the ops that no other kind of step runs.
var kernels = merge(rowKernels, normKernels, lossKernels, reduceKernels, indexKernels, poolKernels, recurrentKernels, cacheKernels, updateKernels, collectiveKernels)

func merge(tables ...map[ir.Op]binder) map[ir.Op]binder {
	all := map[ir.Op]binder{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// kernel binds a kernel step.
func (e *exec) kernel(s *lower.Step) (func(), error) {
	if len(s.Kernel.Parts) > 0 {
		return e.parts(s)
	}
	if s.Kernel.Fusion.Prologue != nil {
		return e.kernelWithPreOp(s)
	}
	in := s.In
	if s.Epilogue != nil {
		in = in[:len(s.Kernel.Node.In)]
	}
	c := e.newCall(s, in)
	if s.Epilogue != nil {
		return e.kernelWithPostOp(s, c)
	}
	c.results(s, e)
	if n := s.Kernel.Fusion.Copy; n > 0 {
		c.out, c.copy = c.out[:n], c.out[n]
	}
	if s.Kernel.Node.Op == ir.OpCustom {
		return customKernel(c)
	}
	return c.bind()
}

// newCall is a call of the kernel of s with the operands in.
func (e *exec) newCall(s *lower.Step, in []lower.BufferID) *call {
	k := s.Kernel
	c := &call{Node: k.Node, m: e.machine(), fault: &e.fault, mem: &e.scratch, window: k.Pool, end: k.Fusion, checked: map[int]bool{}, exec: e}
	for i, id := range in {
		if id == lower.None {
			c.in = append(c.in, view{})
			c.now = append(c.now, nil)
			continue
		}
		c.now = append(c.now, func() []byte { return e.mem[id] })
		c.in = append(c.in, view{k.Node.In[i].Type, e.mem[id]})
	}
	return c
}

// results gives c the memory of the results of s.
func (c *call) results(s *lower.Step, e *exec) {
	for i, id := range s.Out {
		c.out = append(c.out, view{s.Kernel.Node.Out[i].Type, e.mem[id]})
	}
}

// bind binds the kernel of the call's op.
func (c *call) bind() (func(), error) {
	b := kernels[c.Op]
	if b == nil {
		return nil, fmt.Errorf("no kernel %s", c.Def().Name)
	}
	return b(c)
}

// kernelWithPostOp binds a kernel listed in Caps.PostOps together with the cluster over its result.
func (e *exec) kernelWithPostOp(s *lower.Step, c *call) (func(), error) {
	post, y := e.postOp(s)
	c.post = post
	c.out = []view{{c.Node.Out[0].Type.With(ir.F32), y.Data}}
	run, err := c.bind()
	if err == nil && !c.fused {
		err = fmt.Errorf("kernel %s runs no cluster over its result", s.Kernel.Name)
	}
	if err != nil {
		return nil, err
	}
	return func() { post.begin(); run() }, nil
}

// postOp returns what the kernel must run on blocks of result 0, or nil.
func (c *call) postOp() kern.PostOp {
	c.fused = true
	return c.post.kern()
}

// parts binds the nodes of a kernel that runs several: global norms, which note whether their
// operands are finite, and then the checks of these tensors.
func (e *exec) parts(s *lower.Step) (func(), error) {
	norms := map[lower.BufferID]*finiteCheck{}
	var all []func()
	for _, part := range s.Kernel.Parts {
		own := part.Step(s)
		c := e.newCall(own, own.In)
		c.results(own, e)
		if c.Def().Is(ir.TotalNorm) {
			c.own = &finiteCheck{}
			for _, id := range own.In[1:] {
				norms[id] = c.own
			}
		} else {
			for i, id := range own.In {
				if n := norms[id]; n != nil {
					c.checked[i] = true
					if !slices.Contains(c.norms, n) {
						c.norms = append(c.norms, n)
					}
				}
			}
		}
		run, err := c.bind()
		if err != nil {
			return nil, err
		}
		all = append(all, run)
	}
	return func() {
		for _, run := range all {
			run()
		}
	}, nil
}

// region is a parallel loop that does not allocate when it runs.
type region struct {
	f func(worker, i int)
}

func (r *region) Run(worker, i int) { r.f(worker, i) }

// elementWork is the work of an element that is read once, see kern.Machine.Run.
const elementWork = 8

// parallel returns a loop over n pieces of the given work, in elements read once. A small loop stays
// on the caller's goroutine. The pieces never depend on the number of workers.
func (c *call) parallel(n, work int, f func(worker, i int)) func() {
	r, m := &region{f}, c.m
	return func() { m.Run(elementWork*n*work, n, r) }
}

// chunked is region for pieces of some elements.
type chunked struct {
	tasks kern.Parts
	f     func(worker, lo, hi int)
}

func (r *chunked) Run(worker, i int) {
	lo, hi := r.tasks.Of(i)
	r.f(worker, lo, hi)
}

// chunks splits n elements, each of the given work, into pieces of at most size elements, whose number depends on that
// of the workers. f gets the bounds of each piece.
func (c *call) chunks(n, size, work int, f func(worker, lo, hi int)) func() {
	r, m := &chunked{f: f}, c.m
	return func() { r.over(m, n, size, work) }
}

// chunks is call.chunks for steps that run no kernel.
func (e *exec) chunks(n, size, work int, f func(worker, lo, hi int)) func() {
	r := &chunked{f: f}
	return func() { r.over(e.machine(), n, size, work) }
}

// over runs the loop.
func (r *chunked) over(m *kern.Machine, n, size, work int) {
	if n > 0 {
		r.tasks = m.Divide(elementWork*n*work, n, size)
		m.RunParts(&r.tasks, r)
	}
}

// scratch gives every worker n floats of temporary memory for this step.
func (c *call) scratch(n int) [][]float32 {
	s := make([][]float32, c.mem.workers)
	c.mem.take(n, func(w int, mem []float32) { s[w] = mem })
	return s
}

// customKernel runs the Go function of a user's op on widened copies.
func customKernel(c *call) (func(), error) {
	f := c.Node.Custom.Kernel
	if f == nil {
		return nil, fmt.Errorf("the custom op %s has no Go kernel", c.Node.Custom.Name)
	}
	in, out := make([]any, len(c.in)), make([]any, len(c.out))
	var before, after []func()
	for i, v := range c.in {
		in[i] = hostCopy(c, v, &before, true)
	}
	for i, v := range c.out {
		out[i] = hostCopy(c, v, &after, false)
	}
	return func() {
		for _, g := range before {
			g()
		}
		if err := f(c.Node, in, out); err != nil {
			c.fail("%w", err)
			return
		}
		for _, g := range after {
			g()
		}
	}, nil
}

// hostCopy makes the slice that a custom kernel sees. It also returns the conversion that fills it,
// or that copies it into a result.
func hostCopy(c *call, v view, conv *[]func(), load bool) any {
	if v.absent() {
		return nil
	}
	n := v.len()
	if v.t.DType.Float() {
		s := make([]float32, n)
		*conv = append(*conv, func() {
			switch wide := slice[float64](v.mem); {
			case v.t.DType != ir.F64 && load:
				c.m.Load(s, v.buf())
			case v.t.DType != ir.F64:
				c.m.Store(v.buf(), s)
			case load:
				each(s, wide, func(x float64) float32 { return float32(x) })
			default:
				each(wide, s, func(x float32) float64 { return float64(x) })
			}
		})
		return s
	}
	s := make([]int64, n)
	*conv = append(*conv, func() {
		for i := range s {
			if load {
				s[i] = v.int(i)
			} else {
				v.setInt(i, s[i])
			}
		}
	})
	return s
}
