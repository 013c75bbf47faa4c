package passes

import (
	"maps"
	"math"

	"ampc/ir"
	"ampc/passes/ranges"
)

// recognize rewrites patterns where that is safe, and notes it: a sigmoid before a binary cross
// entropy, a log of a softmax, attention scores that are scaled after the product, and norms,
// softmax and GELU written out in simpler ops. Nodes that are no longer read are removed. A node
// stays if the nodes of its pattern have different pins.
func recognize(g *ir.Graph, c *Context) error {
	for round := range 2 { // the second round matches patterns that contain results of the first
		r := &rewriter{g: g, c: c, uses: c.uses(g), kept: keptValues(g, c), done: map[*ir.Node]bool{}, to: map[*ir.Value]*ir.Value{}, at: map[*ir.Node][]*ir.Node{}}
		body := g.Body[ir.Forward]
		for i := len(body) - 1; i >= 0; i-- { // whole patterns before parts of them
			r.visit(body[i])
		}
		if err := r.finish(body); err != nil {
			return err
		}
		if len(r.to) == 0 {
			if round == 0 && r.b == nil {
				c.keep()
			}
			return nil
		}
		c.training.index = index{}
	}
	return nil
}

// rewriter collects the replacements of one round.
type rewriter struct {
	g    *ir.Graph
	c    *Context
	b    *ir.Builder // nil until first needed
	uses *ir.Uses
	kept map[*ir.Value]bool // results of the step
	done map[*ir.Node]bool  // nodes of a match
	to   map[*ir.Value]*ir.Value
	at   map[*ir.Node][]*ir.Node // by node: the nodes that replace it

	ranges *ranges.Result // nil until first needed
}

// patterns are tried in this order. The first that matches a node applies.
var patterns = []struct {
	name, what string
	match      func(r *rewriter, n *ir.Node) (parts []*ir.Node, build func(b *ir.Builder) *ir.Value)
}{
	{"sigmoid_bce", "sigmoid and bce become bce_with_logits", (*rewriter).sigmoidBCE},
	{"log_softmax", "log of softmax becomes log_softmax", (*rewriter).logSoftmax},
	{"score_scale", "the scale of the scores moves before their product", (*rewriter).scoreScale},
	{"softmax", "spelled-out softmax becomes softmax", (*rewriter).softmax},
	{"gelu", "spelled-out GELU becomes gelu", (*rewriter).gelu},
	{"layer_norm", "spelled-out layer norm becomes layer_norm", (*rewriter).layerNorm},
	{"rms_norm", "spelled-out RMS norm becomes rms_norm", (*rewriter).rmsNorm},
}

func (r *rewriter) visit(n *ir.Node) {
	if r.done[n] || len(n.Out) == 0 {
		return
	}
	for _, p := range patterns {
		parts, build := p.match(r, n)
		if build == nil {
			continue
		}
		body := &r.g.Body[ir.Forward]
		from := len(*body)
		if r.b == nil {
			r.b = ir.Edit(r.g)
		}
		b := r.b.Deriving(n, "").Pinned(n.Pin).Scope(n.Out[0].Name)
		v := build(b)
		if v == nil {
			return
		}
		made := append([]*ir.Node(nil), (*body)[from:]...)
		*body = (*body)[:from]
		if !samePin(n, made) {
			continue
		}
		for _, m := range made {
			m.Of = nil
		}
		r.c.note("%s: %s", n.Out[0], p.what)
		r.replace(n, v, made)
		for _, part := range parts {
			if len(r.uses.Of(part.Out[0])) <= 1 {
				r.done[part] = true
			}
		}
		r.c.Count(p.name, 1)
		return
	}
}

// replace records that v, made by nodes, replaces n's first result, and the results after v the
// others. They take over the names.
func (r *rewriter) replace(n *ir.Node, v *ir.Value, made []*ir.Node) {
	r.at[n] = made
	for i, old := range n.Out {
		w := v
		if i > 0 {
			w = v.Def.Out[i]
		}
		r.to[old] = w
		w.Name, old.Name = old.Name, old.Name+".was"
	}
}

// samePin reports whether all nodes between n and the operands of made have the pin of n.
func samePin(n *ir.Node, made []*ir.Node) bool {
	seen := map[*ir.Value]bool{}
	for _, m := range made {
		for _, v := range m.In {
			seen[v] = true
		}
	}
	same := true
	var walk func(*ir.Node)
	walk = func(p *ir.Node) {
		same = same && (p.Pin == n.Pin || len(p.In) == 0)
		for _, v := range p.In {
			if v != nil && v.Def != nil && !seen[v] {
				seen[v] = true
				walk(v.Def)
			}
		}
	}
	walk(n)
	return same
}

