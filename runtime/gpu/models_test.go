package gpu_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// ready takes every training step of a model of the zoo through the passes for a target.
func ready(t testing.TB, spec, policy, target string) []*ir.Graph {
	t.Helper()
	return compiled(t, spec, policy, sm.Must(target))
}

func compiled(t testing.TB, spec, policy string, target lower.Target) []*ir.Graph {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	var graphs []*ir.Graph
	for _, step := range z.Steps {
		c := step.Config
		if c.Policy, err = ampc.PolicyNamed(policy); err != nil {
			t.Fatal(err)
		}
		for _, l := range step.Losses {
			if !slices.Contains(z.Model.Graph().Return, l.Value.IR()) {
				z.Model.IR().Return(l.Value.IR())
			}
		}
		g, cfg, err := z.Model.Source(c, step.Losses...)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Caps = target.Caps()
		if err := passes.Run(g, cfg); err != nil {
			t.Fatal(err)
		}
		graphs = append(graphs, g)
	}
	return graphs
}

// settled compiles step i of a model for a device. What its libraries refuse, or run slower than kernels
// do, is left out, as when a user compiles.
func settled(t *testing.T, b *gpu.Backend, spec, policy string, i int) *ir.Graph {
	t.Helper()
	for {
		g := compiled(t, spec, policy, b.Target())[i]
		e, s, err := load(t, b, g)
		if err == nil {
			err = e.Close()
		} else if why, again := runtime.FallBack(b, err); again {
			t.Log(why)
			s.Close()
			continue
		}
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		return g
	}
}

// load lowers a graph and loads it on a new store. The error is Load's.
func load(t *testing.T, b *gpu.Backend, g *ir.Graph) (runtime.Exec, runtime.Store, error) {
	t.Helper()
	p, err := lower.Lower(g, b.Target())
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.NewStore(p.Vars)
	if err != nil {
		t.Fatal(err)
	}
	e, err := b.Load(p, s)
	return e, s, err
}

// trainModel is trainBeside for every step of a model.
func trainModel(t *testing.T, spec, policy, target string, steps int, share float64, together bool) {
	t.Helper()
	for i, g := range ready(t, spec, policy, target) {
		b := openSim(t, target)
		if onSilicon() {
			g = settled(t, b, spec, policy, i)
		}
		trainBeside(t, g, b, steps, share, together)
	}
}

