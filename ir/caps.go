package ir

// Caps is what the kernels of a target convert by themselves, as plain data.
// The rows state what is possible (ReadsLow, StoresLow, StoresF32, elementwise
// code); Caps takes away what a target's kernels lack. The zero Caps takes
// nothing away: the CPU.
type Caps struct {
	NoLoad  map[Op]bool // the kernel reads operands in one dtype only
	NoStore map[Op]bool // the kernel stores what it computes in
	// Epilogue lets elementwise nodes join the group of the product that feeds them.
	Epilogue bool
}

// Loads reports whether n's kernel converts operand i to f32 while reading it.
func (c Caps) Loads(n *Node, i int) bool {
	if c.NoLoad[n.Op] || n.OperandClass(i) == Fixed {
		return false
	}
	return n.Def().Elem != nil || n.OperandDef(i).ReadsLow
}

// StoresLow reports whether n's kernel can store result 0 in 16 bits although
// it computes in f32.
func (c Caps) StoresLow(n *Node) bool {
	if c.NoStore[n.Op] || n.ResultClass(0) == Fixed {
		return false
	}
	return n.Def().Elem != nil || n.Def().Out[0].StoresLow
}

// StoresF32 reports whether n's kernel can store result 0 in f32 although its
// operands are low.
func (c Caps) StoresF32(n *Node) bool {
	return !c.NoStore[n.Op] && (n.Def().Elem != nil || n.Def().Out[0].StoresF32)
}