// finish inserts the new nodes in place of the old ones.
func (r *rewriter) finish(body []*ir.Node) error {
	if r.b == nil {
		return nil
	}
	if r.b.Err() != nil || len(r.to) == 0 {
		return r.b.Err()
	}
	var out []*ir.Node
	for _, n := range body {
		out = append(out, r.at[n]...)
		if r.to[n.Out[0]] == nil {
			out = append(out, n)
		}
	}
	r.g.Body[ir.Forward] = out
	r.g.Replace(r.to)
	return dropUnread(r.g, r.c, keptValues(r.g, r.c))
}

// sigmoidBCE matches a cross entropy of probabilities that a sigmoid computes, possibly through a
// view. A cross entropy whose logits it cannot find stays, as an island that amp keeps f32.
func (r *rewriter) sigmoidBCE(n *ir.Node) ([]*ir.Node, func(*ir.Builder) *ir.Value) {
	if n.Op != ir.OpBCE {
		return nil, nil
	}
	var views, parts []*ir.Node
	s := n.In[0].Def
	for ; s != nil && isView(s); s = s.In[0].Def {
		views, parts = append(views, s), append(parts, s)
	}
	if s == nil || s.Op != ir.OpSigmoid {
		return nil, nil
	}
	return append(parts, s), func(b *ir.Builder) *ir.Value {
		x := s.In[0]
		for i := len(views) - 1; i >= 0 && x != nil; i-- {
			x = b.Emit(views[i].Op, append([]*ir.Value{x}, views[i].In[1:]...), views[i].Attrs)[0]
		}
		return b.Emit(ir.OpBCEWithLogits, []*ir.Value{x, n.In[1]}, nil)[0]
	}
}

func (r *rewriter) logSoftmax(n *ir.Node) ([]*ir.Node, func(*ir.Builder) *ir.Value) {
	if n.Op != ir.OpLog || n.In[0].Def == nil || n.In[0].Def.Op != ir.OpSoftmax {
		return nil, nil
	}
	s := n.In[0].Def
	return []*ir.Node{s}, func(b *ir.Builder) *ir.Value { return b.LogSoftmax(s.In[0], s.Int("axis")) }
}

// scoreScale matches a product that is scaled by a number below one, then possibly masked by a sum,
// before a softmax. Only f16 products can overflow, and only if the range of the product is not
// known to be well within f16 and the product is not kept f32.
func (r *rewriter) scoreScale(n *ir.Node) ([]*ir.Node, func(*ir.Builder) *ir.Value) {
	if r.c.Policy.Low != ir.F16 || !r.feedsSoftmax(n.Out[0], 0) {
		return nil, nil
	}
	x, a, shift := linear(n.Out[0])
	if shift != 0 || a <= 0 || a >= 1 || x.Def == nil || x.Def.Op != ir.OpMatmul || len(r.uses.Of(x)) != 1 || r.kept[x] {
		return nil, nil
	}
	m := x.Def
	if m.Pin == ir.PinF32 || m.Pin == ir.PinTF32 || r.bounded(x, ir.F16.Max()) {
		return nil, nil
	}
	return []*ir.Node{m}, func(b *ir.Builder) *ir.Value {
		return b.Matmul(b.Affine(m.In[0], a, 0), m.In[1], m.Flag("ta"), m.Flag("tb"))
	}
}

// bounded reports whether |v| is at most limit for all weights, by the ranges of inputs, or by
// recorded ranges (Config.Ranges).
func (r *rewriter) bounded(v *ir.Value, limit float64) bool {
	if r.ranges == nil {
		o := r.c.Ranges
		o.Inputs = maps.Clone(o.Inputs)
		for _, w := range r.g.Vars {
			if w.Kind == ir.Param {
				if o.Inputs == nil {
					o.Inputs = map[string]ir.Interval{}
				}
				o.Inputs[w.Name] = ir.Interval{Lo: math.Inf(-1), Hi: math.Inf(1)}
			}
		}
		r.ranges = ranges.Static(r.g, o)
	}
	iv := r.ranges.Of(v)
	return iv.Lo >= -limit && iv.Hi <= limit && !iv.NaN
}

func (r *rewriter) feedsSoftmax(v *ir.Value, depth int) bool {
	for _, u := range r.uses.Of(v) {
		switch {
		case u.Node.Op == ir.OpSoftmax:
			return true
		case depth < 2 && (u.Node.Op == ir.OpAdd || u.Node.Op == ir.OpWhere) && r.feedsSoftmax(u.Node.Out[0], depth+1):
			return true
		}
	}
	return false
}

