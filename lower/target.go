package lower

import (
	"ampc/ir"
)

// Target is what Programs are lowered for: its capabilities, and the rules where lowering for it
// differs from the shared one. Targets are compared with ==. An implementation embeds Shared and
// overrides what differs.
type Target interface {
	// String is the name in Programs and flags: "cpu", "sm_90/nodnn".
	String() string
	// Caps is what the target's kernels and libraries can do.
	Caps() ir.Caps

	// Rule is the rule of a node; nil if the target does not run it.
	Rule(n *ir.Node) Rule
	// Refusal says why Rule is nil: the rest of a sentence that begins with the op. "" means that
	// no rule lowers the op.
	Refusal(n *ir.Node) string
	// Expands reports whether the target runs the expansion of n's row in place of n.
	Expands(n *ir.Node) bool
	// Widens reports whether the operands of an expansion are cast to f32 first, except those that
	// it reads AsStored. A row computes in f32 inside; its expansion must not round the values in
	// between.
	Widens() bool

	// Fuses reports whether one step may run several nodes and write parts of a tensor. If not,
	// every node is a step over dense tensors.
	Fuses() bool
	// ReadsStrided reports whether attention reads and writes elements of dtype d in view p.
	ReadsStrided(d ir.DType, p ir.StridedView) bool
	// Refreshes reports whether prepare casts variables to the weight copies that the update keeps.
	// If not, the backend makes the casts when a variable was written from outside.
	Refreshes() bool

	// Finish rewrites the steps of a Program before its memory is planned.
	Finish(p *Program) error
	// Order gives the steps of a planned Program streams and events.
	Order(p *Program)

	// Library names the library that runs steps of kind k without a launch, "" for none.
	Library(k StepKind) string
	// Verify checks what the target itself adds to a step (see Verify of this package).
	Verify(p *Program, s *Step) error
}

// Shared is the lowering that targets have in common: every node by SharedRule, with fusion, on one
// stream.
type Shared struct{}

func (Shared) Rule(n *ir.Node) Rule                           { return SharedRule(n) }
func (Shared) Refusal(*ir.Node) string                        { return "" }
func (Shared) Expands(*ir.Node) bool                          { return false }
func (Shared) Widens() bool                                   { return false }
func (Shared) Fuses() bool                                    { return true }
func (Shared) ReadsStrided(_ ir.DType, p ir.StridedView) bool { return p.Rows() }
func (Shared) Refreshes() bool                                { return false }
func (Shared) Finish(*Program) error                          { return nil }
func (Shared) Order(*Program)                                 {}
func (Shared) Library(StepKind) string                        { return "" }
func (Shared) Verify(*Program, *Step) error                   { return nil }
