package ir

// SumOfWindows is how images follow from few outputs of windows over them: each element is the sum of
// the outputs that come from it.
type SumOfWindows struct {
	Window Window
	// Outputs, and for each the position that it comes from, of the gradient of a max pool. nil: the
	// outputs are what the convolution computes where a window of one tap meets the image. Elsewhere the
	// image is zero.
	Outputs, Index *Value
}

// Spreads is how the first result of n follows from outputs of windows, if no step has to store it: n is
// the gradient of a max pool, or that of an image by 1×1 filters with strides, and only the elementwise
// nodes of launches read its result whose gradients of norms add up such outputs
// (NormFusion.Windows). launch lists the nodes of the launch of a node. Positions of a pool must have
// one reader and fit into a byte.
func (c Caps) Spreads(n *Node, uses *Uses, launch func(n *Node) []*Node) (s SumOfWindows, ok bool) {
	conv := n.Def().Is(Convolves) && n.Def().Window.Image == Out0
	if !conv && !n.searches() || n.Why.Cluster > 0 || n.Why.Launch > 0 || !n.Out[0].Type.Shape.Static() {
		return s, false
	}
	y := n.Out[0]
	most := int64(0)
	for i, u := range uses.Of(y) {
		w := c.addsWindows(u.Node, launch)
		if most = min(most, w); i == 0 {
			most = w
		}
	}
	if most == 0 || y.Next != nil || y.Type.Shape.Elements() == 0 {
		return s, false
	}
	if conv {
		s.Window = n.Window()
		return s, s.Window.Last && s.Window.apart()
	}
	pool := n.PoolOfIndex()
	if pool == nil || len(uses.Of(n.In[1])) > 1 || n.In[1].Next != nil || pool.Why.Cluster > 0 || pool.Why.Launch > 0 {
		return s, false
	}
	s = SumOfWindows{pool.Window(), n.In[0], n.In[1]}
	return s, s.Window.Last && s.Window.few(most)
}

// addsWindows is how many windows may cover a position of an image that n, an elementwise node of a
// launch with a gradient of a norm, reads as a sum of their outputs; 0: it reads the image.
func (c Caps) addsWindows(n *Node, launch func(n *Node) []*Node) (most int64) {
	if n.Why.Launch == 0 || n.Def().Elem == nil {
		return 0
	}
	for _, m := range launch(n) {
		if f := c.NormOf(m); f.Operand > 0 {
			most = f.Windows
		}
	}
	return most
}

// PooledNorm is the norm over channels whose ReLU max pool n computes again from the norm's operand,
// statistics, scale and bias (NormFusion.Pools), so that no step stores the ReLU's result: nothing else
// reads that but launches that compute it again, too (Again). It is nil where the pool reads its image.
// launch lists the nodes of the launch of a node, kept reports whether the graph keeps a value.
func (c Caps) PooledNorm(n *Node, uses *Uses, launch func(n *Node) []*Node, kept func(v *Value) bool) *Node {
	if !n.cheap() || n.Why.Cluster > 0 || n.Why.Launch > 0 {
		return nil
	}
	norm, x := c.NormOfRelu(n.In[0])
	if norm == nil || norm.Out[0] != x || norm.Why.Launch > 0 || !c.NormOf(norm).Pools || norm.Str("layout") != n.Str("layout") {
		return nil
	}
	var only func(y *Value) bool
	only = func(y *Value) bool {
		if y.Next != nil || kept(y) {
			return false
		}
		for _, u := range uses.Of(y) {
			switch m := u.Node; {
			case m == n:
			case m.Op == OpCast && uncast(m.Out[0]) != m.Out[0]: // another form
				if !only(m.Out[0]) {
					return false
				}
			case m.Why.Launch == 0 || m.Def().Elem == nil || c.Again(launch(m), y) != norm:
				return false
			}
		}
		return true
	}
	if !only(uncast(n.In[0])) {
		return nil
	}
	return norm
}

// PoolOfIndex is the max pool that computed the positions that n, its gradient, reads, if its image has
// the shape and layout of n's result; nil otherwise.
func (n *Node) PoolOfIndex() *Node {
	index := n.In[1]
	pool := index.Def
	if pool == nil || index.Idx >= len(pool.Def().Out) || !pool.Def().Out[index.Idx].Cheap || pool.In[0].Type.Shape != n.Out[0].Type.Shape || pool.Str("layout") != n.Str("layout") {
		return nil
	}
	return pool
}

// apart reports whether windows have one tap, and some positions have none.
func (w *Window) apart() bool {
	strided := false
	for d, k := range w.Kernel {
		if k != 1 || w.Dilation[d] != 1 || w.Begin[d] != 0 || w.End[d] != 0 {
			return false
		}
		strided = strided || w.Stride[d] != 1
	}
	return strided
}

// few reports whether at most so many windows cover a position, and their taps fit into a byte.
func (w *Window) few(most int64) bool {
	n, taps := int64(1), int64(1)
	for d, k := range w.Kernel {
		if w.Dilation[d] != 1 {
			return false
		}
		taps *= k
		n *= (k + w.Stride[d] - 1) / w.Stride[d]
	}
	return n <= most && taps < 256
}

// WithoutStrides is the window over the positions that one of one tap with strides meets.
func (w Window) WithoutStrides() Window {
	w.In = w.Out
	w.Stride = make([]int64, len(w.Out))
	for d := range w.Stride {
		w.Stride[d] = 1
	}
	w.Dilation = w.Stride
	return w
}
