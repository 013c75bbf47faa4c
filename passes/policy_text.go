package passes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
	"ampc/passes/systems"
)

// A policy file is lines of a word and its arguments; # starts a comment.
//
//	policy NAME                  what messages call it
//	from PRESET                  start from a preset (first line after the name)
//	low f16|bf16|none
//	algorithm local|mincut|paint
//	hold WEIGHT                  of a byte kept for backward, against a byte moved
//	guard FACTOR                 keep f32 what comes within this factor of the largest low value
//	eager, tf32, direct, manual, cast, narrow, no_masters, batchnorm_f32    on|off
//	outputs DTYPE|none
//	losses N
//	scaler none|dynamic|static SCALE|torch|apex|deepspeed|oneflow|keras|paddle [field=value ...]
//	class OP|CASE low|keep|promote|clear      a case: matmul.bmm, pow.scalar, resize.nearest
//	widens OP OPERAND            the result is at least as wide as the operand
//	keep|lower|tf32 PATTERN      rules, later ones win
//	store f32|low PATTERN        how free values are stored (mincut)

// flagsOf names the policy's switches as the file spells them.
func (p *Policy) flagsOf() []struct {
	name string
	on   *bool
} {
	return []struct {
		name string
		on   *bool
	}{
		{"tf32", &p.TF32}, {"direct", &p.Direct}, {"manual", &p.Manual}, {"eager", &p.Eager}, {"cast", &p.Cast},
		{"narrow", &p.Narrow}, {"no_masters", &p.NoMasters}, {"batchnorm_f32", &p.NormF32},
	}
}

// String prints the policy as a file that ParsePolicy reads back.
func (p Policy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy %s\n", p.Name)
	if p.Mixed() {
		fmt.Fprintf(&b, "low %s\n", p.Low)
	}
	if p.Algorithm != "" {
		fmt.Fprintf(&b, "algorithm %s\n", p.Algorithm)
	}
	for _, f := range p.flagsOf() {
		if *f.on {
			fmt.Fprintf(&b, "%s on\n", f.name)
		}
	}
	if p.Hold != 0 {
		fmt.Fprintf(&b, "hold %s\n", numberText(p.Hold))
	}
	if p.Guard != 0 {
		fmt.Fprintf(&b, "guard %s\n", numberText(p.Guard))
	}
	if p.Outputs != ir.Invalid {
		fmt.Fprintf(&b, "outputs %s\n", p.Outputs)
	}
	if p.Losses > 1 {
		fmt.Fprintf(&b, "losses %d\n", p.Losses)
	}
	if s := scalerText(p.Scaler); s != "" {
		fmt.Fprintf(&b, "scaler %s\n", s)
	}
	ops := make([]ir.Op, 0, len(p.Class))
	for op := range p.Class {
		ops = append(ops, op)
	}
	slices.SortFunc(ops, func(a, b ir.Op) int { return cmp.Compare(a.String(), b.String()) })
	for _, op := range ops {
		fmt.Fprintf(&b, "class %s %s\n", op, p.Class[op])
	}
	for _, c := range p.Cases {
		fmt.Fprintf(&b, "class %s %s\n", c, c.Class)
	}
	for _, w := range p.Widens {
		fmt.Fprintf(&b, "widens %s %s\n", w.Op, w.Operand)
	}
	for _, r := range p.Rules {
		fmt.Fprintf(&b, "%s %s\n", ruleWords[r.Pin], r.Pattern)
	}
	for _, r := range p.Stores {
		fmt.Fprintf(&b, "store %s %s\n", r.Pin, r.Pattern)
	}
	return b.String()
}

var ruleWords = map[ir.Pin]string{ir.PinF32: "keep", ir.PinLow: "lower", ir.PinTF32: "keep_tf32"}

// scalerText writes what differs from a scaler of the same mode without settings.
func scalerText(s Scaler) string {
	switch s.Mode {
	case AutoScale:
		return ""
	case NoScale:
		return "none"
	case StaticScale:
		return "static " + numberText(s.Init)
	}
	text := "dynamic"
	for _, f := range scalerNumbers(&s) {
		if *f.at != 0 {
			text += " " + f.name + "=" + numberText(*f.at)
		}
	}
	for _, f := range scalerCounts(&s) {
		if *f.at != 0 {
			text += fmt.Sprintf(" %s=%d", f.name, *f.at)
		}
	}
	for _, f := range scalerFlags(&s) {
		if *f.at {
			text += " " + f.name
		}
	}
	return text
}

