package eval

import "ampc/ir"

// shapeFns move elements. Each says where a result element comes from.
var shapeFns = map[ir.Op]fn{
	ir.OpReshape: same, ir.OpSqueeze: same, ir.OpUnsqueeze: same,
	ir.OpTranspose: transpose, ir.OpBroadcast: broadcast, ir.OpSumTo: sumTo,
	ir.OpSlice: slice, ir.OpPad: pad, ir.OpConcat: concat, ir.OpSplit: split,
	ir.OpTile: tile, ir.OpFlip: flip, ir.OpTril: triangle, ir.OpTriu: triangle,
	ir.OpDepthToSpace: depthToSpace, ir.OpSpaceToDepth: spaceToDepth,
}

// set copies element j of src to element i of t, converting its kind.
func (t *Tensor) set(i int, src *Tensor, j int) {
	switch {
	case t.F != nil && src.F != nil:
		t.F[i] = src.F[j]
	case t.I != nil && src.I != nil:
		t.I[i] = src.I[j]
	case t.F != nil:
		t.F[i] = src.At(j)
	default:
		t.I[i] = t.Type.DType.FromFloat(src.F[j])
	}
}

// strides are the row-major strides of a shape.
func strides(d []int) []int {
	s := make([]int, len(d))
	step := 1
	for i := len(d) - 1; i >= 0; i-- {
		s[i], step = step, step*d[i]
	}
	return s
}

// eachIndex calls f with every multi-index of a shape in row-major order and
// its position; f must not keep the index.
func eachIndex(d []int, f func(i int, at []int)) {
	n := 1
	for _, k := range d {
		n *= k
	}
	at := make([]int, len(d))
	for i := range n {
		f(i, at)
		for k := len(d) - 1; k >= 0; k-- {
			if at[k]++; at[k] < d[k] {
				break
			}
			at[k] = 0
		}
	}
}

