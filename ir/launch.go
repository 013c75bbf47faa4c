package ir

// ProductLaunch is a product with its own epilogue and one more node that the same kernel runs
// (Caps.Products). Both have their own dtypes.
type ProductLaunch struct {
	Product *Node
	Result  *Value // result of the product and its epilogue
	Bias    *Value // operand that the epilogue adds; nil: none
	With    *Node
	// Summed is the operand of Product whose rows With sums, or -1 if With reads Result.
	Summed int
}

// Aux is what the gradient of an activation reads besides the product's result; nil if With is not
// such a gradient.
func (l *ProductLaunch) Aux() *Value {
	if l.With.Op == OpGeluGrad {
		return l.With.In[1]
	}
	return nil
}

// Stores reports whether the kernel can store the product's result besides that of With.
func (l *ProductLaunch) Stores() bool { return l.Summed >= 0 || l.With.Op == OpGelu }

// ProductLaunch finds the product among nodes, its own epilogue, whose nodes are in its cluster,
// and the one other node. ok reports whether the product's kernel runs all of them for some dtypes.
func (c Caps) ProductLaunch(nodes []*Node) (l ProductLaunch, ok bool) {
	for _, n := range nodes {
		if c.ProductsOf(n) != (ProductFusion{}) && l.Product == nil {
			l.Product = n
		}
	}
	if l.Product == nil {
		return l, false
	}
	rest := c.ownEpilogue(&l, nodes)
	if len(rest) != 1 || len(rest[0].Out) != 1 || rest[0].Out[0].Next != nil || l.Result.Next != nil {
		return l, false
	}
	l.With, l.Summed = rest[0], -1
	f, m := c.ProductsOf(l.Product), l.With
	switch m.Op {
	case OpGelu:
		return l, f.Gelu && m.In[0] == l.Result && l.Bias != l.Result && m.Str("approx") == "tanh"
	case OpGeluGrad:
		return l, f.Gelu && l.Result == l.Product.Out[0] && l.Bias == nil && m.In[0] == l.Result && m.Str("approx") == "tanh" && l.passesAside(m.In[1])
	case OpRelu:
		return l, f.Relu && m.In[0] == l.Result
	case OpReduceSum:
		l.Summed = summedBeside(l.Product, m)
		return l, f.Sums && l.Result == l.Product.Out[0] && l.Bias == nil && l.Summed >= 0
	}
	return l, false
}

// passesAside reports whether v is a tensor of which neither l's product nor its result is a view.
func (l *ProductLaunch) passesAside(v *Value) bool {
	x := shownBy(v)
	return isDense(v) && x != l.Result && x != shownBy(l.Product.In[0]) && x != shownBy(l.Product.In[1])
}

// ownEpilogue finds what the product's own epilogue computes, and returns the other nodes. An
// epilogue with an activation or a residual excludes a launch: then all nodes are returned.
func (c Caps) ownEpilogue(l *ProductLaunch, nodes []*Node) (rest []*Node) {
	stage := c.EpilogueOf(l.Product)
	l.Result, l.Bias = l.Product.Out[0], l.Product.Bias()
	for _, n := range nodes {
		switch {
		case n == l.Product:
		case stage == AfterProduct && n.Why.Cluster > 0 && n.Why.Cluster == l.Product.Why.Cluster && reads(n, l.Result) && c.Extends(stage, n, l.Result) == AfterBias:
			stage = AfterBias
			l.Bias = n.In[0]
			if l.Bias == l.Result {
				l.Bias = n.In[1]
			}
			l.Result = n.Out[0]
		default:
			rest = append(rest, n)
		}
	}
	return rest
}

func reads(n *Node, v *Value) bool {
	for _, x := range n.In {
		if x == v {
			return true
		}
	}
	return false
}

// summedBeside is the operand of product n that it sums along its rows and whose rows m sums, or
// -1.
func summedBeside(n, m *Node) int {
	x, y := m.In[0].Type.Shape, m.Out[0].Type.Shape
	if !x.Known() || x.Rank() < 2 || y.Rank() != 1 || y.Dim(0) != x.Dim(-1) || len(m.Axes()) != x.Rank()-1 || !isDense(m.In[0]) {
		return -1
	}
	for _, i := range m.Axes() {
		if i == x.Rank()-1 {
			return -1
		}
	}
	for k, along := range []bool{n.Flag("ta"), !n.Flag("tb")} {
		v := n.In[k]
		if along && isDense(v) && shownBy(v) == shownBy(m.In[0]) && v.Type.Shape.Dim(-1) == x.Dim(-1) && v.Type.Shape.Elements() == x.Elements() {
			return k
		}
	}
	return -1
}

