package gpu

import (
	"errors"
	"fmt"
	"strings"

	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/runtime"
)

// Without makes b lower as if its libraries lacked one of sm.Features. Call it before anything is
// lowered for b.
func (b *Backend) Without(feature string) {
	if t := b.target.Without(feature); t != b.target {
		b.target = t
		b.name += "/" + feature
	}
}

// refusal is the error of a library that does not support a call which lowering assumed it to
// support, for all steps with one problem.
type refusal struct {
	problem string // that later Programs do without
	feature string // that they do without if that does not help
	step    string // the first
	steps   int
	err     error
}

// refusals are those of a Program, in the order of its steps.
type refusals []*refusal

func (r refusals) Error() string {
	more := ""
	if len(r) > 1 {
		more = fmt.Sprintf(", and %d other problems are done without", len(r)-1)
	}
	return fmt.Sprintf("%v%s; the device without it is named .../%s", r[0].err, more, r[0].feature)
}

func (r refusals) Unwrap() error { return r[0].err }

// refuse notes that a library refused a step.
func (e *Exec) refuse(s *lower.Step, feature string, err error) error {
	return &refusal{problem: sm.ProblemOf(e.p, s), feature: feature, step: s.Node.Name, steps: 1, err: err}
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// add adds the refusal of a step.
func (r refusals) add(one *refusal) refusals {
	for _, x := range r {
		if x.problem == one.problem {
			x.steps++
			return r
		}
	}
	return append(r, one)
}

// refused reports whether a library does not run a call that was planned: it does not support it, or
// failed to prepare it.
func refused(err error) bool {
	return errors.Is(err, cuda.ErrNotSupported) || errors.Is(err, cuda.ErrInternal)
}

var _ runtime.Fallback = (*Backend)(nil)

// FallBack implements runtime.Fallback: b no longer asks for what a library has refused. That is the
// problem of a step. Where a library refuses the step that was made instead, it is the feature.
func (b *Backend) FallBack(err error) string {
	var list refusals
	if !errors.As(err, &list) {
		return ""
	}
	var why []string
	for _, r := range list {
		instead, of := sm.FeatureNamed(r.feature).Instead, ""
		switch {
		case !b.target.Refuses(r.problem):
			b.target = b.target.Refusing(r.problem)
			if of = "there"; r.steps > 1 {
				of = fmt.Sprintf("there and in %d equal steps", r.steps-1)
			}
		case !b.target.Lacks(r.feature):
			b.Without(r.feature)
			of = fmt.Sprintf("from now on, as with --device %s,", b.name)
		default:
			continue
		}
		what := "refused"
		if errors.Is(r.err, errSlower) {
			what = "measured"
		}
		why = append(why, fmt.Sprintf("%s, step %s: %v; %s %s", what, r.step, r.err, of, instead))
	}
	return strings.Join(why, "\n")
}

// featureOf is the smallest feature without which a step that cuDNN refused can be
// lowered again.
func featureOf(s *lower.Step, p *lower.Program) string {
	switch c := s.Conv; {
	case c == nil:
		return sm.NoAttn
	case c.Epilogue.Bias != 0:
		return sm.NoBias
	case p.Buffers[s.Out[0]].Type.DType == ir.F32 && p.Buffers[s.In[0]].Type.DType.Low():
		return sm.NoWide
	}
	return sm.NoConv
}