func openSim(t *testing.T, target string) *gpu.Backend {
	t.Helper()
	b, err := open(t, target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// feed draws one micro-batch for every input.
func feed(g *ir.Graph, r *rand.Rand) map[string]*eval.Tensor {
	f := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		if role, _ := v.Attr.Get("role").(string); v.Kind != ir.Input || role == runtime.RoleMicro {
			continue
		}
		x := eval.New(v.Type)
		for i := range x.F {
			x.F[i] = float64(float32(r.NormFloat64()))
		}
		for i := range x.I {
			x.I[i] = r.Int64N(2)
		}
		f[v.Name] = x
	}
	return f
}

// float is the first f32 of a tensor's bytes.
func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// trainedSteps is how long device, CPU and evaluator train side by side.
const trainedSteps = 20

// zoo is every model, as small as its structure allows, and by how much what it
// computes may differ from the evaluator's and the CPU's, as near says: sums are
// taken in another order, products round elsewhere. What differs by one rounding
// travels through twenty steps; where batch norm over a few elements makes that
// grow without bound (CPU and evaluator part as fast from each other), both start
// every step from the device's variables. There most steps agree far better, and
// in a few one number near a tie rounds elsewhere and a ReLU lets it through or
// not: CPU and evaluator part by up to 9e-2 in such a step. So two steps in
// twenty may differ by more than the share, and the median step by a fifth of it.
//
// The shares of unet3d and convlstm in 16 bits: their longest sums have 324 terms
// (twelve channels under 3x3x3 taps) and 144 (the gradient of 16 gates under 3x3),
// which in another order differ by at most 324 * 2^-24 = 2e-5 of the sum of their
// magnitudes. That is 4% of the half unit, 2^-11, by which f16 rounds, so that of
// the thousands of numbers that a step stores a few lie near enough to a tie to
// round elsewhere, by a unit of 2^-10 (bf16: 2^-7). A share is two units, for a
// gradient and the value that it is multiplied with; CPU and evaluator come as far
// apart as device and CPU (-v prints both). convlstm in bf16 meets no tie and keeps
// the narrower share.
var zoo = []struct {
	spec           string
	together       bool
	f32, f16, bf16 float64
}{
	{"mlp?batch=2&in=16&hidden=16", false, 1e-6, 1e-5, 5e-3},
	{"lenet?batch=2&size=8&conv1=2&conv2=3&fc1=8&fc2=6&pad=2", false, 1e-6, 1e-5, 1e-5},
	{"resnet8?batch=2&size=8&width=4", true, 5e-6, 5e-3, 1e-5},
	{"resnet?batch=3&size=16&width=4&blocks1=1&blocks2=1&blocks3=1&blocks4=1", true, 5e-6, 1e-1, 3e-2},
	{"resnet50?batch=2&size=16&width=8&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0", true, 5e-6, 5e-3, 4e-2},
	{"gpt?layers=1&batch=1&seq=6&dim=8&heads=2&vocab=12&dropout=0.1", false, 1e-5, 5e-4, 3e-2},
	{"gpt2?layers=1&batch=1&seq=6&dim=8&heads=2&vocab=12", false, 1e-5, 5e-4, 3e-2},
	{"lstm?batch=2&seq=3&vocab=10&dim=8", false, 1e-6, 1e-6, 1e-6},
	{"bert?batch=1&seq=6&vocab=12&layers=1&heads=2&dim=8", false, 1e-6, 1e-4, 2e-3},
	{"unet?batch=1&size=8&width=8&levels=1", false, 3e-3, 5e-3, 2e-2},
	{"unet3d?batch=2&depth=2&size=4&width=2&levels=1", true, 5e-6, 2e-3, 1.6e-2},
	{"convlstm?batch=2&seq=2&ahead=1&size=4&width=4", false, 5e-6, 2e-3, 2e-3},
	{"vit?batch=1&size=8&layers=1&heads=2&dim=8&classes=4", false, 2e-6, 1e-4, 2e-2},
	{"gan?batch=4&noise=4&in=8&hidden=8", false, 1e-6, 1e-6, 1e-6},
}

// TestZooIsWhole wants every model of the zoo among those trained.
func TestZooIsWhole(t *testing.T) {
	trained := map[string]bool{}
	for _, c := range zoo {
		name, _, _ := strings.Cut(c.spec, "?")
		trained[name] = true
	}
	for _, m := range models.Names() {
		if !trained[m[0]] {
			t.Errorf("%s is not trained on a simulated device", m[0])
		}
	}
}

// TestZoo trains every model of the zoo from its lowered CUDA program in f32,
// f16 and bf16. Updates, loss scale, counters and whatever else of the update is
// exact has the evaluator's bits in every step, given the step's gradients;
// losses and weights stay near those of the evaluator and the CPU.
func TestZoo(t *testing.T) {
	if testing.Short() {
		t.Skip("twelve models in three precisions take a minute in the interpreter; run without -short")
	}
	t.Parallel()
	for _, c := range zoo {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			t.Run(c.spec+"/"+policy, func(t *testing.T) {
				share := map[string]float64{"f32": c.f32, "mixed-f16": c.f16, "mixed-bf16": c.bf16}[policy]
				trainModel(t, c.spec, policy, "sm_90", trainedSteps, share, c.together)
			})
		}
	}
}

// TestZooSome is the part of TestZoo that -short has time for, and the older targets.
func TestZooSome(t *testing.T) {
	for _, target := range []string{"sm_70", "sm_80", "sm_90"} {
		for _, policy := range []string{"f32", "mixed-f16"} {
			t.Run(string(target)+"/"+policy, func(t *testing.T) {
				for _, c := range []int{0, 5} {
					trainModel(t, zoo[c].spec, policy, target, 5, zoo[c].f16, false)
				}
			})
		}
	}
}