func numberText(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

type field[T any] struct {
	name string
	at   *T
}

func scalerNumbers(s *Scaler) []field[float64] {
	return []field[float64]{{"init", &s.Init}, {"growth", &s.Growth}, {"backoff", &s.Backoff}, {"floor", &s.Floor}, {"cap", &s.Cap}}
}

func scalerCounts(s *Scaler) []field[int64] {
	return []field[int64]{{"every", &s.Every}, {"hysteresis", &s.Hysteresis}}
}

func scalerFlags(s *Scaler) []field[bool] {
	return []field[bool]{{"no_floor", &s.NoFloor}, {"no_cap", &s.NoCap}, {"blame_forward", &s.BlameForward}, {"sticky", &s.Sticky}, {"renew", &s.Renew}}
}

// ParsePolicy reads a policy file; name stands in messages.
func ParsePolicy(name string, src []byte) (Policy, error) {
	p, empty := Policy{Name: name}, true
	for i, line := range strings.Split(string(src), "\n") {
		line, _, _ = strings.Cut(line, "#")
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		empty = false
		if err := p.line(w[0], w[1:]); err != nil {
			return Policy{}, &ir.Error{Pos: ir.Pos{File: name, Line: i + 1}, Msg: err.Error()}
		}
	}
	if empty {
		return Policy{}, fmt.Errorf("%s: an empty policy; begin with a preset, as in \"from mixed-f16\"", name)
	}
	return p, nil
}

func (p *Policy) line(word string, args []string) error {
	for _, f := range p.flagsOf() {
		if f.name == word {
			return parseSwitch(word, args, f.on)
		}
	}
	if len(args) == 0 {
		return fmt.Errorf("%s: an argument is missing", word)
	}
	switch word {
	case "policy":
		p.Name = args[0]
	case "from":
		return p.from(args[0])
	case "low":
		return parseDType(args[0], &p.Low, ir.DType.Low)
	case "outputs":
		return parseDType(args[0], &p.Outputs, ir.DType.Float)
	case "algorithm":
		p.Algorithm = args[0]
	case "hold":
		return parseHold(args[0], &p.Hold)
	case "guard":
		return parseGuard(args[0], &p.Guard)
	case "losses":
		return p.set("num_losses", args[0])
	case "scaler":
		return parseScaler(args, &p.Scaler)
	case "class":
		return p.parseClass(args)
	case "widens":
		return p.parseWidens(args)
	case "keep":
		*p = p.Keep(args[0])
	case "store":
		if len(args) != 2 || args[0] != "f32" && args[0] != "low" {
			return fmt.Errorf("store: want f32 or low and a pattern")
		}
		*p = p.Store(args[1], map[string]ir.Pin{"f32": ir.PinF32, "low": ir.PinLow}[args[0]])
	case "lower":
		*p = p.Lower(args[0])
	case "keep_tf32":
		*p = p.keepTF32(args[0])
	default:
		return p.set(word, args[0])
	}
	return nil
}

func (p *Policy) from(preset string) error {
	name := p.Name
	q, err := PolicyNamed(preset)
	if err == nil {
		*p = q
		p.Name = name
	}
	return err
}

func parseSwitch(word string, args []string, on *bool) error {
	if len(args) != 1 || args[0] != "on" && args[0] != "off" {
		return fmt.Errorf("%s: want on or off", word)
	}
	*on = args[0] == "on"
	return nil
}

func parseDType(s string, d *ir.DType, ok func(ir.DType) bool) error {
	if s == "none" {
		*d = ir.Invalid
		return nil
	}
	x, known := ir.DTypeOf(s)
	if !known || !ok(x) {
		return fmt.Errorf("dtype %q: want f16, bf16 or none", s)
	}
	*d = x
	return nil
}

func parseHold(s string, hold *float64) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0 && x <= 1e3) {
		return fmt.Errorf("hold %s: want a weight from 0 to 1000", s)
	}
	*hold = x
	return nil
}

func parseGuard(s string, guard *float64) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x == 0 || x >= 1 && x <= 1e9) {
		return fmt.Errorf("guard %s: want a factor of at least 1, such as 4, or 0 for none", s)
	}
	*guard = x
	return nil
}

func (p *Policy) parseClass(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("class: want an op and a class")
	}
	c, ok := ir.ClassOf(args[1])
	if !ok || c == ir.Fixed {
		return fmt.Errorf("class %s: %q is none of low, keep, promote, clear", args[0], args[1])
	}
	if strings.Contains(args[0], ".") {
		of, err := systems.ParseCase(args[0])
		if err != nil {
			return fmt.Errorf("class: %w", err)
		}
		of.Class = c
		same := func(x Case) bool { return x.String() == of.String() }
		p.Cases = append(slices.DeleteFunc(slices.Clone(p.Cases), same), of)
		return nil
	}
	op, ok := ir.OpNamed(args[0])
	if !ok {
		return fmt.Errorf("class: unknown op %q", args[0])
	}
	if op.Def().Class == ir.Fixed {
		return fmt.Errorf("class %s: its dtypes are the op's contract (%s)", op, op.Def().Why)
	}
	*p = p.SetClass(op, c)
	return nil
}

func (p *Policy) parseWidens(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("widens: want an op and one of its operands")
	}
	w, err := systems.ParseWiden(args[0], args[1])
	if err != nil {
		return fmt.Errorf("widens: %w", err)
	}
	if !slices.Contains(p.Widens, w) {
		p.Widens = append(slices.Clip(p.Widens), w)
	}
	return nil
}