// shownBy is the tensor that v is a view of, or v.
func shownBy(v *Value) *Value {
	for v.Def != nil && v.Def.Def().Is(View) && v.Next == nil {
		v = v.Def.In[0]
	}
	return v
}

// isDense reports whether v is not a part of another tensor (see the attribute view of moves). The
// result of a concatenation is not dense, because its operands are parts of it.
func isDense(v *Value) bool {
	v = shownBy(v)
	return v.Def == nil || v.Def.Joins() || !v.Def.Def().Is(Moves) || !v.Def.Flag("view")
}

// Fits reports whether the kernel runs l in the dtypes of its values: operands of one 16-bit dtype,
// and all other values of one dtype, which is the same or f32, for sums f32.
func (l *ProductLaunch) Fits() bool {
	a, d := l.Product.In[0].Type.DType, l.Result.Type.DType
	if !a.Low() || l.Product.In[1].Type.DType != a || d != a && d != F32 {
		return false
	}
	if l.Summed >= 0 {
		return d == F32 && l.With.Out[0].Type.DType == F32 && l.With.In[0].Type.DType == a
	}
	for _, v := range append([]*Value{l.Bias, l.With.Out[0]}, l.With.In...) {
		if v != nil && v.Type.DType != d {
			return false
		}
	}
	return true
}

// Again is the norm of whose ReLU v is the result, if the launch nodes compute v again: v is read by
// nodes that compute dy for one gradient over channels (NormFusion.Operand), and what v follows from
// that gradient reads in any case, up to the norm's scale and bias. It is nil where they read v.
func (c Caps) Again(nodes []*Node, v *Value) *Node {
	var grad *Node
	for _, n := range nodes {
		if c.NormOf(n).Operand == 0 {
			continue
		}
		if grad != nil {
			return nil
		}
		grad = n
	}
	n, y := c.NormOfRelu(v)
	if grad == nil || n == nil || n.Out[0] != y || n.Op != grad.Def().GradOf || n.Why.Launch > 0 {
		return nil
	}
	if n.In[0] != grad.In[0] || n.Out[1] != grad.In[2] || n.Out[2] != grad.In[3] {
		return nil
	}
	return n
}

// uncast is the value whose form a cast in the same cluster has made v; v itself where v is none.
func uncast(v *Value) *Value {
	for v.Def != nil && v.Def.Op == OpCast && v.Def.Why.Cluster > 0 && v.Def.In[0].Def != nil && v.Def.In[0].Def.Why.Cluster == v.Def.Why.Cluster {
		v = v.Def.In[0]
	}
	return v
}

// NormOfRelu is the norm over channels whose kernel ends in the ReLU that v is the result of, and the
// operand of that ReLU: the norm's result, or its sum with another tensor. The norm is nil for other
// values.
func (c Caps) NormOfRelu(v *Value) (norm *Node, x *Value) {
	relu := uncast(v).Def
	if relu == nil || relu.Op != OpRelu || relu.Why.Cluster == 0 {
		return nil, nil
	}
	x = relu.In[0]
	from := relu.In[:1]
	if x.Def != nil && x.Def.Op == OpAdd && x.Def.Why.Cluster == relu.Why.Cluster {
		from = x.Def.In
	}
	for _, y := range from {
		if n := y.Def; n != nil && y.Idx == 0 && n.Why.Cluster == relu.Why.Cluster && c.FusesNormEpilogue(n) {
			return n, x
		}
	}
	return nil, nil
}

// Signs reports whether the nodes of a launch, of which n is one, need of n's operand i only to know
// which elements are above zero, and the kernel of a norm can store that as bits (NormFusion.Signs):
// it ends in the ReLU that computes the operand. Nodes that compute the operand again do not
// (Again).
func (c Caps) Signs(nodes []*Node, n *Node, i int) bool {
	v := uncast(n.In[i])
	gradient := false
	for _, m := range nodes {
		if f := c.NormOf(m); f.Operand > 0 {
			if !f.Signs || uncast(m.In[0]) == v {
				return false
			}
			gradient = true
			continue
		}
		for k, x := range m.In {
			if x != nil && uncast(x) == v && !m.OperandDef(k).Sign {
				return false
			}
		}
	}
	norm, _ := c.NormOfRelu(v)
	return gradient && norm != nil && c.NormOf(norm).Signs && c.Again(nodes, v) == nil
}