// TestLibraries trains with and without cuDNN and what cuBLASLt joins to
// products: attention in whole tiles, GELU with its gradient, convolutions.
func TestLibraries(t *testing.T) {
	for _, c := range []struct {
		spec, policy string
		target       string
		share        float64
	}{
		{"gpt?layers=1&batch=1&seq=128&dim=16&heads=2&tanh=1", "mixed-bf16", "sm_90", 5e-2},
		{"gpt?layers=1&batch=1&seq=128&dim=16&heads=2&tanh=1", "mixed-bf16", "sm_90/nodnn/noaux", 5e-2},
		{"lenet?batch=2&size=8&conv1=2&conv2=3&fc1=8&fc2=6&pad=2", "mixed-f16", "sm_90/nodnn", 1e-5},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.spec, c.policy, c.target), func(t *testing.T) {
			trainModel(t, c.spec, c.policy, c.target, 2, c.share, false)
		})
	}
}

// trainBeside trains g on a device, on the CPU and in the evaluator;
// together, these two take over the device's variables after every step. Shares
// hold for the simulator's order of sums; on a GPU, which has another, those of
// orderShare are allowed.
func trainBeside(t *testing.T, g *ir.Graph, b *gpu.Backend, steps int, share float64, together bool) {
	t.Helper()
	if onSilicon() {
		share = max(share, orderShare(t, g, b))
	}
	trainOn(t, g, b, steps, share, together)
}

// trainOn is trainBeside on a device.
func trainOn(t *testing.T, g *ir.Graph, b *gpu.Backend, steps int, share float64, together bool) {
	t.Helper()
	host, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	shown := expose(g.Clone())
	onCPU, got := runtimetest.Load(t, host, g, 3), runtimetest.Load(t, b, shown, 3)
	defer onCPU.Close(t)
	defer got.Close(t)
	r := rand.New(rand.NewPCG(1, 9))
	used, apart, reach := 0.0, 0.0, 0.0
	loose, each := share, []float64(nil)
	if together {
		loose = max(share, flipped)
	}
	for step := range steps {
		f := feed(g, r)
		before := got.Variables(t)
		results := got.Step(t, f)
		for i, o := range got.Program.Outputs {
			results[shown.Return[i].String()] = results[o.Name] // where it was lowered in parts
		}
		replay(t, fmt.Sprintf("step %d", step), shown, before, results, got.Variables(t))
		if lr := before["%amp.lr"]; lr != nil {
			reach += 1.001 * lr.F[0] * adamReach(step+1)
		}
		zeroKeys(t, fmt.Sprintf("step %d", step), results, keyRows(g), lastPlace(g), reach)
		zeroKeys(t, fmt.Sprintf("after step %d", step), got.Variables(t), keyRows(g), lastPlace(g), reach)
		used = max(used, near(t, fmt.Sprintf("step %d, CPU", step), results, onCPU.Step(t, f), max(share, lastPlace(g))))
		used = max(used, near(t, fmt.Sprintf("step %d, evaluator", step), results, onCPU.Want(t, f), max(share, lastPlace(g))))
		if together || step == steps-1 {
			after := got.Variables(t)
			d := near(t, fmt.Sprintf("after step %d, CPU", step), after, onCPU.Variables(t), loose)
			d = max(d, near(t, fmt.Sprintf("after step %d, evaluator", step), after, onCPU.WantVariables(), loose))
			each, used = append(each, d), max(used, d)
			apart = max(apart, near(t, fmt.Sprintf("after step %d, CPU and evaluator", step), onCPU.Variables(t), onCPU.WantVariables(), loose))
			onCPU.Assume(t, after)
		}
		if t.Failed() {
			return
		}
	}
	taken := stepsTaken(got.Variables(t))
	slices.Sort(each)
	median, rare := each[len(each)/2], each[len(each)-1-len(each)/10]
	t.Logf("off by %.1e at most, %.1e in the median (CPU and evaluator %.1e at most), %.0e allowed; %d of %d steps not skipped", used, median, apart, share, taken, steps)
	if together && (median > share/5 || rare > share) {
		t.Errorf("off by %.1e in the median step and %.1e except for one step in ten, %.0e and %.0e allowed", median, rare, share/5, share)
	}
	if taken < int64(steps)/2 {
		t.Errorf("only %d of %d steps reached the weights", taken, steps)
	}
}

