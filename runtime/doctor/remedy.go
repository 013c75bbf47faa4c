package doctor

import (
	"fmt"
	"strings"
)

// Remedy is one complete remedy: after all the changes that it lists, and no others, the step is
// taken and agrees with f32. Of several remedies, any one helps.
type Remedy struct {
	Keep     []string `json:"keep,omitempty"`      // patterns for Policy.Keep, one after the other
	Unpin    []string `json:"unpin,omitempty"`     // nodes whose pin to 16 bits in code is taken off
	Widen    string   `json:"widen,omitempty"`     // a value of the update that is computed in f32
	LeaveOut []string `json:"leave_out,omitempty"` // casts to 16 bits in the source that are left out, or cast to f32: "NAME (FILE:LINE)"
	Policy   string   `json:"policy,omitempty"`    // the policy in place of the step's
	Scale    float64  `json:"scale,omitempty"`     // of the static scaler, or where a dynamic one starts
	Of       string   `json:"of,omitempty"`        // of Scale and Floor: the inner gradient's scale; "": the loss scale
	Floor    float64  `json:"floor,omitempty"`     // of the scaler
	Wait     int      `json:"wait,omitempty"`      // steps that are skipped yet before the scaler is where the step fits
}

// f32 is the policy without 16 bits.
const f32 = "f32"

// String says what to do.
func (r Remedy) String() string {
	switch {
	case r.Policy == f32:
		return "use f32"
	case r.Policy != "" && len(r.LeaveOut) > 0:
		return leaveOut(r.LeaveOut) + " and use bf16"
	case r.Policy != "":
		return "use bf16"
	case r.Widen != "":
		return fmt.Sprintf("compute %s in f32", r.Widen)
	case r.Floor != 0 && r.Wait > 0:
		return fmt.Sprintf("set the scaler's Floor to %g: the scale reaches it after %s", r.Floor, steps(r.Wait))
	case r.Floor != 0:
		return fmt.Sprintf("set the scaler's Floor to %g", r.Floor)
	case r.Scale != 0 && r.Of != "":
		return fmt.Sprintf("give the inner gradient (%s) a scale of %g or less", r.Of, r.Scale)
	case r.Scale != 0:
		return fmt.Sprintf("start at a loss scale of %g or less (Scaler.Init)", r.Scale)
	case r.Wait > 0:
		return "nothing: " + steps(r.Wait) + " and the scale fits"
	}
	var parts []string
	if len(r.LeaveOut) > 0 {
		parts = append(parts, leaveOut(r.LeaveOut))
	}
	if len(r.Unpin) > 0 {
		parts = append(parts, "remove the 16-bit pin of "+enumerated(r.Unpin))
	}
	if len(r.Keep) > 0 {
		keep := ""
		for _, p := range r.Keep {
			keep += fmt.Sprintf(".Keep(%q)", p)
		}
		parts = append(parts, fmt.Sprintf("keep %s in f32 (Policy%s, or Precision(PinF32))", enumerated(r.Keep), keep))
	}
	return strings.Join(parts, " and ")
}

// leaveOut says what to do with casts.
func leaveOut(casts []string) string {
	if len(casts) == 1 {
		return "leave out the cast " + casts[0] + " or widen it to f32"
	}
	return "leave out the casts " + enumerated(casts) + " or widen them to f32"
}

// advice joins said and the remedies in words.
func advice(said string, rs []Remedy) string {
	var parts []string
	if said != "" {
		parts = append(parts, said)
	}
	for _, r := range rs {
		if r.Wait == 0 || r.Floor != 0 {
			parts = append(parts, r.String())
		}
	}
	return strings.Join(parts, "; or ")
}

// steps is a number of skipped steps in words.
func steps(n int) string {
	if n == 1 {
		return "1 more skipped step"
	}
	return fmt.Sprintf("%d more skipped steps", n)
}

// enumerated is "a", "a and b" or "a, b and c".
func enumerated(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
