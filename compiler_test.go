package ampc

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/passes"
	"ampc/runtime/doctor"
	"ampc/world"
)

// filler gives every field of a configuration a value that is not its zero
// value, distinct where the kind allows it.
type filler struct {
	n     int
	fixed map[string]any // values that are looked up by what they say
}

func (f *filler) fill(v reflect.Value, path string) {
	if x, ok := f.fixed[path]; ok {
		v.Set(reflect.ValueOf(x).Convert(v.Type()))
		return
	}
	f.n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(float64(f.n))
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", f.n))
	case reflect.Slice:
		s := reflect.MakeSlice(v.Type(), 2, 2)
		for i := range 2 {
			f.fill(s.Index(i), path)
		}
		v.Set(s)
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, path)
		f.fill(value, path)
		m.SetMapIndex(key, value)
		v.Set(m)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { return nil }))
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	}
}

// words are the fields that name something that must exist.
func words(m *Model, w Tensor) map[string]any {
	fixed := map[string]any{}
	for _, root := range []string{"TrainConfig.Policy", "InferConfig.Policy", "Policy"} {
		fixed[root+".Low"], fixed[root+".Outputs"] = F16, F16
		fixed[root+".Classes"] = []OpClass{{"gelu", ClassKeep}, {"matmul.bmm", ClassLow}}
		fixed[root+".Widens"] = []Operand{{"layer_norm", "scale"}}
	}
	fixed["TrainConfig.Optimizer.StateDType"] = F16
	fixed["TrainConfig.Groups.Optimizer.StateDType"] = F16
	fixed["TrainConfig.Outputs.Tensor"] = w
	fixed["TrainConfig.Parallel.World"] = world.Local(2, world.LocalOptions{})[0]
	fixed["TrainConfig.Grads"] = []Tensor{w}
	return fixed
}

// leaves calls f with each field of v that is not a struct of fields itself.
func leaves(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[Tensor]() {
		f(path, v)
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	}
}

// Every field of the public configuration changes what the compiler is told, and
// every field that the compiler has is told by one, or stands in the list of those
// that a session or a tool sets.
func TestNoFieldIsForgotten(t *testing.T) {
	m := New("fields")
	w := m.Param("w", Fill(1), 2)
	losses := []Loss{{Value: w, Weight: 3, Scaler: &Scaler{Mode: StaticScale, Init: 2}}}
	train, infer := TrainConfig{}, InferConfig{}
	f := &filler{fixed: words(m, w)}
	f.fill(reflect.ValueOf(&train).Elem(), "TrainConfig")
	f.fill(reflect.ValueOf(&infer).Elem(), "InferConfig")
	trained := func(c TrainConfig) string {
		r, err := m.trainRequest(c, losses)
		if err != nil {
			t.Fatal(err)
		}
		return r.said(t)
	}
	inferred := func(c InferConfig) string {
		r, err := m.inferRequest(c, []Tensor{w})
		if err != nil {
			return err.Error() // a field that is refused without another was read
		}
		return r.said(t)
	}
	leaves(reflect.ValueOf(&train).Elem(), "TrainConfig", func(path string, v reflect.Value) {
		whole, was := trained(train), reflect.New(v.Type()).Elem()
		was.Set(v)
		v.SetZero()
		if trained(train) == whole {
			t.Errorf("%s changes nothing that the compiler is told", path)
		}
		v.Set(was)
	})
	leaves(reflect.ValueOf(&infer).Elem(), "InferConfig", func(path string, v reflect.Value) {
		whole, was := inferred(infer), reflect.New(v.Type()).Elem()
		was.Set(v)
		v.SetZero()
		if inferred(infer) == whole {
			t.Errorf("%s changes nothing that the compiler is told", path)
		}
		v.Set(was)
	})

	ours := []string{ // not of the configuration: told by the session, the target, or a tool
		"Config.Training.Shared", "Config.Inference", "Config.Debugging", "Config.Compiling.Record", "Config.Compiling.Caps", "Config.Compiling.Peak", "Config.Training.Checkpoints", "Config.Compiling.Curve", "Config.Compiling.Source", "Config.Compiling.PartialRules",
		"Config.Training.Scaler.Sharing", "Config.Policy.Scaler.Sharing",
	}
	train.Compile.NoProof = false // Prove is its opposite
	p, err := train.compiler(losses)
	if err != nil {
		t.Fatal(err)
	}
	leaves(reflect.ValueOf(&p).Elem(), "Config", func(path string, v reflect.Value) {
		if told := !v.IsZero(); told == slices.ContainsFunc(ours, func(o string) bool { return path == o || strings.HasPrefix(path, o+".") }) {
			t.Errorf("%s: told by the public configuration: %t", path, told)
		}
	})
}

