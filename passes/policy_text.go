package passes

import (
	"cmp"
	"fmt"
	"reflect"
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
//	keep|lower|keep_tf32 PATTERN rules, later ones win
//	store f32|low PATTERN        how free values are stored (mincut)

// flagsOf lists the policy's switches with their names in a policy file.
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

// String prints the policy as a policy file, which ParsePolicy reads.
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
	if p.SavedCost != 0 {
		fmt.Fprintf(&b, "saved_cost %s\n", numberText(p.SavedCost))
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

// scalerText prints the fields that differ from the default scaler of the same mode.
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

// ParsePolicy reads a policy file. Errors begin with name.
func ParsePolicy(name string, src []byte) (Policy, error) {
	p, empty := Policy{Name: name}, true
	for i, line := range strings.Split(string(src), "\n") {
		line, _, _ = strings.Cut(line, "#")
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		empty = false
		at, rules, stores := ir.Pos{File: name, Line: i + 1}, len(p.Rules), len(p.Stores) // `from` comes before all rules
		if err := p.line(w[0], w[1:]); err != nil {
			return Policy{}, &ir.Error{Pos: at, Msg: err.Error()}
		}
		for _, added := range [][]Rule{p.Rules[rules:], p.Stores[stores:]} {
			for i := range added {
				added[i].Pos = at.String()
			}
		}
	}
	if empty {
		return Policy{}, fmt.Errorf("%s: an empty policy; begin with a preset, as in \"from mixed-f16\"", name)
	}
	return p, nil
}

// word is the first word of a line in a policy file, except switches and properties.
type word struct {
	name string
	args int    // number of arguments; 0: one or more
	want string // description of the arguments
	read func(p *Policy, args []string) error
}

// words returns the words of a policy file.
func words() []word {
	return []word{
		{"policy", 1, "a name", func(p *Policy, a []string) error { p.Name = a[0]; return nil }},
		{"from", 1, "a preset", func(p *Policy, a []string) error { return p.from(a[0]) }},
		{"low", 1, "f16, bf16 or none", func(p *Policy, a []string) error { return parseDType(a[0], &p.Low, ir.DType.Low) }},
		{"outputs", 1, "a dtype or none", func(p *Policy, a []string) error { return parseDType(a[0], &p.Outputs, ir.DType.Float) }},
		{"algorithm", 1, "local, mincut or paint", func(p *Policy, a []string) error { p.Algorithm = a[0]; return nil }},
		{"saved_cost", 1, "a cost", func(p *Policy, a []string) error { return parseSavedCost(a[0], &p.SavedCost) }},
		{"guard", 1, "a factor", func(p *Policy, a []string) error { return parseGuard(a[0], &p.Guard) }},
		{"losses", 1, "a number", func(p *Policy, a []string) error { return p.set("num_losses", a[0]) }},
		{"scaler", 0, "a scaler", func(p *Policy, a []string) error { return parseScaler(a, &p.Scaler) }},
		{"class", 2, "an op and a class", (*Policy).parseClass},
		{"widens", 2, "an op and one of its operands", (*Policy).parseWidens},
		{"keep", 1, "a pattern", func(p *Policy, a []string) error { *p = p.Keep(a[0]); return nil }},
		{"lower", 1, "a pattern", func(p *Policy, a []string) error { *p = p.Lower(a[0]); return nil }},
		{"keep_tf32", 1, "a pattern", func(p *Policy, a []string) error { *p = p.keepTF32(a[0]); return nil }},
		{"store", 2, "f32 or low and a pattern", (*Policy).parseStore},
	}
}

func (p *Policy) line(first string, args []string) error {
	for _, f := range p.flagsOf() {
		if f.name == first {
			return parseSwitch(first, args, f.on)
		}
	}
	for _, w := range words() {
		switch {
		case w.name != first:
		case len(args) == 0 || w.args > 0 && len(args) != w.args:
			return fmt.Errorf("%s: want %s", first, w.want)
		default:
			return w.read(p, args)
		}
	}
	switch {
	case !slices.Contains(properties, first):
		return p.noWord(first)
	case len(args) != 1:
		return fmt.Errorf("%s: want one value", first)
	}
	return p.set(first, args[0])
}

// noWord is the error for a line with an unknown first word.
func (p *Policy) noWord(first string) error {
	var names []string
	for _, w := range words() {
		names = append(names, w.name)
	}
	for _, f := range p.flagsOf() {
		names = append(names, f.name)
	}
	names = append(names, properties...)
	if near := ir.Nearest(first, names); near != "" {
		return fmt.Errorf("no word %q in a policy file; did you mean %s?", first, near)
	}
	return fmt.Errorf("no word %q in a policy file; there are %s", first, strings.Join(names, ", "))
}

func (p *Policy) parseStore(args []string) error {
	pin, ok := map[string]ir.Pin{"f32": ir.PinF32, "low": ir.PinLow}[args[0]]
	if !ok {
		return fmt.Errorf("store: want f32 or low and a pattern")
	}
	*p = p.Store(args[1], pin)
	return nil
}

func (p *Policy) from(preset string) error {
	name := p.Name
	if !reflect.DeepEqual(*p, Policy{Name: name}) {
		return fmt.Errorf("from: want it before all lines but policy NAME, since it replaces what they say")
	}
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

func parseSavedCost(s string, cost *float64) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0 && x <= 1e3) {
		return fmt.Errorf("saved_cost %s: want a number from 0 to 1000", s)
	}
	*cost = x
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
		if near := ir.NearestOp(args[0]); near != "" {
			return fmt.Errorf("class: no op %q; did you mean %s?", args[0], near)
		}
		return fmt.Errorf("class: no op %q; `ampc ops` lists them", args[0])
	}
	if op.Def().Class == ir.Fixed {
		return fmt.Errorf("class %s: its dtypes are the op's contract (%s)", op, op.Def().Why)
	}
	*p = p.setClass(op, c)
	return nil
}

func (p *Policy) parseWidens(args []string) error {
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
			if err != nil || x == 0 { // zero means the default in Go; a policy file omits the field instead
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

// properties are the names that Set knows besides the switches.
var properties = []string{"keep_batchnorm_fp32", "master_weights", "cast_model_outputs", "loss_scale", "num_losses", "min_loss_scale", "max_loss_scale"}

// Set changes one property, named as in Apex and other systems: keep_batchnorm_fp32, master_weights
// (true or false), cast_model_outputs (a dtype), loss_scale (a number or dynamic), num_losses,
// min_loss_scale, max_loss_scale. The switches of a policy file (direct, tf32, narrow, ...) are
// also properties: true or false.
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

// setSwitch sets a switch by its name in policy files.
func (p *Policy) setSwitch(name, value string) error {
	names := slices.Clone(properties)
	for _, f := range p.flagsOf() {
		if f.name == name {
			return parseBool(name, value, func(on bool) { *f.on = on })
		}
		names = append(names, f.name)
	}
	if near := ir.Nearest(name, names); near != "" {
		return fmt.Errorf("no property %q; did you mean %s?", name, near)
	}
	return fmt.Errorf("no property %q; there are %s", name, strings.Join(names, ", "))
}

// bound sets a bound of the dynamic scaler.
func (p *Policy) bound(setting string) error {
	s := p.Scaler
	if s.Mode == AutoScale {
		s = Dynamic()
	}
	if s.Mode != DynamicScale {
		return fmt.Errorf("%s: the scaler is %s: only a dynamic scaler has limits", setting, s.Mode)
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

// DiffPolicies lists the lines in which two policies differ: lines of a begin with -, lines of b
// with +. It is "" if they differ at most in their names.
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
