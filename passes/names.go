package passes

import (
	"fmt"
	"strings"

	"ampc/ir"
)

// StateName is the name of a variable that the compiler makes:
// ir.Reserved[STEP.]KIND[/OF]. Users can take none of these names, so it means the
// same in every step and in every checkpoint, whatever else a model declares.
type StateName struct {
	Step string // Config.Name of the step it belongs to; "": the step without a name, or all
	Kind string // such as "lr", "adam.m", "scale"
	Of   string // the value of the model it belongs to; "": the step
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

// Kinds of variables that outlive steps. A kind may be followed by a dot and a
// number where a step has several.
const (
	kindStep     = "step"    // steps taken
	kindAttempt  = "attempt" // steps launched, of all steps of a model
	kindRate     = "lr"
	kindBias     = "bias" // bias correction, with its beta after a dot
	kindRule     = "rule" // with the rule's name and the state's, each after a dot
	kindAverage  = "ema"
	kindAverages = "ema.steps"
	kindScale    = "scale"
	KindForward  = "fwd_run"    // steps in a row whose loss was not finite
	KindFloor    = "floor_hits" // overflows at the floor of the scale
)

// innerScales stands in the place of a step in the names of scales inside the
// forward pass, which belong to the model.
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

// ParseStateName takes the name of a variable of a checkpoint apart; false where
// the compiler did not make it.
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

// OfScaler says whether the variable comes and goes with the scaler of its step.
func (n StateName) OfScaler() bool {
	switch n.Kind {
	case kindScale, "good", "left", KindForward, KindFloor, "noted":
		return true
	}
	return false
}

// Shared says whether the variable is the model's rather than a step's: the seed,
// launched steps, scales inside the forward pass.
func (n StateName) Shared() bool {
	return n.Kind == "seed" || n.Kind == kindAttempt || n.Step == innerScales
}

// Scale is the name of the loss scale that a counter of a scaler belongs to.
func (n StateName) Scale() string { return StateName{n.Step, kindScale, n.Of}.String() }

// Before are the names that checkpoints of format 1 had for the variable, the
// likelier first. They put optimizer state and averages behind the weight's name
// and had no optimizer's: what both have tells Adam's from momentum's.
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
			return "" // such as grad.scale_2 and grad.scale_2.good, which start anew
		}
		return n.Step + "." + n.Kind
	case n.OfScaler() && n.Of != "":
		return step + "amp." + n.Of + "." + n.Kind
	case n.OfScaler():
		return step + "amp." + n.Kind
	}
	return step + n.Kind
}

// checkName refuses names of steps that could not be told from what else
// stands in the names of their variables.
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

// state names a variable of the step.
func (c *Config) state(kind, of string) string { return StateName{c.Name, kind, of}.String() }

// private names a variable that holds nothing between steps, or a constant.
func private(kind, of string) string { return StateName{Kind: kind, Of: of}.String() }

// constantOf finds or declares a scalar constant of the compiler's own.
func constantOf(b *ir.Builder, kind string, d ir.DType, x float64) *ir.Value {
	name := private(kind, "")
	if v := b.Lookup(name); v != nil {
		return v
	}
	return b.Declare(ir.Const, name, ir.T(d), &ir.Init{Args: []float64{x}}, nil)
}