// flipped is by how much variables may differ in a step in which a ReLU lets
// another element through.
const flipped = 0.25

// lastPlace is a unit in the last place of the narrowest float that a forward
// pass computes: one logit that rounds elsewhere moves a loss by as much.
func lastPlace(g *ir.Graph) float64 {
	units := map[ir.DType]float64{ir.F32: 0x1p-23, ir.F16: 0x1p-10, ir.BF16: 0x1p-7}
	unit := 0.0
	for _, n := range g.Body[ir.Forward] {
		for _, v := range n.Out {
			unit = max(unit, units[v.Type.DType])
		}
	}
	return unit
}

// expose returns what the update reads from the rest of the step, and what it
// computes itself in nodes that are not exact.
func expose(g *ir.Graph) *ir.Graph {
	have := map[*ir.Value]bool{}
	for _, v := range g.Return {
		have[v] = true
	}
	add := func(v *ir.Value) {
		if v != nil && v.Def != nil && !have[v] {
			have[v] = true
			g.Return = append(g.Return, v)
		}
	}
	made := map[*ir.Node]bool{}
	for _, n := range g.Body[ir.Update] {
		made[n] = true
		for _, v := range n.In {
			if v != nil && !made[v.Def] {
				add(v)
			}
		}
		if !runtimetest.Exact(n) {
			for _, v := range n.Out {
				add(v)
			}
		}
	}
	return g
}

