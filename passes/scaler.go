package passes

import (
	"fmt"
	"math"
)

// ScalerMode is how a loss is scaled.
type ScalerMode uint8

const (
	AutoScale    ScalerMode = iota // dynamic where the policy's low dtype is f16, none elsewhere
	NoScale                        // no scale; the checks and the skips remain
	StaticScale                    // a constant factor
	DynamicScale                   // a factor that adapts to overflows
)

var scalerModes = [...]string{"auto", "none", "static", "dynamic"}

func (m ScalerMode) String() string { return scalerModes[m] }

// Scaler is how the gradients of a loss are kept in range. All factors are powers of two, so
// scaling never rounds. Zero fields of a dynamic scaler mean the values of Dynamic.
//
// The rules of other systems differ in five ways, and each has a field: NoFloor, NoCap, whether a
// loss that is not finite lowers the scale (BlameForward), and when the count of tolerated
// overflows starts again (Sticky, Renew).
type Scaler struct {
	Mode       ScalerMode
	Init       float64 // initial scale; for a static scaler the constant scale
	Growth     float64
	Backoff    float64
	Every      int64 // number of clean steps before the scale grows
	Floor      float64
	NoFloor    bool
	Cap        float64
	NoCap      bool // no upper bound, except that the scale stays finite
	Hysteresis int64
	// BlameForward lowers the scale also if the loss itself is not finite.
	BlameForward bool
	// Sticky restores the hysteresis at the next growth, not after each backoff.
	Sticky bool
	// Renew restores the hysteresis on every clean step.
	Renew bool
	// Sharing is the role of this step if several steps share the scale.
	Sharing Sharing
}

// Sharing is a step's role for a loss scale that several steps share. Exactly one of them updates
// it, for all.
type Sharing uint8

const (
	Alone   Sharing = iota // no other step uses the scale
	Collect                // record overflows for the step that updates the scale
	Advance                // update the scale for this step's overflows and the recorded ones
)

// Dynamic is ampc's rule: initial scale 2^16, doubled after 2000 clean steps, halved after an
// overflow, between 1 and 2^24.
func Dynamic() Scaler {
	return Scaler{Mode: DynamicScale, Init: 65536, Growth: 2, Backoff: 0.5, Every: 2000, Floor: 1, Cap: 1 << 24, Hysteresis: 1}
}

// Static is a constant loss scale, a power of two.
func Static(scale float64) Scaler { return Scaler{Mode: StaticScale, Init: scale} }

// Unscaled trains without a loss scale. Steps that are not finite are still skipped.
func Unscaled() Scaler { return Scaler{Mode: NoScale} }

// TorchScaler is the rule of torch.amp.GradScaler: no floor, no cap except that the scale stays
// finite.
func TorchScaler() Scaler {
	s := Dynamic()
	s.Floor, s.NoFloor, s.Cap, s.NoCap, s.BlameForward = 0, true, 0, true, true
	return s
}

// apexScaler is the rule of Apex's LossScaler: no floor, cap 2^24.
func apexScaler() Scaler {
	s := Dynamic()
	s.Floor, s.NoFloor, s.BlameForward = 0, true, true
	return s
}

// DeepSpeedScaler is the rule of DeepSpeed's fp16 optimizer: hysteresis 2, which a backoff does not
// restore, growth after 1000 clean steps, floor 1, no cap.
func DeepSpeedScaler() Scaler {
	s := Dynamic()
	s.Every, s.Hysteresis, s.Sticky = 1000, 2, true
	s.Cap, s.NoCap, s.BlameForward = 0, true, true
	return s
}

// oneFlowScaler is the rule of OneFlow's graph scaler: floor 1, cap at the largest f32.
func oneFlowScaler() Scaler {
	s := Dynamic()
	s.Cap, s.BlameForward = math.MaxFloat32, true
	return s
}

// kerasScaler is the rule of Keras 3's LossScaleOptimizer: start 2^15, no floor, no cap.
func kerasScaler() Scaler {
	s := TorchScaler()
	s.Init = 32768
	return s
}

// paddleScaler is the rule of Paddle's GradScaler in dygraph: start 2^16, no floor, no cap.
func paddleScaler() Scaler { return TorchScaler() }