// softmax matches exp(x) over the sum of the same exp(x) along one axis. x may be less its maximum
// along that axis.
func (r *rewriter) softmax(n *ir.Node) ([]*ir.Node, func(*ir.Builder) *ir.Value) {
	if n.Op != ir.OpDiv && n.Op != ir.OpMul {
		return nil, nil
	}
	p := factors(n.Out[0], 2)
	fs := p.fs
	if p.k != 1 || len(fs) != 2 {
		return nil, nil
	}
	if fs[0].halves < fs[1].halves {
		fs[0], fs[1] = fs[1], fs[0]
	}
	e, s := fs[0].v.Def, fs[1].v.Def
	if fs[0].halves != 2 || fs[1].halves != -2 || e == nil || s == nil || e.Op != ir.OpExp || s.Op != ir.OpReduceSum || s.In[0] != e.Out[0] || !s.Flag("keep") || len(s.Axes()) != 1 {
		return nil, nil
	}
	x, parts := e.In[0], append(p.via, e, s)
	if d := x.Def; d != nil && d.Op == ir.OpSub {
		if m := d.In[1].Def; m != nil && m.Op == ir.OpReduceMax && m.In[0] == d.In[0] && m.Flag("keep") && sameAxes(m, s) {
			x, parts = d.In[0], append(parts, d, m)
		}
	}
	axis := int64(s.Axes()[0] - x.Type.Shape.Rank())
	return parts, func(b *ir.Builder) *ir.Value { return b.Softmax(x, axis) }
}

func sameAxes(a, b *ir.Node) bool {
	x, y := a.Axes(), b.Axes()
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i] != y[i] {
			return false
		}
	}
	return true
}

// gelu matches x/2·(1+erf(x/√2)), or the same with tanh(√(2/π)·(x+0.044715·x³)) for the erf.
func (r *rewriter) gelu(n *ir.Node) ([]*ir.Node, func(*ir.Builder) *ir.Value) {
	if n.Op != ir.OpMul && n.Op != ir.OpAffine && n.Op != ir.OpDiv {
		return nil, nil
	}
	for depth := 1; depth <= maxDepth; depth++ {
		p := factors(n.Out[0], depth)
		if len(p.fs) != 2 || p.fs[0].halves != 2 || p.fs[1].halves != 2 {
			continue
		}
		for i := range 2 {
			x := p.fs[i].v
			if f := geluFunction(p.fs[1-i].v, x, p.k); f != nil {
				approx := f.Def().Name
				return append(p.via, f), func(b *ir.Builder) *ir.Value { return b.Gelu(x, approx) }
			}
		}
	}
	return nil, nil
}

// geluFunction is the erf or tanh node f for which k·v is (1+f)/2 and f's argument is that of GELU
// for x; nil if there is none.
func geluFunction(v, x *ir.Value, k float64) *ir.Node {
	inner, a, b := linear(v)
	if !alike(a, b) || !alike(k*a, 0.5) || inner.Def == nil {
		return nil
	}
	switch f := inner.Def; {
	case f.Op == ir.OpErf && isErfArgument(f.In[0], x), f.Op == ir.OpTanh && isTanhArgument(f.In[0], x):
		return f
	}
	return nil
}

func isErfArgument(u, x *ir.Value) bool {
	y, a, b := linear(u)
	return y == x && b == 0 && alike(a, math.Sqrt2/2)
}

// isTanhArgument matches √(2/π)·(x + 0.044715·x³), also written as √(2/π)·x·(1 + 0.044715·x²).
func isTanhArgument(u, x *ir.Value) bool {
	root := math.Sqrt(2 / math.Pi)
	sum, c, b := linear(u)
	if b != 0 {
		return false
	}
	if sum.Def != nil && sum.Def.Op == ir.OpAdd && alike(c, root) {
		for i := range 2 {
			if k, _, ok := power(sum.Def.In[1-i], x, 3); ok && sum.Def.In[i] == x && alike(k, 0.044715) {
				return true
			}
		}
	}
	for depth := 1; depth <= maxDepth; depth++ {
		p := factors(u, depth)
		if len(p.fs) != 2 || !alike(p.k, root) {
			continue
		}
		for i := range 2 {
			square, a, b := linear(p.fs[1-i].v)
			if k, _, ok := power(square, x, 2); ok && p.fs[i] == (factor{x, 2}) && alike(a*k, 0.044715) && alike(b, 1) {
				return true
			}
		}
	}
	return false
}

// normalized is c·1/√(mean(c²)+eps), possibly times a scale.
type normalized struct {
	c, scale *ir.Value
	mean     *ir.Node // the reduction of squares
	eps      float64
	parts    []*ir.Node
}

