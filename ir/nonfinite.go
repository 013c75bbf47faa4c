package ir

// Numbers is a set of the kinds of number that a float may be.
type Numbers uint8

const (
	Finite Numbers = 1 << iota
	PosInf
	NegInf
	NaN

	Nonfinite = PosInf | NegInf | NaN
)

// String lists the kinds, as in "+Inf or NaN".
func (s Numbers) String() string {
	text := ""
	for i, name := range [...]string{"finite", "+Inf", "-Inf", "NaN"} {
		if s&(1<<i) == 0 {
			continue
		}
		if text != "" {
			text += " or "
		}
		text += name
	}
	return text
}

// HandsOn returns what an element of operand i that is one of x leaves: some element of a float
// result is one of the returned numbers, whatever the other elements and operands are. If Finite is
// among them, an infinity or NaN may be lost. Results and operands without floats or without
// elements pass nothing on, and neither does an operand of which the node selects a part.
func (n *Node) HandsOn(i int, x Numbers) Numbers { return n.HandsOnWhere(i, x, nil) }

// HandsOnWhere is HandsOn if some truth values among the operands are known: flag returns the value
// of an operand, and whether it is known. nil: none is. It matters for elementwise rows that
// select, such as accum.
func (n *Node) HandsOnWhere(i int, x Numbers, flag func(operand int) (yes, known bool)) Numbers {
	d := n.Def()
	if x&Finite != 0 || i >= len(n.In) || n.In[i] == nil || !n.In[i].Type.DType.Float() || !n.fillsFloats() {
		return Finite | x
	}
	if d.Nonfinite == nil && d.Elem == nil {
		return Finite | x
	}
	var got Numbers
	for _, k := range [...]Numbers{PosInf, NegInf, NaN} {
		switch {
		case x&k == 0:
		case d.Nonfinite != nil:
			got |= d.Nonfinite(n, i, k)
		default:
			got |= n.elemHandsOn(i, k, flag)
		}
	}
	return got
}

// Keeps reports whether any Inf or NaN in operand i leaves one in a result.
func (n *Node) Keeps(i int) bool { return n.HandsOn(i, Nonfinite)&Finite == 0 }

// fillsFloats reports whether n has a float result, and every result has elements.
func (n *Node) fillsFloats() bool {
	floats := false
	for _, v := range n.Out {
		if v.Type.Shape.Elements() == 0 {
			return false
		}
		floats = floats || v.Type.DType.Float()
	}
	return floats
}

// The functions below are Def.Nonfinite of rows without code.

// passed: every element of the operand is an element of a result.
func passed(_ *Node, _ int, x Numbers) Numbers { return x }

// added: every element, or its product with another one, is added to a sum.
func added(_ *Node, _ int, x Numbers) Numbers {
	if x == NaN {
		return NaN
	}
	return Nonfinite
}

// addedAsIs: every element is added to a sum, with its sign.
func addedAsIs(_ *Node, _ int, x Numbers) Numbers { return x | NaN }

// addedUp: the magnitude of every element is added to a sum.
func addedUp(_ *Node, _ int, x Numbers) Numbers {
	if x == NaN {
		return NaN
	}
	return PosInf | NaN
}

// spoils: an element turns other elements into NaN.
func spoils(_ *Node, _ int, _ Numbers) Numbers { return NaN }

// largest and smallest select elements: NaN comes first, then the infinity of one sign.
func largest(_ *Node, _ int, x Numbers) Numbers {
	if x == NegInf {
		return Finite | Nonfinite
	}
	return x | NaN
}

// largestSpoils: if the maximum is subtracted from all elements, +Inf leaves NaN.
func largestSpoils(_ *Node, _ int, x Numbers) Numbers {
	if x == NegInf {
		return Finite | Nonfinite
	}
	return NaN
}

func smallest(_ *Node, _ int, x Numbers) Numbers {
	if x == PosInf {
		return Finite | Nonfinite
	}
	return x | NaN
}

// only is f for the named operands, and returns nothing for the others.
func only(f func(*Node, int, Numbers) Numbers, operands ...string) func(*Node, int, Numbers) Numbers {
	return func(n *Node, i int, x Numbers) Numbers {
		for _, name := range operands {
			if n.OperandDef(i).Name == name {
				return f(n, i, x)
			}
		}
		return Finite | x
	}
}

// whole is f if the condition is true, and returns nothing otherwise.
func whole(f func(*Node, int, Numbers) Numbers, cond func(n *Node) bool) func(*Node, int, Numbers) Numbers {
	return func(n *Node, i int, x Numbers) Numbers {
		if cond(n) {
			return f(n, i, x)
		}
		return Finite | x
	}
}

// takesAll reports whether a slice takes every element.
func takesAll(n *Node) bool {
	k := n.In[0].Type.Shape.Elements()
	return k >= 0 && k == n.Out[0].Type.Shape.Elements()
}

// dropsNone reports whether a pad removes no elements.
func dropsNone(n *Node) bool {
	for _, side := range [...]string{"lo", "hi"} {
		for _, k := range n.Ints(side) {
			if k < 0 {
				return false
			}
		}
	}
	return true
}
