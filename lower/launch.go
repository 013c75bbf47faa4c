package lower

import (
	"fmt"

	"ampc/ir"
)

// Module is generated code with the kernels of launches.
type Module interface {
	// Text is the code that the device's driver loads.
	Text() string
}

// Argument describes one address that a kernel takes: a buffer of at least Elems elements of DType,
// and whether the kernel reads or writes it.
type Argument struct {
	Name  string
	DType ir.DType
	Elems int64
	Write bool
	Read  bool
}

// Launch is a step in the form that a GPU's driver takes: a kernel of Program.Modules over Grid
// blocks of Block threads. Args are the buffers whose addresses the kernel takes, in order. Takes
// says what the kernel does with each.
type Launch struct {
	Kernel string
	Grid   [3]int
	Block  int
	Args   []BufferID
	Takes  []Argument
	// Table is for kernels that process many buffers. The runtime writes it to Args[0], a constant,
	// when it loads the Program. It has 64-bit words: one for every block, then a row for every
	// tensor, which is its size and the words that Row describes: addresses of buffers, which all have
	// that size, or, of dtype Invalid, a number of rows. After that, buffers that are read have so many
	// rows of that size.
	Table []Word
	Row   []Argument
}

// Word is a number or, if Buffer is not None, the address of a buffer.
type Word struct {
	Value  int64
	Buffer BufferID
}

// String is the launch in the form that a printed Program shows.
func (l *Launch) String() string {
	return fmt.Sprintf("launch=%s grid=%dx%dx%d block=%d", l.Kernel, l.Grid[0], l.Grid[1], l.Grid[2], l.Block)
}
