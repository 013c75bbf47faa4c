package sim

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"ampc/cuda"
	"ampc/internal/fp"
)

// Dnn simulates cuDNN. It executes the operations of a graph one by one and rounds each result to the
// type of its tensor; sums are f32, in an order that depends on the engine.
type Dnn struct {
	d *Device
}

var _ cuda.Dnn = (*Dnn)(nil)

// Dnn opens the library of the device.
func (d *Device) Dnn() *Dnn { return &Dnn{d} }

// OpenDnn opens the library; the error wraps cuda.ErrUnavailable if the device has none.
func (d *Device) OpenDnn() (cuda.Dnn, error) {
	if d.opt.NoDnn {
		return nil, fmt.Errorf("%w: this simulated device has no cuDNN", cuda.ErrUnavailable)
	}
	for _, part := range []string{"graph", "ops", "cnn", "engines_precompiled", "heuristic"} {
		if d.lacks(part) {
			return nil, dnnCallError("cudnnCreate", 1008, "libcudnn_%s is missing", part)
		}
	}
	if err := d.fault("cudnnCreate"); err != nil {
		return nil, err
	}
	return d.Dnn(), nil
}

// Version is that of the library the rules were taken from, unless the options name another.
func (n *Dnn) Version() int { return cmp.Or(n.d.opt.DnnVersion, 91501) }

// Close does nothing.
func (n *Dnn) Close() error { return nil }

// Run issues the graph.
func (p *dnnPlan) Run(feeds []cuda.Ptr, workspace cuda.Ptr, s cuda.Stream) error {
	const call = "cudnnBackendExecute"
	if len(feeds) != len(p.g.Feeds) {
		return p.d.fail(call, cuda.CodeInvalidValue, "%d tensors for %d", len(feeds), len(p.g.Feeds))
	}
	if workspace == 0 || workspace%16 != 0 {
		return p.d.fail(call, cuda.CodeInvalidValue, "the workspace is at %#x, want a multiple of 16", uint64(workspace))
	}
	at := map[int64]cuda.Ptr{}
	for i, f := range p.g.Feeds {
		if feeds[i] == 0 || feeds[i]%16 != 0 {
			return p.d.fail(call, cuda.CodeInvalidValue, "tensor %d is at %#x, want a multiple of 16", i, uint64(feeds[i]))
		}
		at[f.UID] = feeds[i]
	}
	if err := p.d.fault(call); err != nil {
		return err
	}
	return p.d.issue(s, op{what: call + " " + p.what(), run: func() ([]span, error) {
		p.d.Stats.Graphs++
		if p.d.Stats.Graphs == p.d.opt.FailGraph {
			return nil, p.d.fail(call, cuda.CodeLaunchFailed, "%s: injected fault", p.g.Name)
		}
		r := &dnnRun{d: p.d, at: at, vals: map[*cuda.DnnTensor][]float64{}, parts: p.d.orders() * p.parts(), short: slices.Contains(p.e.Notes, cuda.NoteShortSums)}
		for i := range p.g.Nodes {
			if err := r.node(&p.g.Nodes[i]); err != nil {
				return nil, err
			}
		}
		p.d.done.seconds = p.e.Times * p.flops() / flopRates[dnnFloat[p.g.Feeds[0].Type]]
		for _, u := range r.uses {
			p.d.done.bytes += int64(p.e.Times * float64(u.bytes))
		}
		r.uses = append(r.uses, span{workspace, p.e.Workspace, true})
		if x, w, ok := overlap(r.uses); ok {
			return nil, p.d.fail(call, cuda.CodeInvalidValue, "writes %d bytes at %#x and reads %d at %#x", w.bytes, uint64(w.at), x.bytes, uint64(x.at))
		}
		junk := bytes.Repeat([]byte{0xa5}, int(p.e.Workspace))
		return r.uses, p.d.memory(call, p.d.mem.Write(uint64(workspace), junk))
	}})
}

// what names the graph, and the type of its result where that is not the operands'.
func (p *dnnPlan) what() string {
	if stored(p.g).Type == cuda.DnnFloat && low(p.g.Feeds[0].Type) {
		return p.g.Name + " in f32"
	}
	return p.g.Name
}

// dnnRun is one execution: the values of virtual tensors, dense in row-major order.
type dnnRun struct {
	d    *Device
	at   map[int64]cuda.Ptr
	vals map[*cuda.DnnTensor][]float64
	uses []span

	parts int // of sums
	short bool
}

// sums are n sums as the engine adds them.
func (r *dnnRun) sums(n int64) *sums {
	s := newSums(int(n), r.parts)
	s.short = r.short
	return s
}

