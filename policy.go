package ampc

import (
	"cmp"
	"slices"

	"ampc/passes"
)

// Policy says in which precision each value of a step is computed and stored.
// It is a plain value: methods return changed copies. The zero Policy is f32.
//
// Start from a preset (MixedF16, MixedBF16, ...), PolicyNamed or ParsePolicy, and
// change it by methods or fields. docs/policies.md describes the properties.
type Policy struct {
	Name string
	// Low is the 16-bit dtype, F16 or BF16; zero: everything stays f32.
	Low DType
	// TF32 rounds the operands of f32 matrix products to a 10-bit mantissa.
	TF32 bool
	// Direct computes convolutions by their definition, never by Winograd's transforms.
	Direct bool
	// Manual leaves dtypes and casts as the model has them.
	Manual bool
	// Algorithm chooses the dtypes of values that no rule fixes: "mincut", "local"
	// or "paint"; "": mincut, or local where the policy is eager or has no Low.
	Algorithm string
	// SavedCost is what mincut counts for a byte that is kept from forward to backward,
	// where a byte that is moved counts 1; 0: 1.
	SavedCost float64
	// Guard keeps a value f32 where its range (CompileOptions.Ranges) times Guard
	// exceeds the largest value of Low; 0: no guard.
	Guard float64
	// Eager decides each op from its operands alone, as an eager framework does.
	Eager bool
	// Narrow lets ops of the classes promote and keep store Low although an operand is f32.
	Narrow bool
	// Cast casts weights and inputs to Low for every reader except the update, not for products alone.
	Cast bool
	// NoMasters stores parameters and their gradients in Low.
	NoMasters bool
	// NormF32 keeps batch norm in f32 (Apex's keep_batchnorm_fp32).
	NormF32 bool
	// Outputs is the dtype that returned values are cast to; zero: their own.
	Outputs DType
	// Classes override the classes of ops, or of some cases of an op.
	Classes []OpClass
	// Widens name operands that make their op's result at least as wide as they are.
	Widens []Operand
	// Rules fix the precision of values by name; the last that matches wins.
	Rules []Rule
	// Stores fix how values that are free are stored, by name; the last that matches wins.
	Stores []Rule
	// Scaler is the loss scaling that TrainConfig.Scaler overrides.
	Scaler Scaler
	// Losses is how many losses get a loss scale of their own (Apex's num_losses); 0 and 1: all share one.
	Losses int
}

// OpClass gives an op another class.
type OpClass struct {
	Op    string // an op, "gelu", or a case of one, "matmul.bmm", which is the stronger
	Class Class
}

// Class says how an op takes part in mixed precision. `ampc ops` lists the
// class of each op.
type Class string

// The classes. Each op computes in f32 inside.
const (
	ClassLow     Class = "low"     // operands in the 16-bit dtype; result 16-bit or f32
	ClassKeep    Class = "keep"    // stores f32 unless every reader takes 16 bits
	ClassPromote Class = "promote" // one f32 operand makes the result f32
	ClassClear   Class = "clear"   // takes the dtype of its operand
	ClassFixed   Class = "fixed"   // its dtypes are its contract: for a CustomOp and its operands, not for policies
)

// Operand names an operand of an op: {"where", "cond"}.
type Operand struct{ Op, Name string }

// Rule fixes the precision of what matches a pattern: a scope ("h0.attn": it and
// all inside) or a value's name; * matches within one part of a name.
type Rule struct {
	Pattern string
	Pin     Pin
	Pos     string // file and line that state the rule, for errors; "": unknown
}

// Mixed reports whether the policy stores anything in 16 bits.
func (p Policy) Mixed() bool { return p.Low != 0 }

// Keep returns the policy with everything that matches pattern in f32.
func (p Policy) Keep(pattern string) Policy { return p.with(Rule{Pattern: pattern, Pin: PinF32}) }

// Lower returns the policy with everything that matches pattern in 16 bits.
func (p Policy) Lower(pattern string) Policy { return p.with(Rule{Pattern: pattern, Pin: PinLow}) }

