package lower

import (
	"fmt"

	"ampc/ir"
)

// Module is generated code whose kernels launches name.
type Module interface {
	// Text is what the device's driver loads.
	Text() string
}

// Argument is what a kernel does with one address that it takes: Elems elements
// at least, of a buffer of DType.
type Argument struct {
	Name  string
	DType ir.DType
	Elems int64
	Write bool // written by the kernel
	Read  bool // read by the kernel
}

// Launch is a step as a GPU's driver takes it: a kernel of Program.Modules over
// Grid blocks of Block threads. Args are the buffers whose addresses it takes,
// in order, and Takes is what the kernel does with each.
type Launch struct {
	Kernel string
	Grid   [3]int
	Block  int
	Args   []BufferID
	Takes  []Argument
	// Table is what the runtime writes to Args[0], a constant, when it loads the
	// Program: 64-bit words, for kernels that go through many buffers. It has a
	// word for every block, then a row for every tensor: its size and the
	// addresses of what Row describes, which are as large.
	Table []Word
	Row   []Argument
}

// Word is a number, or where Buffer is not None the address of a buffer.
type Word struct {
	Value  int64
	Buffer BufferID
}

// String is the launch as a Program prints it.
func (l *Launch) String() string {
	return fmt.Sprintf("launch=%s grid=%dx%dx%d block=%d", l.Kernel, l.Grid[0], l.Grid[1], l.Grid[2], l.Block)
}
