package ir

import "fmt"

// Helpers of the elementwise rows.

// pointwise completes the row of a function of one float: operand x, result y of the same shape,
// and the code. Code of a Keep row widens on load and rounds on store, so the row may read and
// store 16 bits.
func pointwise(d Def, f func(c *Code, n *Node, x Reg) Reg) Def {
	if d.In == nil {
		d.In = in(x("x"))
	}
	if d.Out == nil {
		d.Out = out(Result{Name: "y"})
	}
	if d.Class == Keep {
		d.In[0].ReadsLow, d.Out[0].StoresLow = true, true
	}
	if d.Infer == nil {
		d.Infer = inferPointwise
	}
	if d.Out[0].Name == "y" && d.In[0].Kinds != KBool {
		d.Flags |= InPlace
	}
	d.Elem = func(c *Code, n *Node) []Reg { return []Reg{f(c, n, c.In(0))} }
	return d
}

// number is an operand that may be a float or an integer.
func number(name string) Operand { return Operand{Name: name, Kinds: KNum} }

// along is the gradient of a row with one operand x and one result y.
func along(f func(b *Builder, x, y, d *Value) *Value) func(*Builder, *Node, []*Value) []*Value {
	return func(b *Builder, n *Node, d []*Value) []*Value {
		return []*Value{f(b, n.In[0], n.Out[0], d[0])}
	}
}

// flat is why rows of step functions have no gradient.
const flat = "flat: the gradient is zero wherever there is one"

// elemDType is what an elementwise row stores by default: what its number
// operands meet in (ints meet in the wider, floats win), and f32 for Keep rows.
func (n *Node) elemDType() DType {
	d := Invalid
	for _, v := range n.In {
		if v != nil && v.Type.DType != Bool {
			d = meetDTypes(d, v.Type.DType)
		}
	}
	switch {
	case d == Invalid:
		return Bool
	case !d.Float():
		return d
	case n.Def().Class == Keep && d != F64:
		d = F32
	}
	return n.outDType(d)
}

func meetDTypes(a, b DType) DType {
	switch {
	case a == Invalid || a == b:
		return b
	case a.Float() && b.Float():
		return Promote(a, b)
	case a.Float():
		return a
	case b.Float():
		return b
	}
	return meetInts(a, b)
}

// meetInts is the integer dtype in which a and b are computed together: the wider one, of two with
// one size the signed one.
func meetInts(a, b DType) DType {
	if a.Size() > b.Size() || a.Size() == b.Size() && b.unsigned() {
		return a
	}
	return b
}

// checkElemOut is checkOut for a result of dtype d, which may be an integer; no attribute changes
// that.
func (n *Node) checkElemOut(d DType) error {
	if n.Has("out") && !d.Float() {
		return fmt.Errorf("cannot store %s as %s", d, n.DT("out"))
	}
	return n.checkOut()
}

func inferPointwise(n *Node) ([]Type, error) {
	d := n.elemDType()
	return []Type{n.In[0].Type.With(d)}, n.checkElemOut(d)
}

// inferBroadcast types a row of any number of operands that broadcast.
func inferBroadcast(n *Node) ([]Type, error) {
	s, err := n.broadcastAll()
	if err != nil {
		return nil, err
	}
	d := n.elemDType()
	return []Type{{d, s}}, n.checkElemOut(d)
}

// broadcastAll returns the common shape of all operands.
func (n *Node) broadcastAll() (Shape, error) {
	first := n.In[0]
	s := first.Type.Shape
	for _, v := range n.In[1:] {
		if v == nil {
			continue
		}
		t, ok := Broadcast(s, v.Type.Shape)
		if !ok {
			return s, fmt.Errorf("shapes do not broadcast: %s %s, %s %s", first, first.Type, v, v.Type)
		}
		if t != s {
			first = v
		}
		s = t
	}
	return s, nil
}

// inferPredicate types a row that answers a question about each element.
func inferPredicate(n *Node) ([]Type, error) {
	s, err := n.broadcastAll()
	if err == nil && n.Has("out") {
		err = fmt.Errorf("cannot store bool as %s", n.DT("out"))
	}
	return []Type{{Bool, s}}, err
}

// unitPower is the unit rule of x to a power.
func unitPower(p int) UnitRule {
	return func(n *Node) (Unit, error) { return Unit("").times(n.In[0].Unit, p), nil }
}

// monotone is the range of an increasing function.
func monotone(f func(float64) float64) func(*Node, []Interval) []Interval {
	return func(_ *Node, in []Interval) []Interval {
		return []Interval{{f(in[0].Lo), f(in[0].Hi), in[0].NaN}}
	}
}

// bounded is the range of a function whose results lie in [lo, hi].
func bounded(lo, hi float64) func(*Node, []Interval) []Interval {
	return func(_ *Node, in []Interval) []Interval { return []Interval{{lo, hi, in[0].NaN}} }
}