// said is a request as text, functions as whether they are there.
func (r request) said(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	var scalers []string
	for _, l := range r.config.Losses {
		scalers = append(scalers, fmt.Sprintf("%v %#v", l.Weight, *l.Scaler))
	}
	after, gradients := r.config.After != nil, r.config.Gradients != nil
	r.config.After, r.config.Gradients, r.config.Losses = nil, nil, nil
	fmt.Fprintf(&b, "%#v %v %t %t %v %v", r.config, scalers, after, gradients, r.outputs, r.grads)
	fmt.Fprintf(&b, " %t %d %v %d %d %q", r.gradNorm, r.restore, r.sizes, r.keep, r.weights, r.averages)
	return b.String()
}

// A policy is the same after its way to the compiler and back; so is each preset,
// whatever fields it sets.
func TestPolicyRoundTrip(t *testing.T) {
	var p Policy
	(&filler{fixed: words(nil, Tensor{})}).fill(reflect.ValueOf(&p).Elem(), "Policy")
	c, err := p.compiler()
	if err != nil {
		t.Fatal(err)
	}
	if back := policyOf(c); !reflect.DeepEqual(back, p) {
		t.Errorf("%+v\ncomes back as\n%+v", p, back)
	}
	for _, name := range passes.PolicyNames() {
		want, err := passes.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := policyOf(want).compiler(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nbecomes\n%+v (%v)", name, want, got, err)
		}
	}
	for _, bad := range []Policy{MixedF16().SetClass("nosuch", ClassLow), MixedF16().SetClass("gelu", "wide"), MixedF16().SetClass("gelu.x", ClassLow)} {
		if _, err := bad.compiler(); err == nil {
			t.Errorf("%v is accepted", bad.Classes)
		}
	}
	if c, err := MixedF16().SetClass("gelu", ClassKeep).compiler(); err != nil || c.Class[ir.OpGelu] != ir.Keep {
		t.Errorf("gelu is %v (%v)", c.Class[ir.OpGelu], err)
	}
}

// Every field of the doctor's answer reaches the public Diagnosis.
func TestDiagnosisIsWhole(t *testing.T) {
	var d doctor.Diagnosis
	f := &filler{fixed: map[string]any{"D.Before": (*doctor.Diagnosis)(nil)}}
	for _, to := range []**doctor.Range{&d.Output, &d.Wide, &d.BF16} {
		*to = &doctor.Range{}
		f.fill(reflect.ValueOf(*to).Elem(), "R")
	}
	output, wide, narrow := d.Output, d.Wide, d.BF16
	f.fill(reflect.ValueOf(&d).Elem(), "D")
	d.Output, d.Wide, d.BF16, d.Before = output, wide, narrow, &doctor.Diagnosis{Node: "before"}
	got := reflect.ValueOf(diagnosisOf(&d)).Elem()
	want := reflect.ValueOf(d)
	for i := range want.NumField() {
		name := want.Type().Field(i).Name
		if field := got.FieldByName(name); !field.IsValid() || field.IsZero() {
			t.Errorf("Diagnosis.%s is forgotten", name)
		}
	}
	whole := got.FieldByName("Output").Elem()
	for i := range whole.NumField() {
		if whole.Field(i).IsZero() {
			t.Errorf("Range.%s is forgotten", whole.Type().Field(i).Name)
		}
	}
}

// Only a release and a commit without changes say what a program was built from.
func TestCommitted(t *testing.T) {
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "dd701245"}, {Key: "vcs.modified", Value: modified}}
	}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want bool
	}{
		"release":        {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3", Sum: "h1:x"}}, true},
		"commit":         {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("false")}, true},
		"changed":        {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("true")}, false},
		"no repository":  {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, false},
		"local module":   {debug.BuildInfo{Settings: vcs("false"), Deps: []*debug.Module{{Replace: &debug.Module{Path: "../x"}}}}, false},
		"another module": {debug.BuildInfo{Settings: vcs("false"), Deps: []*debug.Module{{Replace: &debug.Module{Path: "y", Version: "v1.0.0"}}}}, true},
	} {
		if got := committed(&c.info); got != c.want {
			t.Errorf("%s: committed is %t", name, got)
		}
	}
}

// The build of a program without a version, such as this test, is that of its executable. Ranks of one
// kind of machine compare builds; those of different ones cannot.
func TestBuildsAreCompared(t *testing.T) {
	build, machine := buildDigest()
	if build == 0 || machine == 0 {
		t.Errorf("build %x on machine %x: want the sums of the executable and of the platform", build, machine)
	}
	for want, ranks := range map[string][2][4]uint64{
		"":                            {{1, 2, 3, 4}, {1, 2, 5, 6}},
		"rank 1 runs another build":   {{1, 2, 3, 4}, {1, 2, 5, 4}},
		"rank 1 has compiled another": {{1, 2, 3, 4}, {7, 2, 3, 4}},
		"rank 1 has other variables":  {{1, 2, 3, 4}, {1, 7, 3, 4}},
	} {
		err := otherThanRank0(2, func(rank, i int) uint64 { return ranks[rank][i] })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
