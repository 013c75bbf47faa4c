package ampc

import "ampc/passes"

// ScalerMode is how a loss is scaled.
type ScalerMode uint8

// The modes of a Scaler.
const (
	AutoScale    ScalerMode = iota // dynamic where the policy's low dtype is f16, none elsewhere
	NoScale                        // no scaling; steps that are not finite are still skipped
	StaticScale                    // a fixed factor
	DynamicScale                   // a factor that follows the overflows
)

// Scaler says how a loss is scaled so that its gradients stay in the range of
// the 16-bit dtype. All factors are powers of two, so scaling does not round. Make
// one with Dynamic, Static, Unscaled or ScalerNamed and change its fields. Zero
// fields of a dynamic scaler mean the values of Dynamic.
type Scaler struct {
	Mode       ScalerMode
	Init       float64 // the scale at start; the scale of a static scaler
	Growth     float64 // factor of a growth, above 1
	Backoff    float64 // factor on overflow, below 1
	Every      int64   // clean steps before a growth
	Floor      float64 // the least scale
	NoFloor    bool
	Cap        float64 // the largest scale
	NoCap      bool    // no largest scale; a growth to Inf is left out
	Hysteresis int64   // overflows that are tolerated before a backoff, that one included
	// BlameForward lowers the scale also where the loss itself was not finite.
	BlameForward bool
	// Sticky keeps the hysteresis used up after a backoff until the next growth.
	Sticky bool
	// Renew restores the hysteresis on every clean step.
	Renew bool
}

// Dynamic is ampc's own rule of loss scaling: start 2^16, doubled after 2000
// clean steps, halved on overflow, between 1 and 2^24.
func Dynamic() Scaler { return scalerOf(passes.Dynamic()) }

// Static scales the loss by a fixed power of two.
func Static(scale float64) Scaler { return scalerOf(passes.Static(scale)) }

// Unscaled trains without a loss scale; steps that are not finite are still skipped.
func Unscaled() Scaler { return scalerOf(passes.Unscaled()) }

// ScalerNamed finds the rule of another system by the name that the command line
// uses: none, dynamic, torch, apex, deepspeed, oneflow, keras, paddle.
func ScalerNamed(name string) (Scaler, bool) {
	s, ok := passes.ScalerNamed(name)
	return scalerOf(s), ok
}

// Check returns an error where a factor is no power of two or bounds contradict
// each other. Train checks as well.
func (s Scaler) Check() error { return s.compiler().Check() }

// String returns the name of the mode: auto, none, static, dynamic.
func (m ScalerMode) String() string { return passes.ScalerMode(m).String() }