func parseScaler(args []string, s *Scaler) error {
	if args[0] == "static" {
		if len(args) != 2 {
			return fmt.Errorf("scaler static: want one scale")
		}
		x, err := strconv.ParseFloat(args[1], 64)
		if err != nil {
			return fmt.Errorf("scaler static: %q is not a number", args[1])
		}
		*s = Static(x)
		return s.check()
	}
	x, ok := ScalerNamed(args[0])
	if !ok {
		return fmt.Errorf("no scaler %q; there are none, static, dynamic, torch, apex, deepspeed, oneflow, keras, paddle", args[0])
	}
	for _, a := range args[1:] {
		if err := setScaler(&x, a); err != nil {
			return err
		}
	}
	if x.NoFloor {
		x.Floor = 0
	}
	if x.NoCap {
		x.Cap = 0
	}
	*s = x
	return s.filled().check()
}

func setScaler(s *Scaler, a string) error {
	name, value, _ := strings.Cut(a, "=")
	for _, f := range scalerNumbers(s) {
		if f.name == name {
			x, err := strconv.ParseFloat(value, 64)
			if err != nil || x == 0 { // in Go, zero stands for the default; here that is left out
				return fmt.Errorf("scaler: %s=%q is not a number other than 0", name, value)
			}
			*f.at = x
			return nil
		}
	}
	for _, f := range scalerCounts(s) {
		if f.name == name {
			x, err := strconv.ParseInt(value, 10, 64)
			if err != nil || x == 0 {
				return fmt.Errorf("scaler: %s=%q is not a whole number other than 0", name, value)
			}
			*f.at = x
			return nil
		}
	}
	for _, f := range scalerFlags(s) {
		if f.name == name {
			*f.at = true
			return nil
		}
	}
	return fmt.Errorf("scaler: no field %q", name)
}

// Set changes one property by the name Apex and others gave it:
// keep_batchnorm_fp32, master_weights (true or false), cast_model_outputs (a
// dtype), loss_scale (a number or dynamic), num_losses, min_loss_scale,
// max_loss_scale. The switches of a policy file (direct, tf32, narrow, ...)
// are properties too: true or false.
func (p Policy) Set(property, value string) (Policy, error) {
	err := p.set(property, value)
	return p, err
}

func (p *Policy) set(property, value string) error {
	switch property {
	case "keep_batchnorm_fp32":
		return parseBool(property, value, func(on bool) { p.NormF32 = on })
	case "master_weights":
		return parseBool(property, value, func(on bool) { p.NoMasters = !on })
	case "cast_model_outputs":
		return parseDType(value, &p.Outputs, ir.DType.Float)
	case "loss_scale":
		if value == "dynamic" {
			return parseScaler([]string{value}, &p.Scaler)
		}
		return parseScaler([]string{"static", value}, &p.Scaler)
	case "num_losses":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("num_losses: %q is not a number of losses", value)
		}
		p.Losses = n
	case "min_loss_scale":
		return p.bound("floor=" + value)
	case "max_loss_scale":
		return p.bound("cap=" + value)
	default:
		return p.setSwitch(property, value)
	}
	return nil
}

// setSwitch turns a switch on or off that a policy file has under that name.
func (p *Policy) setSwitch(name, value string) error {
	properties := "keep_batchnorm_fp32, master_weights, cast_model_outputs, loss_scale, num_losses, min_loss_scale, max_loss_scale"
	for _, f := range p.flagsOf() {
		if f.name == name {
			return parseBool(name, value, func(on bool) { *f.on = on })
		}
		properties += ", " + f.name
	}
	return fmt.Errorf("no property %q; there are %s", name, properties)
}

// bound changes a limit of the dynamic scaler.
func (p *Policy) bound(setting string) error {
	s := p.Scaler
	if s.Mode == AutoScale {
		s = Dynamic()
	}
	if s.Mode != DynamicScale {
		return fmt.Errorf("%s: the scaler is %s, which has no limits", setting, s.Mode)
	}
	if err := setScaler(&s, setting); err != nil {
		return err
	}
	s.NoFloor = s.NoFloor && s.Floor == 0
	s.NoCap = s.NoCap && s.Cap == 0
	s.Init = min(s.Init, s.Cap)
	if s.NoCap {
		s.Init = p.Scaler.Init
	}
	p.Scaler = s
	return s.filled().check()
}

func parseBool(property, value string, set func(bool)) error {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%s: %q is neither true nor false", property, value)
	}
	set(on)
	return nil
}

// DiffPolicies lists the lines in which two policies differ, - for those of a
// alone and + for those of b alone; "" where they agree in all but the name.
func DiffPolicies(a, b Policy) string {
	lines := func(p Policy) []string { return strings.Split(strings.TrimSpace(p.String()), "\n")[1:] }
	x, y := lines(a), lines(b)
	var out strings.Builder
	for _, l := range x {
		if !slices.Contains(y, l) {
			out.WriteString("- " + l + "\n")
		}
	}
	for _, l := range y {
		if !slices.Contains(x, l) {
			out.WriteString("+ " + l + "\n")
		}
	}
	return out.String()
}
