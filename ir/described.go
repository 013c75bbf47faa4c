package ir

import (
	"fmt"
	"slices"
	"strings"
)

// Attributes by which a line of text describes the row of a custom op.
const (
	saidClass    = "op.class"    // the row's class
	saidWhy      = "op.why"      // the class's reason
	saidUnit     = "op.scaling"  // effect of a loss scale on the operands: same, product or any
	saidLow      = "op.low"      // results that are low if all float operands are
	saidGradient = "op.gradient" // the gradient, as a graph over operands x0.., results y0.. and gradients d0.. of results
	saidWrt      = "op.wrt"      // the operands whose gradients the graph returns
	saidIn       = "op.in"       // for each operand its class or -, with +low if it may have 16 bits
	saidOut      = "op.out"      // for each result its class or -, with +low and +f32 if it may be stored so
)

// Described returns a copy of g for printing. Every line with a custom op describes its row, as far
// as text can: class and reason, the effect of a loss scale, and the gradient. Kernels are
// functions and are not in the text. ParseOpaque reads the copy.
func (g *Graph) Described() *Graph {
	c := g.Clone()
	for _, n := range c.Nodes {
		if n.Op == OpCustom {
			n.Attrs = n.described(c)
		}
	}
	return c
}

// described returns the attributes of n and the description of its row.
func (n *Node) described(g *Graph) Attrs {
	d := n.Custom
	a := n.Attrs.With(saidClass, d.Class.String())
	if d.Why != "" {
		a = a.With(saidWhy, d.Why)
	}
	if unit := n.scaling(); unit != "" {
		a = a.With(saidUnit, unit)
	}
	if in := d.operandWords(len(n.In)); strings.Trim(in, "- ") != "" {
		a = a.With(saidIn, in)
	}
	if out := d.resultWords(); strings.Trim(out, "- ") != "" {
		a = a.With(saidOut, out)
	}
	if low := n.followers(); len(low) > 0 {
		a = a.With(saidLow, low)
	}
	if d.Grad == nil {
		return a
	}
	body, wrt := n.gradient(g)
	if body == nil { // compiling the model reports the error in Grad
		return a
	}
	return a.With(saidGradient, body).With(saidWrt, wrt)
}

func classWord(c Class, low, f32 bool) string {
	word := "-"
	if c != NoClass {
		word = c.String()
	}
	if low {
		word += "+low"
	}
	if f32 {
		word += "+f32"
	}
	return word
}

// readWord parses the result of classWord.
func readWord(word string) (c Class, low, f32 bool) {
	parts := strings.Split(word, "+")
	c, _ = ClassOf(parts[0])
	return c, slices.Contains(parts[1:], "low"), slices.Contains(parts[1:], "f32")
}

func (d *Def) operandWords(n int) string {
	words := make([]string, n)
	for i := range words {
		o := d.In[min(i, len(d.In)-1)]
		words[i] = classWord(o.Class, o.ReadsLow, false)
	}
	return strings.Join(words, " ")
}

func (d *Def) resultWords() string {
	words := make([]string, len(d.Out))
	for i, r := range d.Out {
		words[i] = classWord(r.Class, r.StoresLow, r.StoresF32)
	}
	return strings.Join(words, " ")
}

// scaling is the word for the row's unit rule, found by applying the rule. It is "" if the row
// refuses scaled values.
func (n *Node) scaling() string {
	probe := &Node{Op: n.Op, Custom: n.Custom, Attrs: n.Attrs, In: make([]*Value, len(n.In)), Out: []*Value{{Name: "y"}}}
	for i, v := range n.In {
		if v != nil {
			probe.In[i] = &Value{Name: v.Name, Type: v.Type, Unit: "s"}
		}
	}
	switch u, err := n.Custom.Unit(probe); {
	case err != nil:
		return ""
	case u == "":
		return "any"
	case u == "s": // with one operand, product is the same as same
		return "same"
	}
	return "product"
}

// followers lists the float results that are low if all float operands are.
func (n *Node) followers() []int64 {
	probe := &Node{Op: n.Op, Custom: n.Custom, Attrs: n.Attrs, In: make([]*Value, len(n.In))}
	for i, v := range n.In {
		if v == nil {
			continue
		}
		w := *v
		if w.Type.DType.Float() {
			w.Type = w.Type.With(F16)
		}
		probe.In[i] = &w
	}
	types, err := n.Custom.Infer(probe)
	if err != nil {
		return nil
	}
	var low []int64
	for i, t := range types {
		if t.DType == F16 {
			low = append(low, int64(i))
		}
	}
	return low
}

