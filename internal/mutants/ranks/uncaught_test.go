package ranks

import (
	"regexp"
	"strings"
)

// gap is a kind of fault, or some places of it, that nothing catches in the step alone.
type gap struct {
	family string
	what   *regexp.Regexp // of mutation.what, nil: all
}

// uncaught are the faults that no rule sees in the step alone; beside its training graph prove
// does. They are counted and printed apart; a rule that catches one takes its line out.
var uncaught = []gap{
	// The step is judged without the model and without its configuration. So nothing says in
	// what dtype gradients travel: rounding before a message, or in it, is a setting.
	{"rounded before it is sent", nil},
	{"another operation or message", regexp.MustCompile(`^msg of `)},
	// A count and a loss share a bucket of scalars of one type. Sum over both or mean over
	// both gives the same loss, but a count that is too small. Max is a loss of no batch.
	{"another operation or message", regexp.MustCompile(`^op of %sum\.(amp\.acc/)?sum is`)},
	// Which scalar is the loss and which is its count is not followed through the sum.
	{"results of a bucket crossed", regexp.MustCompile(`^%sum\.(amp\.acc/)?(sum|count) for %sum\.(amp\.acc/)?(sum|count)$`)},
	{"another tensor is sent", regexp.MustCompile(`of %sum\.amp\.acc/sum is %count$`)},
	// A check reads something local that is not the loss.
	{"another tensor is sent", regexp.MustCompile(`of %any\.found_inf is %micro\.fwd$`)},
	{"a value of one rank is read", regexp.MustCompile(`of %fwd is %count$`)},
	// The update reads the last micro-batch where it should read the sum over all of them.
	{"another tensor is sent", regexp.MustCompile(`of %sum\.table is %d\.table$`)},
	{"an accumulator is passed by", regexp.MustCompile(`of %sum\.(w|table|amp\.acc/sum) is %(d\.\w+|sum|count)$`)},
	// Sums of micro-batches are sent in each of them, before they are complete.
	{"a message in another section", regexp.MustCompile(`^%sum\.(w|table) in (forward|backward)$`)},
	// What is gathered, and in what order rows and ids are laid out afterwards, is not
	// compared between the two operands of a lookup's gradient.
	{"another tensor is sent", regexp.MustCompile(`of %all\.d\.e is `)},
	{"gathered rows", regexp.MustCompile(`of rank 0 for all$|gathered in axis 1$`)},
	// What is sent may depend on the rank, as long as what is received does not.
	{"a share that depends on the rank", regexp.MustCompile(`: sent$`)},
	// A sum may be divided by one rank's count before it is reduced, and by the count of all
	// ranks after that; gradients may be summed and not divided at all.
	{"division before the sum", regexp.MustCompile(`^%(sum|amp\.acc/\w+): |^means of`)},
	{"a loss or count of one rank", regexp.MustCompile(`: no count$`)},
	// All ranks agree on these, but not with one process. Nothing says which gradients are in
	// the norm, which weight is averaged, and that a forward pass alone lowers no scale.
	{"a norm of one rank", regexp.MustCompile(`^a norm without`)},
	{"an average of one rank", regexp.MustCompile(`the weight before the step$`)},
	{"a scale of one rank", regexp.MustCompile(`^operand 6 of %amp\.scale' is %skip$`)},
	// What an accumulator adds, with what factor, and which accumulator a level goes on with.
	{"an accumulator starts or keeps wrongly", regexp.MustCompile(`^operand 1 of %(amp\.acc\.lost'|micro\.over) is %micro\.(bad|found_inf)$`)},
	{"an accumulator adds another value", regexp.MustCompile(`level0/\w+': twice$|^operand 0 of `)},
	{"an accumulator adds another value", regexp.MustCompile(`^operand 1 of %amp\.acc/\w+' is %amp\.acc/\w+$|/sum' is %count$`)},
	// The place, seed, site and share of dropout are not checked at all.
	{"dropout by another place", nil},
	{"dropout by another seed", nil},
	// Ranks whose steps differ in numbers alone: the first step of a run compares them, but
	// that is not part of the comparison of messages here.
	{"one rank has another setting", nil},
}

// isOpen reports whether the list has a mutation of a family. Faults of one rank alone are
// named by the family that they are of.
func isOpen(family, what string) bool {
	if family == aloneName {
		what, _, _ = strings.Cut(what, ", on rank ")
		family, what, _ = strings.Cut(what, ": ")
	}
	for _, g := range uncaught {
		if g.family == family && (g.what == nil || g.what.MatchString(what)) {
			return true
		}
	}
	return false
}