func dot(a, b []int) int {
	s := 0
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

func same(c *call) error {
	for i := range c.out[0].Len() {
		c.out[0].set(i, c.in[0], i)
	}
	return nil
}

func transpose(c *call) error {
	x, y := c.in[0], c.out[0]
	s := strides(x.dims())
	from := make([]int, len(s))
	for i, p := range c.Ints("perm") {
		from[i] = s[p]
	}
	eachIndex(y.dims(), func(i int, at []int) { y.set(i, x, dot(at, from)) })
	return nil
}

func broadcast(c *call) error {
	x, y := c.in[0], c.out[0]
	s := broadcastStrides(x.dims(), y.dims())
	eachIndex(y.dims(), func(i int, at []int) { y.set(i, x, dot(at, s)) })
	return nil
}

func sumTo(c *call) error {
	x, y := c.in[0], c.out[0]
	s := broadcastStrides(y.dims(), x.dims())
	eachIndex(x.dims(), func(i int, at []int) { y.F[dot(at, s)] += x.F[i] })
	return nil
}

func slice(c *call) error {
	x, y := c.in[0], c.out[0]
	spans, s := sliceSpans(c), strides(x.dims())
	eachIndex(y.dims(), func(i int, at []int) {
		from := 0
		for k, p := range spans {
			from += (int(p.Start) + at[k]*int(p.Step)) * s[k]
		}
		y.set(i, x, from)
	})
	return nil
}

// sliceSpans asks the node under the operand's actual type.
func sliceSpans(c *call) []ir.Span {
	n := *c.Node
	n.In = []*ir.Value{{Type: c.in[0].Type}}
	return n.Spans()
}

func pad(c *call) error {
	x, y := c.in[0], c.out[0]
	d, s, lo := x.dims(), strides(x.dims()), c.Ints("lo")
	mode := c.Str("mode")
	eachIndex(y.dims(), func(i int, at []int) {
		from := 0
		for k := range at {
			p, ok := padSource(at[k]-int(lo[k]), d[k], int(c.Inner(k)), mode)
			if !ok {
				y.fill(i, c.Float("value"))
				return
			}
			from += p * s[k]
		}
		y.set(i, x, from)
	})
	return nil
}

// padSource is which of n elements stands at place p, counted from the first
// one; false where the constant stands.
func padSource(p, n, inner int, mode string) (int, bool) {
	switch mode {
	case "edge":
		return min(max(p, 0), n-1), true
	case "reflect":
		if p < 0 {
			p = -p
		}
		if p >= n {
			p = 2*(n-1) - p
		}
		return p, true
	}
	ok := p >= 0 && p%(inner+1) == 0 && p/(inner+1) < n
	return p / (inner + 1), ok
}

// fill sets element i to a number.
func (t *Tensor) fill(i int, x float64) {
	if t.F != nil {
		t.F[i] = x
	} else {
		t.I[i] = t.Type.DType.FromFloat(x)
	}
}

// blocks is a tensor seen as outer × axis × inner.
func blocks(d []int, axis int) (outer, size, inner int) {
	outer, inner = 1, 1
	for i, k := range d {
		switch {
		case i < axis:
			outer *= k
		case i > axis:
			inner *= k
		}
	}
	return outer, d[axis], inner
}

func concat(c *call) error {
	y, axis, at := c.out[0], c.Axis(), 0
	outer, size, inner := blocks(y.dims(), axis)
	for _, x := range c.in {
		k := x.dims()[axis]
		for o := range outer {
			for i := range k * inner {
				y.set((o*size+at)*inner+i, x, o*k*inner+i)
			}
		}
		at += k
	}
	return nil
}

func split(c *call) error {
	x, axis, at := c.in[0], c.Axis(), 0
	outer, size, inner := blocks(x.dims(), axis)
	for _, y := range c.out {
		k := y.dims()[axis]
		for o := range outer {
			for i := range k * inner {
				y.set(o*k*inner+i, x, (o*size+at)*inner+i)
			}
		}
		at += k
	}
	return nil
}

func tile(c *call) error {
	x, y := c.in[0], c.out[0]
	d, s := x.dims(), strides(x.dims())
	eachIndex(y.dims(), func(i int, at []int) {
		from := 0
		for k := range at {
			from += at[k] % d[k] * s[k]
		}
		y.set(i, x, from)
	})
	return nil
}

func flip(c *call) error {
	x, y := c.in[0], c.out[0]
	d, s := x.dims(), strides(x.dims())
	eachIndex(y.dims(), func(i int, at []int) {
		from := dot(at, s)
		for _, a := range c.Axes() {
			from += (d[a] - 1 - 2*at[a]) * s[a]
		}
		y.set(i, x, from)
	})
	return nil
}

// triangle leaves the zeros of its fresh result outside the triangle.
func triangle(c *call) error {
	x, y, k := c.in[0], c.out[0], int(c.Int("k"))
	eachIndex(y.dims(), func(i int, at []int) {
		r := len(at)
		if below := at[r-1] - at[r-2]; c.Op == ir.OpTril && below <= k || c.Op == ir.OpTriu && below >= k {
			y.set(i, x, i)
		}
	})
	return nil
}

// depth returns the channel that holds pixel (bh, bw) of a block's channel ch.
func depth(mode string, ch, channels, bh, bw, block int) int {
	if mode == "crd" {
		return (ch*block+bh)*block + bw
	}
	return (bh*block+bw)*channels + ch
}

func depthToSpace(c *call) error {
	x, y, k := c.in[0], c.out[0], int(c.Int("block"))
	d, s := y.dims(), strides(x.dims())
	eachIndex(d, func(i int, at []int) {
		from := depth(c.Str("mode"), at[1], d[1], at[2]%k, at[3]%k, k)
		y.set(i, x, at[0]*s[0]+from*s[1]+at[2]/k*s[2]+at[3]/k*s[3])
	})
	return nil
}

func spaceToDepth(c *call) error {
	x, y, k := c.in[0], c.out[0], int(c.Int("block"))
	d, s := x.dims(), strides(y.dims())
	eachIndex(d, func(i int, at []int) {
		to := depth(c.Str("mode"), at[1], d[1], at[2]%k, at[3]%k, k)
		y.set(at[0]*s[0]+to*s[1]+at[2]/k*s[2]+at[3]/k*s[3], x, i)
	})
	return nil
}