// gradient is the gradient of n as a separate graph, and the operands that have one; nil if the
// row's Grad fails.
func (n *Node) gradient(g *Graph) (*Graph, []int64) {
	b := NewBuilder("gradient")
	b.g.Syms = slices.Clone(g.Syms)
	input := func(prefix string, i int, v *Value) *Value {
		if v == nil {
			return nil
		}
		return b.Declare(Input, fmt.Sprint(prefix, i), v.Type, nil, nil)
	}
	like := &Node{Op: n.Op, Custom: n.Custom, Attrs: n.Attrs}
	for i, v := range n.In {
		like.In = append(like.In, input("x", i, v))
	}
	d := make([]*Value, len(n.Out))
	for i, v := range n.Out {
		like.Out = append(like.Out, input("y", i, v))
		if v.Type.DType.Float() {
			d[i] = input("d", i, v)
		}
	}
	grads := n.Custom.Grad(b, like, d)
	if b.Err() != nil {
		return nil, nil
	}
	wrt := []int64{}
	for i, v := range grads {
		if v != nil {
			wrt = append(wrt, int64(i))
			b.Return(v)
		}
	}
	return b.g, wrt
}

// takeSaid separates the description of a custom op's row from the op's own attributes.
func takeSaid(a Attrs) (own, said Attrs) {
	for _, x := range a {
		if strings.HasPrefix(x.Name, "op.") {
			said = append(said, x)
		} else {
			own = append(own, x)
		}
	}
	return own, said
}

// hear completes row d by its description.
func (d *Def) hear(said Attrs) {
	if class, ok := ClassOf(fmt.Sprint(said.Get(saidClass))); ok {
		d.Class, d.Why = class, ""
		d.Why, _ = said.Get(saidWhy).(string)
	}
	d.Unit = map[any]UnitRule{"same": UnitSame, "product": UnitProduct, "any": UnitAny}[said.Get(saidUnit)]
	if d.Unit == nil {
		d.Unit = UnitOne
	}
	in, _ := said.Get(saidIn).(string)
	for i, word := range strings.Fields(in) {
		if i < len(d.In) {
			d.In[i].Class, d.In[i].ReadsLow, _ = readWord(word)
		}
	}
	out, _ := said.Get(saidOut).(string)
	for i, word := range strings.Fields(out) {
		if i < len(d.Out) {
			d.Out[i].Class, d.Out[i].StoresLow, d.Out[i].StoresF32 = readWord(word)
		}
	}
	body, _ := said.Get(saidGradient).(*Graph)
	if body == nil {
		return
	}
	wrt, _ := said.Get(saidWrt).([]int64)
	d.NoGrad = ""
	d.Grad = func(b *Builder, n *Node, grads []*Value) []*Value { return body.inline(b, n, grads, wrt) }
}

// inline emits the gradient graph g of n for the given gradients of its results. It returns those
// of the operands wrt.
func (g *Graph) inline(b *Builder, n *Node, grads []*Value, wrt []int64) []*Value {
	to := map[*Value]*Value{}
	for _, v := range g.Vars {
		if v.Kind == Const {
			to[v] = b.Declare(Const, b.unique(v.Name), v.Type, v.Init, v.Attr)
			continue
		}
		var i int
		var prefix rune
		_, err := fmt.Sscanf(v.Name, "%c%d", &prefix, &i)
		list := map[rune][]*Value{'x': n.In, 'y': n.Out, 'd': grads}[prefix]
		if err != nil || i < 0 || i >= len(list) || v.Kind != Input {
			b.Fail("%s: its gradient reads %s, which it does not have", n.Def().Name, v)
			return nil
		}
		if to[v] = list[i]; list[i] == nil && prefix == 'd' { // no gradient arrives
			to[v] = b.zerosLike(n.Out[i])
		}
	}
	for _, x := range g.Body[Forward] {
		k := &Node{Op: x.Op, Custom: x.Custom, Attrs: x.Attrs}
		for _, v := range x.In {
			k.In = append(k.In, to[v])
		}
		out := b.EmitNode(k, nil)
		if b.err != nil {
			return nil
		}
		for i, v := range out {
			to[x.Out[i]] = v
		}
	}
	out := make([]*Value, len(n.In))
	for i, v := range g.Return {
		if i < len(wrt) && wrt[i] >= 0 && int(wrt[i]) < len(out) {
			out[wrt[i]] = to[v]
		}
	}
	return out
}

// typed returns types of the text for n: with the sizes that n's operands have for dimensions of
// the text's operands, and with 16 bits for the results low if n's operands have 16 bits.
func typed(n *Node, operands, types []Type, low []int64) []Type {
	sizes := map[Dim]Dim{}
	var d DType
	for i, v := range n.In {
		if v == nil || i >= len(operands) {
			continue
		}
		if v.Type.DType.Float() && (d == Invalid || v.Type.DType == F32) {
			d = v.Type.DType
		}
		if was, is := operands[i].Shape, v.Type.Shape; was.Known() && is.Known() && was.Rank() == is.Rank() {
			for k, dim := range was.Dims() {
				sizes[dim] = is.Dims()[k]
			}
		}
	}
	out := slices.Clone(types)
	for i, t := range out {
		if slices.Contains(low, int64(i)) && d.Low() {
			t.DType = d
		}
		if t.Shape.Known() {
			dims := slices.Clone(t.Shape.Dims())
			for k, dim := range dims {
				if size, ok := sizes[dim]; ok && dim < 0 {
					dims[k] = size
				}
			}
			t.Shape = MakeShape(dims...)
		}
		out[i] = t
	}
	return out
}