// KeepTF32 returns the policy with everything that matches pattern in f32 and
// its matrix products in the tf32 mode.
func (p Policy) KeepTF32(pattern string) Policy { return p.with(Rule{Pattern: pattern, Pin: PinTF32}) }

func (p Policy) with(r Rule) Policy {
	r.Pos = userLine().String()
	p.Rules = append(slices.Clip(p.Rules), r)
	return p
}

// SetClass returns the policy with another class for op, or for a case of one
// ("matmul.bmm"). Train and Infer refuse an op that does not exist.
func (p Policy) SetClass(op string, c Class) Policy {
	p.Classes = slices.DeleteFunc(slices.Clone(p.Classes), func(o OpClass) bool { return o.Op == op })
	p.Classes = append(p.Classes, OpClass{op, c})
	return p
}

// Set returns the policy with a property changed by its name in Apex
// (keep_batchnorm_fp32, master_weights, cast_model_outputs, loss_scale, ...) or a
// switch of a policy file ("direct", "true").
func (p Policy) Set(property, value string) (Policy, error) {
	c, err := p.compiler()
	if err == nil {
		c, err = c.Set(property, value)
	}
	if err != nil {
		return p, err
	}
	return policyOf(c), nil
}

// String returns the policy as the text of a policy file, which ParsePolicy reads.
func (p Policy) String() string {
	c, err := p.compiler()
	if err != nil {
		return err.Error()
	}
	return c.String()
}

// Diff lists the lines of text in which p and q differ, - for those of p alone
// and + for those of q alone; "" where they agree in all but the name.
func (p Policy) Diff(q Policy) string {
	a, err := p.compiler()
	b, err2 := q.compiler()
	if err := cmp.Or(err, err2); err != nil {
		return err.Error()
	}
	return passes.DiffPolicies(a, b)
}

// ParsePolicy reads the text of a policy file; name is for messages.
func ParsePolicy(name string, src []byte) (Policy, error) {
	c, err := passes.ParsePolicy(name, src)
	return policyOf(c), err
}

// PolicyNamed finds a preset by the name that the command line uses, such as
// "mixed-bf16" or "torch-f16".
func PolicyNamed(name string) (Policy, error) {
	c, err := passes.PolicyNamed(name)
	return policyOf(c), err
}

// PolicyNames lists the presets that PolicyNamed knows.
func PolicyNames() []string { return passes.PolicyNames() }

// F32Only is the policy that keeps everything in f32.
func F32Only() Policy { return policyOf(passes.F32()) }

// TF32 keeps f32 and rounds the operands of matrix products to a 10-bit mantissa.
func TF32() Policy { return policyOf(passes.TF32()) }

// MixedF16 computes products in f16, and ops that need range or precision in f32.
// It includes dynamic loss scaling.
func MixedF16() Policy { return policyOf(passes.MixedF16()) }

// MixedBF16 is MixedF16 in bf16, which needs no loss scaling.
func MixedBF16() Policy { return policyOf(passes.MixedBF16()) }

// Manual leaves the casts to the model.
func Manual() Policy { return policyOf(passes.Manual()) }

// O1 decides per op from its operands, as Apex O1 does. low is F16 or BF16.
func O1(low DType) Policy { return policyOf(passes.O1(irDType(low))) }

// O2 casts weights and inputs to low for every reader, except for batch norm and the update, and
// keeps f32 masters, as Apex O2 does. low is F16 or BF16.
func O2(low DType) Policy { return policyOf(passes.O2(irDType(low))) }

// O3 stores everything in low, without f32 masters, as Apex O3 does: an upper
// bound of speed, not for training. low is F16 or BF16.
func O3(low DType) Policy { return policyOf(passes.O3(irDType(low))) }

// Torch decides as torch.amp's autocast does on CUDA. low is F16 or BF16.
func Torch(low DType) Policy { return policyOf(passes.Torch(irDType(low))) }

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

// Check returns an error if a factor is not a power of two or bounds contradict
// each other. Train calls it, too.
func (s Scaler) Check() error { return s.compiler().Check() }

// String returns the name of the mode: auto, none, static, dynamic.
func (m ScalerMode) String() string { return passes.ScalerMode(m).String() }