// replay evaluates the update from what the device had and computed before it:
// the variables it leaves must have the evaluator's bits.
func replay(t *testing.T, when string, g *ir.Graph, before, results, after map[string]*eval.Tensor) {
	t.Helper()
	env := map[*ir.Value]*eval.Tensor{}
	for _, v := range g.Vars {
		if v.Kind == ir.Const {
			x, err := eval.InitVar(v, 3)
			if err != nil {
				t.Fatal(err)
			}
			env[v] = x
		} else if x := before[v.String()]; x != nil {
			env[v] = x
		}
	}
	for _, v := range g.Return {
		env[v] = results[v.String()]
	}
	for _, n := range g.Body[ir.Update] {
		if !runtimetest.Exact(n) {
			continue
		}
		in := make([]*eval.Tensor, len(n.In))
		for i, v := range n.In {
			if v != nil {
				if in[i] = env[v]; in[i] == nil {
					t.Fatalf("%s: nothing holds %s, which %s reads", when, v, n.Name())
				}
			}
		}
		out, err := eval.Node(n, in, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range n.Out {
			env[v] = out[i]
			if v.Next != nil {
				equal(t, when, after, map[string]*eval.Tensor{v.Next.String(): out[i]})
			}
		}
	}
}

// near wants ids and flags equal, and every number within share of the largest
// of its kind: weights, first moments, second moments and running statistics
// each have one for the whole model, results each their own. It returns the
// largest share used.
func near(t *testing.T, when string, got, want map[string]*eval.Tensor, share float64) (used float64) {
	t.Helper()
	top := map[string]float64{}
	for name, w := range want {
		for _, v := range w.F {
			top[kind(name)] = math.Max(top[kind(name)], math.Abs(v))
		}
	}
	for name, w := range want {
		g := got[name]
		for i, v := range w.F {
			switch keys := ofKeys(name, i, len(w.F)); {
			case keys && (kind(name) == "weight" || kind(name) == "gradient"):
				continue // zeroKeys judges it
			case keys && !(math.Max(math.Abs(g.F[i]), math.Abs(v)) <= share*top[kind(name)]):
				t.Errorf("%s: %s[%d] is %g and %g, want 0 except for rounding (largest %g)", when, name, i, g.F[i], v, top[kind(name)])
				return used
			}
			d := math.Abs(g.F[i]-v) / top[kind(name)]
			used = math.Max(used, d)
			if !(d <= share) && g.F[i] != v {
				t.Errorf("%s: %s[%d] is %g, want %g (largest %g)", when, name, i, g.F[i], v, top[kind(name)])
				return used
			}
		}
		for i, v := range w.I {
			if g.I[i] != v {
				t.Errorf("%s: %s[%d] is %d, want %d", when, name, i, g.I[i], v)
				return used
			}
		}
	}
	return used
}

// ofKeys reports whether element i of n is part of the bias of the keys of an
// attention, of its gradient, or of one of its moments. Softmax does not see what is
// added to all keys alike, so the gradient is 0 except for rounding, of which Adam
// makes a whole step of any sign: gradient and moments are compared with 0, and
// the bias may go as far as steps of Adam go.
func ofKeys(name string, i, n int) bool {
	return strings.HasSuffix(name, ".attn.qkv.b") && i >= n/3 && i < 2*n/3
}

// zeroKeys wants the gradients of the bias of keys to be 0 except for rounding, and
// the bias, which starts at 0, no further away than reach. The gradient sums
// over rows positions what scores, their gradient, the row's sum of both and
// the product of these were rounded to, each by up to unit. These are set beside
// the gradient of the keys' weights, which sums the same times numbers near 1.
func zeroKeys(t *testing.T, when string, values map[string]*eval.Tensor, rows int64, unit, reach float64) {
	t.Helper()
	for name, x := range values {
		top := 0.0
		if w := values[strings.TrimSuffix(name, ".b")+".w"]; w != nil {
			for i, v := range w.F {
				if column := i % len(x.F); ofKeys(name, column, len(x.F)) {
					top = math.Max(top, math.Abs(v))
				}
			}
		}
		for i, v := range x.F {
			if !ofKeys(name, i, len(x.F)) {
				continue
			}
			switch kind(name) {
			case "gradient":
				if limit := 4 * float64(rows) * unit * top; !(math.Abs(v) <= limit) {
					t.Errorf("%s: %s[%d] is %g, want 0 except for rounding, at most %g", when, name, i, v, limit)
				}
			case "weight":
				if !(math.Abs(v) <= reach) {
					t.Errorf("%s: %s[%d] is %g, want a number that Adam reaches, at most %g", when, name, i, v, reach)
				}
			}
		}
	}
}

// adamReach is the most that step number n of Adam moves a weight, as a multiple of
// the learning rate: by Cauchy and Schwarz over the gradients of the steps before.
func adamReach(n int) float64 {
	const beta1, beta2 = 0.9, 0.999
	sum, power := 0.0, 1.0
	for range n {
		sum += power
		power *= beta1 * beta1 / beta2
	}
	corrected := math.Sqrt(1-math.Pow(beta2, float64(n))) / (1 - math.Pow(beta1, float64(n)))
	return corrected * (1 - beta1) / math.Sqrt(1-beta2) * math.Sqrt(sum)
}

// keyRows is over how many positions the gradient of a bias of keys sums, 0 where
// there is none.
func keyRows(g *ir.Graph) int64 {
	for _, n := range g.Body[ir.Backward] {
		if len(n.Out) > 0 && ofKeys(n.Out[0].Name, 1, 3) && n.In[0] != nil {
			return n.In[0].Type.Shape.Elements() / n.Out[0].Type.Shape.Elements()
		}
	}
	return 0
}

// stepsTaken is what the counter of the step holds, which a model of several steps names.
func stepsTaken(vars map[string]*eval.Tensor) int64 {
	for name, x := range vars {
		if n, ok := passes.ParseStateName(strings.TrimPrefix(name, "%")); ok && n.Kind == "step" {
			return x.I[0]
		}
	}
	return -1
}

// kind is what a variable's name says it is; a result is of a kind of its own.
func kind(name string) string {
	switch n, ok := passes.ParseStateName(strings.TrimPrefix(name, "%")); {
	case ok && n.Of != "":
		return n.Kind
	case ok:
		return name
	}
	for _, suffix := range []string{".mean", ".var"} {
		if strings.HasSuffix(name, suffix) {
			return suffix
		}
	}
	for _, suffix := range []string{".w", ".b", ".scale", ".bias"} {
		switch {
		case strings.HasSuffix(name, suffix) && strings.HasPrefix(name, "%d."):
			return "gradient"
		case strings.HasSuffix(name, suffix):
			return "weight"
		}
	}
	return name
}
