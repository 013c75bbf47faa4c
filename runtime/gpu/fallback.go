package gpu

import (
	"errors"
	"fmt"

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

// refusal is the error of a library that does not support a call which lowering
// assumed it to support.
type refusal struct {
	feature string // features that later Programs do without
	step    string
	err     error
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%v; the device without it is named .../%s", r.err, r.feature)
}

func (r *refusal) Unwrap() error { return r.err }

// refused reports whether a library does not run a call that was planned: it does not support it, or
// failed to prepare it.
func refused(err error) bool {
	return errors.Is(err, cuda.ErrNotSupported) || errors.Is(err, cuda.ErrInternal)
}

var _ runtime.Fallback = (*Backend)(nil)

// FallBack implements runtime.Fallback: b no longer uses the feature that a library has refused.
func (b *Backend) FallBack(err error) string {
	var r *refusal
	if !errors.As(err, &r) || b.target.Lacks(r.feature) {
		return ""
	}
	b.Without(r.feature)
	return fmt.Sprintf("refused, step %s: %v; from now on %s, as with --device %s", r.step, r.err, sm.FeatureNamed(r.feature).Instead, b.name)
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
