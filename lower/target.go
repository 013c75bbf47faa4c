package lower

import (
	"ampc/ir"
)

// Target is what Programs are lowered for: capabilities, and the rules by which
// lowering for it differs from the shared one. Targets are compared with ==. An
// implementation embeds Shared and overrides what it does otherwise.
type Target interface {
	// String is the name that Programs and flags show: "cpu", "sm_90/nodnn".
	String() string
	// Caps is what the target's kernels and libraries can do.
	Caps() ir.Caps

	// Rule is how a node lowers, nil where the target does not run it.
	Rule(n *ir.Node) Rule
	// Refusal says why Rule is nil: the end of a sentence that begins with the
	// op. "" stands for: no rule lowers it.
	Refusal(n *ir.Node) string
	// Expands reports whether the expansion of n's row runs instead of n.
	Expands(n *ir.Node) bool
	// Widens reports whether an expansion computes in f32 with low operands cast first
	// (but those that it reads AsStored): what a row computes in f32 inside must not be
	// rounded where its parts meet.
	Widens() bool

	// Fuses reports whether one step may do the work of several nodes and write
	// parts of a tensor. Where not, every node is a step over dense tensors.
	Fuses() bool
	// ReadsStrided reports whether attention reads and writes elements of d in the view p.
	ReadsStrided(d ir.DType, p ir.StridedView) bool
	// Refreshes reports whether prepare casts variables to the weight copies that
	// the update keeps. Where not, the backend casts them when somebody has
	// written a variable.
	Refreshes() bool

	// Finish rewrites the steps of a Program before its memory is planned.
	Finish(p *Program) error
	// Order gives the steps of a planned Program streams and events.
	Order(p *Program)

	// Library names what computes steps of a kind without a launch, "" where nothing does.
	Library(k StepKind) string
	// Verify checks what the target itself adds to steps (see Verify).
	Verify(p *Program, s *Step) error
}

// Shared is the lowering that targets have in common: every node by SharedRule,
// fused, on one stream.
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