// asNormalized matches v as a normalized value over trailing dimensions.
func asNormalized(v *ir.Value) *normalized {
	for depth := 1; depth <= maxDepth; depth++ {
		p := factors(v, depth)
		if len(p.fs) == 1 && p.fs[0].v == v { // no product, whatever the depth
			return nil
		}
		if p.k == 1 && len(p.fs) >= 2 && len(p.fs) <= 3 {
			if n := normalizedBy(p); n != nil {
				return n
			}
		}
	}
	return nil
}

func normalizedBy(p *product) *normalized {
	n := &normalized{parts: p.via}
	for _, f := range p.fs {
		if f.halves != -1 {
			continue
		}
		z, a, eps := linear(f.v)
		if a == 1 && eps > 0 && z.Def != nil && (z.Def.Op == ir.OpReduceMean || z.Def.Op == ir.OpReduceVar) {
			n.mean, n.eps = z.Def, eps
			n.parts = append(n.parts, between(f.v, z)...)
		}
	}
	if n.mean == nil || !n.mean.Flag("keep") || trailing(n.mean) == 0 {
		return nil
	}
	n.parts = append(n.parts, n.mean)
	for _, f := range p.fs {
		switch {
		case f.halves == -1:
		case f.halves == 2 && n.c == nil && n.squares(f.v):
			n.c = f.v
		case f.halves == 2 && n.scale == nil:
			n.scale = f.v
		default:
			return nil
		}
	}
	if n.c == nil || n.scale != nil && !spans(n.scale, n.mean) {
		return nil
	}
	return n
}

// squares reports whether the reduction is the mean of c². The variance of x is that of x minus its
// mean.
func (n *normalized) squares(c *ir.Value) bool {
	if n.mean.Op == ir.OpReduceVar {
		x := centredOn(c, n.mean)
		return x != nil && x == n.mean.In[0] && n.mean.Int("correction") == 0
	}
	k, via, ok := power(n.mean.In[0], c, 2)
	n.parts = append(n.parts, via...)
	return ok && k == 1
}

// centredOn is x if c is x minus its mean along the axes of red, otherwise nil.
func centredOn(c *ir.Value, red *ir.Node) *ir.Value {
	d := c.Def
	if d == nil || d.Op != ir.OpSub {
		return nil
	}
	m := d.In[1].Def
	if m == nil || m.Op != ir.OpReduceMean || m.In[0] != d.In[0] || !m.Flag("keep") || !sameAxes(m, red) {
		return nil
	}
	return d.In[0]
}

// trailing is the number of last dimensions that a reduction reduces, 0 if it reduces others.
func trailing(n *ir.Node) int {
	axes, rank := n.Axes(), n.In[0].Type.Shape.Rank()
	for i, a := range axes {
		if a != rank-len(axes)+i {
			return 0
		}
	}
	return len(axes)
}

// spans reports whether the dimensions of v are exactly those that red reduces.
func spans(v *ir.Value, red *ir.Node) bool {
	k := trailing(red)
	d := red.In[0].Type.Shape.Dims()
	return v.Type.Shape == ir.MakeShape(d[len(d)-k:]...)
}

// layerNorm matches a layer norm or an RMS norm: the sum with the bias, or the product without one.
func (r *rewriter) layerNorm(n *ir.Node) ([]*ir.Node, func(*ir.Builder) *ir.Value) {
	core, bias := n.Out[0], (*ir.Value)(nil)
	var parts []*ir.Node
	if n.Op == ir.OpAdd {
		for i := range 2 {
			if m := asNormalized(n.In[i]); m != nil && spans(n.In[1-i], m.mean) {
				core, bias = n.In[i], n.In[1-i]
				parts = append(parts, core.Def)
				break
			}
		}
		if bias == nil {
			return nil, nil
		}
	}
	m := asNormalized(core)
	if m == nil {
		return nil, nil
	}
	x := centredOn(m.c, m.mean)
	if x == nil {
		return nil, nil
	}
	parts = append(append(parts, m.parts...), m.c.Def)
	return parts, func(b *ir.Builder) *ir.Value {
		return b.LayerNorm(x, m.scale, bias, ir.A("eps", m.eps, "dims", trailing(m.mean)))
	}
}

func (r *rewriter) rmsNorm(n *ir.Node) ([]*ir.Node, func(*ir.Builder) *ir.Value) {
	m := asNormalized(n.Out[0])
	if m == nil || m.mean.Op != ir.OpReduceMean {
		return nil, nil
	}
	return m.parts, func(b *ir.Builder) *ir.Value {
		return b.RMSNorm(m.c, m.scale, ir.A("eps", m.eps, "dims", trailing(m.mean)))
	}
}