func count(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// offset is where element i (row-major over dims) lies in elements.
func offset(t *cuda.DnnTensor, i int64) int64 {
	off := int64(0)
	for k := len(t.Dims) - 1; k >= 0; k-- {
		off += i % t.Dims[k] * t.Strides[k]
		i /= t.Dims[k]
	}
	return off
}

// extent is the elements from the first to the last.
func extent(t *cuda.DnnTensor) int64 { return offset(t, count(t.Dims)-1) + 1 }

func dnnSize(t cuda.DnnType) int64 {
	if t == cuda.DnnHalf || t == cuda.DnnBFloat16 {
		return 2
	}
	return 4
}

var dnnFloat = map[cuda.DnnType]cuda.DataType{cuda.DnnFloat: cuda.R32F, cuda.DnnHalf: cuda.R16F, cuda.DnnBFloat16: cuda.R16BF}

// get gives a tensor's values.
func (r *dnnRun) get(t *cuda.DnnTensor) ([]float64, error) {
	if v, ok := r.vals[t]; ok {
		return v, nil
	}
	if t.ByValue {
		return []float64{float64(t.Value)}, nil
	}
	size := dnnSize(t.Type)
	v := make([]float64, count(t.Dims))
	buf := make([]byte, size)
	for i := range v {
		if err := r.d.mem.Read(buf, uint64(r.at[t.UID])+uint64(offset(t, int64(i))*size)); err != nil {
			return nil, r.d.memory("cudnnBackendExecute", err)
		}
		v[i] = float64(decode(dnnFloat[t.Type], buf))
	}
	r.uses = append(r.uses, span{r.at[t.UID], extent(t) * size, false})
	return v, nil
}

// put rounds values to the tensor's type, and stores them where it has memory.
func (r *dnnRun) put(t *cuda.DnnTensor, v []float64) error {
	for i, x := range v {
		switch t.Type {
		case cuda.DnnHalf:
			v[i] = float64(fp.F16ToF32(fp.F16(float32(x))))
		case cuda.DnnBFloat16:
			v[i] = float64(fp.BF16ToF32(fp.BF16(float32(x))))
		case cuda.DnnFloat:
			v[i] = float64(float32(x))
		}
	}
	r.vals[t] = v
	if t.Virtual {
		return nil
	}
	size := dnnSize(t.Type)
	buf := make([]byte, size)
	for i, x := range v {
		if t.Type == cuda.DnnInt32 {
			binary.LittleEndian.PutUint32(buf, uint32(int32(x)))
		} else {
			encode(dnnFloat[t.Type], buf, float32(x))
		}
		if err := r.d.mem.Write(uint64(r.at[t.UID])+uint64(offset(t, int64(i))*size), buf); err != nil {
			return r.d.memory("cudnnBackendExecute", err)
		}
	}
	r.uses = append(r.uses, span{r.at[t.UID], extent(t) * size, true})
	return nil
}

// node executes one operation.
func (r *dnnRun) node(n *cuda.DnnNode) error {
	switch n.Kind {
	case cuda.DnnConv:
		return r.conv(n, n.X, n.B, n.Y)
	case cuda.DnnConvData:
		return r.conv(n, n.Y, n.B, n.X)
	case cuda.DnnConvFilter:
		return r.conv(n, n.X, n.Y, n.B)
	}
	x, err := r.get(n.X)
	if err != nil {
		return err
	}
	switch n.Kind {
	case cuda.DnnReduction:
		return r.put(n.Y, reduce(n, x))
	case cuda.DnnReshape:
		return r.put(n.Y, reshape(n, x))
	}
	var b, t []float64
	if n.B != nil {
		if b, err = r.get(n.B); err != nil {
			return err
		}
	}
	if n.T != nil {
		if t, err = r.get(n.T); err != nil {
			return err
		}
	}
	if n.Kind == cuda.DnnMatmul {
		return r.put(n.Y, r.matmul(n, x, b))
	}
	return r.put(n.Y, pointwise(n, x, b, t))
}

// wide maps element i of y to the element of a tensor that may have dimensions of size 1.
func wide(y, t *cuda.DnnTensor, i int64) int64 {
	if slices.Equal(y.Dims, t.Dims) {
		return i
	}
	at, stride := int64(0), int64(1)
	for k := len(y.Dims) - 1; k >= 0; k-- {
		if t.Dims[k] > 1 {
			at += i % y.Dims[k] * stride
		}
		stride *= t.Dims[k]
		i /= y.Dims[k]
	}
	return at
}

func pointwise(n *cuda.DnnNode, x, b, t []float64) []float64 {
	out := make([]float64, count(n.Y.Dims))
	for i := range out {
		v := x[wide(n.Y, n.X, int64(i))]
		var w float64
		if n.B != nil {
			w = b[wide(n.Y, n.B, int64(i))]
		}
		switch n.Mode {
		case cuda.PwAdd:
			v += w
		case cuda.PwMul:
			v *= w
		case cuda.PwDiv:
			v /= w
		case cuda.PwSub:
			v -= w
		case cuda.PwExp:
			v = math.Exp(v)
		case cuda.PwLog:
			v = math.Log(v)
		case cuda.PwCmpGE:
			v = float64(b2i(v >= w))
		case cuda.PwGenIndex:
			v = float64(int64(i) / count(n.Y.Dims[n.Axis+1:]) % n.Y.Dims[n.Axis])
		case cuda.PwSelect:
			if t[i] == 0 {
				v = w
			}
		}
		out[i] = v
	}
	return out
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func reduce(n *cuda.DnnNode, x []float64) []float64 {
	out := make([]float64, count(n.Y.Dims))
	seen := make([]bool, len(out))
	for i, v := range x {
		o := wide(n.X, n.Y, int64(i))
		switch {
		case !seen[o]:
			out[o], seen[o] = v, true
		case n.Mode == cuda.DnnReduceMax:
			out[o] = math.Max(out[o], v)
		default:
			out[o] = float64(float32(out[o] + v))
		}
	}
	return out
}

// reshape reads the memory of x through the strides of y.
func reshape(n *cuda.DnnNode, x []float64) []float64 {
	mem := make([]float64, max(extent(n.X), extent(n.Y)))
	for i, v := range x {
		mem[offset(n.X, int64(i))] = v
	}
	out := make([]float64, count(n.Y.Dims))
	for i := range out {
		out[i] = mem[offset(n.Y, int64(i))]
	}
	return out
}

func (r *dnnRun) matmul(n *cuda.DnnNode, x, y []float64) []float64 {
	m, k, c := n.X.Dims[2], n.X.Dims[3], n.B.Dims[3]
	out := r.sums(count(n.Y.Dims))
	for z := range n.X.Dims[0] * n.X.Dims[1] {
		for i := range m {
			for q := range k {
				v := x[(z*m+i)*k+q]
				for j := range c {
					out.add(int((z*m+i)*c+j), int(q), v, y[(z*k+q)*c+j])
				}
			}
		}
	}
	return out.totals()
}

// conv computes one of x, w and y from the other two: each product x·w contributes to one y.
func (r *dnnRun) conv(n *cuda.DnnNode, in1, in2, out *cuda.DnnTensor) error {
	a, err := r.get(in1)
	if err != nil {
		return err
	}
	b, err := r.get(in2)
	if err != nil {
		return err
	}
	v := r.sums(count(out.Dims))
	X, W, Y := n.X.Dims, n.B.Dims, n.Y.Dims
	groups := X[1] / W[1]
	taps, cells, points := count(W[2:]), count(Y[2:]), count(X[2:])
	sources := sourcesOf(n, cells, taps)
	for img := range Y[0] {
		for k := range Y[1] {
			for cell := range cells {
				for c := range W[1] {
					plane := (img*X[1] + k/(Y[1]/groups)*W[1] + c) * points
					for tap := range taps {
						pos := sources[cell*taps+tap]
						if pos < 0 {
							continue
						}
						xi, wi, yi := plane+pos, (k*W[1]+c)*taps+tap, (img*Y[1]+k)*cells+cell
						switch n.Kind {
						case cuda.DnnConv:
							v.add(int(yi), int(c), a[xi], b[wi])
						case cuda.DnnConvData:
							v.add(int(xi), int(k), a[yi], b[wi])
						default:
							v.add(int(wi), int(cell), a[xi], b[yi])
						}
					}
				}
			}
		}
	}
	return r.put(out, v.totals())
}

// sourcesOf are the positions in x that every output cell and filter tap meet, -1 in the padding.
func sourcesOf(n *cuda.DnnNode, cells, taps int64) []int64 {
	list := make([]int64, 0, cells*taps)
	for cell := range cells {
		for tap := range taps {
			pos, ok := source(n, cell, tap)
			if !ok {
				pos = -1
			}
			list = append(list, pos)
		}
	}
	return list
}

// source is the position in x that output cell and filter tap meet, if it is not padding.
func source(n *cuda.DnnNode, cell, tap int64) (pos int64, ok bool) {
	stride := int64(1)
	for k := len(n.X.Dims) - 1; k >= 2; k-- {
		i := cell%n.Y.Dims[k]*n.Conv.Strides[k-2] - n.Conv.Pads[k-2] + tap%n.B.Dims[k]*n.Conv.Dilations[k-2]
		if i < 0 || i >= n.X.Dims[k] {
			return 0, false
		}
		pos += i * stride
		stride *= n.X.Dims[k]
		cell /= n.Y.Dims[k]
		tap /= n.B.Dims[k]
	}
	return pos, true
}
