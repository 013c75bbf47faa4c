package ir

import "fmt"

var binaryRows = map[Op]Def{
	OpAdd: {
		Name: "add", Doc: "Adds, broadcasting the operands.",
		In: in(x("a"), x("b")), Out: out(Result{Name: "y"}), Flags: Commutative | InPlace,
		Class: PromoteC, Why: "takes the wider operand", Unit: UnitSame,
		Infer: inferBinary, Grad: gradAdd,
		Elem: func(c *Code, _ *Node) []Reg { return []Reg{c.Add(c.In(0), c.In(1))} },
	},
	OpMul: {
		Name: "mul", Doc: "Multiplies, broadcasting the operands.",
		In: in(x("a"), x("b")), Out: out(Result{Name: "y"}), Flags: Commutative | InPlace,
		Class: PromoteC, Why: "takes the wider operand", Unit: UnitProduct,
		Infer: inferBinary, Grad: gradMul,
		Elem: func(c *Code, _ *Node) []Reg { return []Reg{c.Mul(c.In(0), c.In(1))} },
	},
}

func inferBinary(n *Node) ([]Type, error) {
	a, b := n.In[0], n.In[1]
	s, ok := Broadcast(a.Type.Shape, b.Type.Shape)
	if !ok {
		return nil, fmt.Errorf("shapes do not broadcast: %s %s, %s %s", a, a.Type, b, b.Type)
	}
	d := a.Type.DType
	if d.Float() || b.Type.DType.Float() {
		d = n.outDType(Promote(a.Type.DType, b.Type.DType))
	}
	return []Type{{d, s}}, n.checkOut()
}

// Add returns a+b, broadcast.
func (b *Builder) Add(x, y *Value) *Value { return b.Emit(OpAdd, []*Value{x, y}, nil)[0] }

// Mul returns x·y, broadcast.
func (b *Builder) Mul(x, y *Value) *Value { return b.Emit(OpMul, []*Value{x, y}, nil)[0] }

func gradAdd(b *Builder, n *Node, d []*Value) []*Value {
	return []*Value{d[0], d[0]} // the row author sums broadcast dimensions away with sum_to
}

func gradMul(b *Builder, n *Node, d []*Value) []*Value {
	return []*Value{b.Mul(d[0], n.In[1]), b.Mul(d[0], n.In[0])}
}
