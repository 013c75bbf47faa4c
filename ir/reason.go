package ir

import (
	"cmp"
	"slices"
)

// Pin is a precision forced by code for one node: Precision regions of the API,
// pin= in the text form. It beats every pattern and policy.
type Pin uint8

const (
	Unpinned Pin = iota
	PinF32
	PinTF32
	PinLow
	numPins
)

var pinNames = [numPins]string{"", "f32", "tf32", "low"}

func (p Pin) String() string { return pinNames[p] }

// Cause is what fixed a node's stored dtype.
type Cause uint8

const (
	Undecided   Cause = iota
	ByClass           // the row's class under the policy
	ByPin             // Precision region or pin=
	ByPattern         // a name pattern of the policy
	ByOp              // an op override of the policy
	ByNeighbour       // an operand or reader left no choice (From names it)
	ByForward         // follows its forward node (From names it)
	ByCut             // free: the minimum cut chose it
	ByGuard           // a range guard vetoed low
	ByContract        // the op's own contract: casts, scaler, optimizer
	ByIsland          // part of a computation that 16 bits would break (Rule names it)
	numCauses
)

var causeNames = [numCauses]string{"", "class", "pin", "pattern", "op", "neighbour", "forward", "cut", "guard", "contract", "island"}

func (c Cause) String() string { return causeNames[c] }

// Marks are decisions that passes record on a node beyond its dtype.
type Marks uint16

const (
	MarkCached     Marks = 1 << iota // a cast that is shared by all readers of its value
	MarkHoisted                      // moved to prepare
	MarkReadsLow                     // a kept row that reads 16-bit operands itself
	MarkStoresF32                    // a low row that stores its f32 accumulator
	MarkStoresLow                    // a kept row that stores 16 bits
	MarkInserted                     // a cast that amp placed
	MarkSeed                         // the start of a backward sweep
	MarkStoresCast                   // stores 16 bits in place of a cast that the user wrote
	MarkRepeated                     // a forward node that backward runs a second time
)

// Reason is why a node has the dtype it has: data, so that tools can follow the
// chain of causes; the printer turns it into words.
type Reason struct {
	Class   Class // the class applied
	Cause   Cause // what decided
	Marks   Marks
	Cluster int32  // fusion cluster, 0: none; a positive id shared by its members
	Launch  int32  // clusters and single nodes of one positive id run as one step; values between them keep their dtypes
	From    *Value // the value or neighbour it came from, nil where none
	Rule    string // the policy rule or pattern that applied, "" where none
	// Casts are the casts in the source that ask for the 16 bits that the node
	// stores. The text form names them (written=); nodes may share the list.
	Casts []SourceCast
}

// SourceCast is a cast that the user wrote: the name of its result, and where it stands.
type SourceCast struct {
	Name string
	Pos  Pos
}

// String is the name, with file and line where they are known.
func (c SourceCast) String() string {
	if c.Pos.File == "" {
		return c.Name
	}
	return c.Name + " (" + c.Pos.String() + ")"
}

// AddCasts adds those casts that r does not have. They stand in the order of the
// source, whichever pass added them first.
func (r *Reason) AddCasts(casts []SourceCast) {
	for _, c := range casts {
		if !slices.Contains(r.Casts, c) {
			r.Casts = append(slices.Clip(r.Casts), c)
			slices.SortFunc(r.Casts, func(a, b SourceCast) int {
				return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Name, b.Name))
			})
		}
	}
}

// Has reports whether all of m are set.
func (r Reason) Has(m Marks) bool { return r.Marks&m == m }
