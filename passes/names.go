package passes

import (
	"fmt"
	"strings"

	"ampc/ir"
)

// StateName is the name of a variable that the compiler declares: ir.Reserved[STEP.]KIND[/OF].
// Models cannot declare such names, so they mean the same in every step and every checkpoint,
// whatever else a model declares.
type StateName struct {
	Step string // Config.Name of its step; "": the step without a name, or all steps
	Kind string // such as "lr", "adam.m", "scale"
	Of   string // value of the model that it belongs to; "": the step
}

func (n StateName) String() string {
	s := ir.Reserved
	if n.Step != "" {
		s += n.Step + "."
	}
	s += n.Kind
	if n.Of != "" {
		s += "/" + n.Of
	}
	return s
}

// Kinds of variables that outlive steps. If a step has several of a kind, a dot and a number
// follow.
const (
	kindStep     = "step"    // steps taken
	kindAttempt  = "attempt" // steps launched, over all steps of a model
	kindRate     = "lr"
	kindBias     = "bias" // bias correction, followed by a dot and its beta
	kindRule     = "rule" // followed by the rule's name and the state's, each after a dot
	kindAverage  = "ema"
	kindAverages = "ema.steps"
	kindScale    = "scale"
	KindForward  = "fwd_run"    // number of consecutive steps whose loss was not finite
	KindFloor    = "floor_hits" // overflows at the floor of the scale
)

// innerScales takes the place of the step in names of scales inside the forward pass, which belong
// to the model.
const innerScales = "grad"

// stateKinds are the kinds that checkpoints hold.
var stateKinds = []string{
	kindStep, kindAttempt, "seed", kindRate, kindBias, kindAverage, kindAverages,
	"sgd.m", "adam.m", "adam.v", kindScale, "good", "left", KindForward, KindFloor, "noted",
}

func knownKind(kind string) bool {
	if kind == kindRule || strings.HasPrefix(kind, kindRule+".") {
		return true
	}
	for _, k := range stateKinds {
		if rest, ok := strings.CutPrefix(kind, k); ok && (rest == "" || rest[0] == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9') {
			return true
		}
	}
	return false
}

// ParseStateName splits the name of a variable in a checkpoint. ok is false if the compiler did not
// declare it.
func ParseStateName(name string) (n StateName, ok bool) {
	name, ok = strings.CutPrefix(name, ir.Reserved)
	if !ok {
		return n, false
	}
	n.Kind, n.Of, _ = strings.Cut(name, "/")
	if knownKind(n.Kind) {
		return n, true
	}
	n.Step, n.Kind, _ = strings.Cut(n.Kind, ".")
	return n, knownKind(n.Kind)
}

// OfScaler reports whether the variable exists only while its step has a scaler.
func (n StateName) OfScaler() bool {
	switch n.Kind {
	case kindScale, "good", "left", KindForward, KindFloor, "noted":
		return true
	}
	return false
}

// Shared reports whether the variable belongs to the model rather than to a step: the seed, the
// count of launched steps, and scales inside the forward pass.
func (n StateName) Shared() bool {
	return n.Kind == "seed" || n.Kind == kindAttempt || n.Step == innerScales
}

// Scale is the name of the loss scale to which a counter of a scaler belongs.
func (n StateName) Scale() string { return StateName{n.Step, kindScale, n.Of}.String() }

// Before is the name that checkpoints of format 1 have for the variable, the likelier one if there
// are two. Format 1 put optimizer state and averages after the weight's name and did not name the
// optimizer. Other variables in the checkpoint, which has finds, tell Adam's moments from
// momentum's.
func (n StateName) Before(has func(string) bool) string {
	step := ""
	if n.Step != "" {
		step = n.Step + "."
	}
	switch {
	case n.Kind == kindAverage:
		return n.Of + ".ema"
	case n.Kind == "sgd.m" && has(n.Of+".v"):
		return ""
	case n.Kind == "adam.m" && !has(n.Of+".v"):
		return ""
	case n.Kind == "sgd.m" || n.Kind == "adam.m":
		return n.Of + ".m"
	case n.Kind == "adam.v":
		return n.Of + ".v"
	case n.Step == innerScales:
		if n.Of != "" {
			return "" // starts anew, as do grad.scale_2 and grad.scale_2.good
		}
		return n.Step + "." + n.Kind
	case n.OfScaler() && n.Of != "":
		return step + "amp." + n.Of + "." + n.Kind
	case n.OfScaler():
		return step + "amp." + n.Kind
	}
	return step + n.Kind
}

// checkName refuses names of steps that make the names of their variables ambiguous.
func checkName(step string) error {
	for _, r := range step {
		if r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("step name %q: want letters, digits, _ and - alone", step)
		}
	}
	if knownKind(step) || step == innerScales {
		return fmt.Errorf("step name %q: the compiler names a variable so; choose another", step)
	}
	return nil
}

// state is the name of a variable of the step.
func (c *Config) state(kind, of string) string { return StateName{c.Name, kind, of}.String() }

// private is the name of a variable that is not needed between steps, or of a constant.
func private(kind, of string) string { return StateName{Kind: kind, Of: of}.String() }

// constantOf finds or declares a scalar constant of the compiler.
func constantOf(b *ir.Builder, kind string, d ir.DType, x float64) *ir.Value {
	name := private(kind, "")
	if v := b.Lookup(name); v != nil {
		return v
	}
	return b.Declare(ir.Const, name, ir.T(d), &ir.Init{Args: []float64{x}}, nil)
}