// ScalerNamed finds a preset: none, dynamic, torch, apex, deepspeed, oneflow, keras, paddle.
func ScalerNamed(name string) (Scaler, bool) {
	switch name {
	case "none":
		return Unscaled(), true
	case "dynamic":
		return Dynamic(), true
	case "torch":
		return TorchScaler(), true
	case "apex":
		return apexScaler(), true
	case "deepspeed":
		return DeepSpeedScaler(), true
	case "oneflow":
		return oneFlowScaler(), true
	case "keras":
		return kerasScaler(), true
	case "paddle":
		return paddleScaler(), true
	}
	return Scaler{}, false
}

// over returns s with base's mode, and with base's values for fields that are zero.
func (s Scaler) over(base Scaler) Scaler {
	s.Mode = base.Mode
	for _, f := range []struct{ field, def *float64 }{
		{&s.Init, &base.Init}, {&s.Growth, &base.Growth}, {&s.Backoff, &base.Backoff}, {&s.Floor, &base.Floor}, {&s.Cap, &base.Cap},
	} {
		if *f.field == 0 {
			*f.field = *f.def
		}
	}
	if s.Every == 0 {
		s.Every = base.Every
	}
	if s.Hysteresis == 0 {
		s.Hysteresis = base.Hysteresis
	}
	s.NoFloor, s.NoCap = s.NoFloor || base.NoFloor, s.NoCap || base.NoCap
	s.BlameForward, s.Sticky, s.Renew = s.BlameForward || base.BlameForward, s.Sticky || base.Sticky, s.Renew || base.Renew
	return s
}

// filled returns s with the defaults of its mode for fields that are zero.
func (s Scaler) filled() Scaler {
	if s.Mode != DynamicScale {
		return s
	}
	s = s.over(Dynamic())
	if s.NoFloor {
		s.Floor = 0
	}
	if s.NoCap {
		s.Cap = 0
	}
	return s
}

// Check refuses factors that are not powers of two, and bounds that contradict each other. Zero
// fields of a dynamic scaler mean the values of Dynamic.
func (s Scaler) Check() error { return s.filled().check() }

// check is Check without defaults.
func (s Scaler) check() error {
	switch s.Mode {
	case StaticScale:
		return powerOfTwo("static scale", s.Init)
	case DynamicScale:
	default:
		return nil
	}
	for _, f := range []struct {
		what string
		x    float64
	}{{"initial scale", s.Init}, {"growth", s.Growth}, {"backoff", s.Backoff}} {
		if err := powerOfTwo(f.what, f.x); err != nil {
			return err
		}
	}
	if !s.NoFloor {
		if err := powerOfTwo("floor", s.Floor); err != nil {
			return err
		}
	}
	if !s.NoCap && s.Cap != math.MaxFloat32 {
		if err := powerOfTwo("cap", s.Cap); err != nil {
			return err
		}
	}
	switch {
	case s.Growth <= 1 || s.Backoff >= 1:
		return fmt.Errorf("scaler: growth %g and backoff %g: want growth above 1 and backoff below", s.Growth, s.Backoff)
	case s.Floor > s.Init || !s.NoCap && s.Init > s.Cap:
		return fmt.Errorf("scaler: initial scale %g is outside %g to %g", s.Init, s.Floor, s.Cap)
	case s.Every < 1 || s.Hysteresis < 1:
		return fmt.Errorf("scaler: growth after %d steps, hysteresis %d: want at least 1 of each", s.Every, s.Hysteresis)
	}
	return nil
}

func powerOfTwo(what string, x float64) error {
	frac, exp := math.Frexp(x)
	if frac == 0.5 && exp > -126 && exp <= 128 {
		return nil
	}
	if !(x >= 0x1p-126 && x <= 0x1p127) {
		return fmt.Errorf("scaler: %s %g: want a power of two from 2^-126 to 2^127", what, x)
	}
	down := math.Ldexp(0.5, exp)
	return fmt.Errorf("scaler: %s %g is not a power of two, so scaling would round: use %g or %g", what, x, down, 2*down)
}

// scales reports whether gradients carry a loss scale.
func (s Scaler) scales() bool { return s.Mode == StaticScale || s.Mode == DynamicScale }
