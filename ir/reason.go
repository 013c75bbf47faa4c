package ir

import (
	"cmp"
	"slices"
)

// Pin is a precision that code forces on one node: Precision regions of the API, pin= in the text
// form. It takes precedence over patterns and policies.
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

// Cause is what decided a node's stored dtype.
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
	ByCopy            // reads the 16-bit copy of a sharded weight that others read (Rule names the weight)
	numCauses
)

var causeNames = [numCauses]string{"", "class", "pin", "pattern", "op", "neighbour", "forward", "cut", "guard", "contract", "island", "copy"}

func (c Cause) String() string { return causeNames[c] }

// Marks are decisions of passes about a node besides its dtype.
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
	MarkAlwaysF32                    // a forward node that, like its gradients, no rule need keep in f32
	MarkReadsSigns                   // reads bits that say where its operand is above zero (Caps.Signs)
	MarkAgain                        // a max pool that computes its image again, from what a norm in front of it reads (Caps.PooledNorm)
	MarkSpread                       // images that no step stores: readers add up outputs of windows (Caps.Spreads)
)

// markAttrs are the marks that lowering reads, with the attributes that stand for them in the text form.
var markAttrs = [...]struct {
	mark Marks
	name string
}{{MarkReadsSigns, "signs"}, {MarkAgain, "again"}, {MarkSpread, "spread"}}

// takeMarks sets the marks for which attributes in list stand, and removes these.
func (n *Node) takeMarks(list *Attrs) {
	for _, m := range markAttrs {
		if list.Get(m.name) == true && n.Op != OpForeign && n.Op != OpCustom {
			n.Why.Marks |= m.mark
			*list = list.Without(m.name)
		}
	}
}

// Reason is why a node has its dtype. It is data, so that tools can follow the chain of causes; the
// printer turns it into words.
type Reason struct {
	Class   Class // class that was applied
	Cause   Cause // what decided
	Marks   Marks
	Cluster int32  // fusion cluster, a positive number that its members share; 0: none
	Launch  int32  // clusters and single nodes with the same positive number run as one step; values between them have their own dtypes
	From    *Value // value or neighbour that was the cause, or nil
	Rule    string // policy rule or pattern that applied, or ""
	// Casts are the casts in the source because of which the node stores 16 bits. The text form
	// lists them (written=). Nodes may share the list.
	Casts []SourceCast
}

// SourceCast is a cast that the user wrote: the name of its result, and its position.
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

// AddCasts adds the casts that r does not have. They are kept in the order of the source, whichever
// pass added them first.
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
