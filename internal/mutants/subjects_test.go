package mutants

import (
	"fmt"
	"slices"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/models"
	"ampc/passes"
	"ampc/passes/prove"
)

// subject is a compiled step whose mutants are judged.
type subject struct {
	name     string
	training *ir.Graph // as it was before the first pass that changes precision or layout
	final    *ir.Graph
	policy   passes.Policy
	rules    prove.Rules
	micro    int

	order  map[*ir.Node]int        // of final: place in the order of evaluation
	sec    map[*ir.Node]ir.Section // of final
	byType map[ir.Type][]*ir.Value // values of final, variables first
	uses   *ir.Uses                // of final
	twins  map[*ir.Value]*ir.Value // of final: the first value that is computed the same way; none of casts and moves
}

// model builds a model whose losses are trained.
type model struct {
	name string
	open func() (*ampc.Model, []models.Step, ampc.Tensor, error)
}

func zoo(spec string) func() (*ampc.Model, []models.Step, ampc.Tensor, error) {
	return func() (*ampc.Model, []models.Step, ampc.Tensor, error) {
		z, err := models.Open(spec)
		if err != nil {
			return nil, nil, ampc.Tensor{}, err
		}
		return z.Model, z.Steps, z.Output, nil
	}
}

// subjectModels are the kinds of models of the zoo, in a few nodes and tiny shapes, a U-Net in fewer channels, and four
// kinds that it lacks.
func subjectModels() []model {
	return []model{
		{"mlp", zoo("mlp?in=4&hidden=3&batch=3&classes=3&layers=2")},
		{"lenet", zoo("lenet?size=4&channels=1&conv1=2&conv2=2&fc1=4&fc2=0&batch=2&classes=3&pad=2")},
		{"resnet", zoo("resnet8?width=2&channels=2&size=3&batch=3&classes=3&blocks2=0&blocks3=0")},
		{"gpt", zoo("gpt?layers=1&dim=4&heads=2&vocab=5&seq=3&batch=2&dropout=0.25")},
		{"lstm", zoo("lstm?batch=2&seq=3&vocab=5&dim=3")},
		{"bert", zoo("bert?batch=2&seq=3&vocab=5&layers=1&heads=2&dim=4&dropout=0.25")},
		{"vit", zoo("vit?batch=2&size=4&channels=1&patch=2&layers=1&heads=1&dim=4&classes=3")},
		{"unet", unet},
		{"unet3d", zoo("unet3d?batch=1&depth=2&size=3&width=1&levels=1&classes=2")},
		{"convlstm", zoo("convlstm?batch=2&seq=2&ahead=1&size=2&width=1&layers=1")},
		{"gan", zoo("gan?batch=2&noise=2&in=3&hidden=3")},
		{"gru", gru},
		{"penalty", penalty},
		{"joins", joined},
		{"blocks", blocks},
	}
}

// unet has one level; the zoo's norms want groups of eight.
func unet() (*ampc.Model, []models.Step, ampc.Tensor, error) {
	m := ampc.New("unet")
	x, noise := m.Input("x", ampc.F32, 1, 1, 4, 4), m.Input("noise", ampc.F32, 1, 1, 4, 4)
	down := m.Silu(m.GroupNorm("norm1", m.Conv2d("in", x, 2, 3, ampc.Conv2dOptions{Padding: 1}), 2))
	low := m.Gelu(m.Conv2d("pool", down, 2, 3, ampc.Conv2dOptions{Stride: 2, Padding: 1}))
	up := m.ConvTranspose2d("grow", low, 2, 2, ampc.ConvTranspose2dOptions{Stride: 2})
	out := m.Conv2d("out", m.Concat(1, up, down), 1, 1)
	loss := m.Named("loss").MSE(out, noise)
	c := ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(1e-2)}
	return m, []models.Step{{Name: "train", Losses: []ampc.Loss{{Value: loss}}, Config: c}}, out, m.Err()
}

// gru reads two dropouts over one recurrent layer.
func gru() (*ampc.Model, []models.Step, ampc.Tensor, error) {
	m := ampc.New("gru")
	x, y := m.Input("x", ampc.F32, 2, 3, 4), m.Input("y", ampc.I32, 2, 3)
	h := m.Dropout("drop1", x, 0.25)
	h = m.Dropout("drop2", m.GRU("gru", h, 3), 0.25)
	out := m.Linear("head", h, 3)
	loss := m.Named("loss").CrossEntropy(out, y)
	c := ampc.TrainConfig{Optimizer: ampc.Adam(), LR: ampc.Cosine(1e-2, 2, 10)}
	return m, []models.Step{{Name: "train", Losses: []ampc.Loss{{Value: loss}}, Config: c}}, out, m.Err()
}

// penalty adds the square of a gradient to its loss.
func penalty() (*ampc.Model, []models.Step, ampc.Tensor, error) {
	m := ampc.New("penalty")
	x, y := m.Input("x", ampc.F32, 3, 4), m.Input("y", ampc.F32, 3, 1)
	out := m.Linear("fc2", m.Tanh(m.Linear("fc1", x, 3)), 1)
	fit := m.MSE(out, y)
	slope := m.ScaledGrad(64, fit, x)[0]
	loss := m.Named("loss").Add(fit, m.ReduceSum(m.Square(slope)))
	sgd := ampc.SGD(0.9)
	sgd.Decay, sgd.Nesterov = 0.01, true
	c := ampc.TrainConfig{Optimizer: sgd, LR: ampc.Constant(1e-2)}
	return m, []models.Step{{Name: "train", Losses: []ampc.Loss{{Value: loss}}, Config: c}}, out, m.Err()
}

// joined joins what a product, a norm and an input hold, and moves all of it on the way to products and to f32.
func joined() (*ampc.Model, []models.Step, ampc.Tensor, error) {
	m := ampc.New("joins")
	x, y := m.Input("x", ampc.F32, 2, 4), m.Input("y", ampc.F32, 2, 3)
	a := m.Linear("fc1", x, 4)
	norm := m.LayerNorm("norm", a)
	low := m.Named("low").Concat(1, m.Relu(a), m.Tanh(m.Linear("fc2", norm, 4)))
	wide := m.Named("wide").Concat(1, a, x, norm)
	turned := m.Transpose(m.Reshape(wide, 2, 3, 4), 0, 2, 1)
	cut := m.Slice(m.Pad(wide, []int{0, 1}, []int{0, 1}), []int{1}, []int{2}, []int{10})
	parts := m.Split(low, 1, 3, 5)
	mixed := m.Named("mixed").Concat(1, m.Cast(parts[0], ampc.F16), m.Cast(parts[1], ampc.F32))
	h := m.Add(m.Linear("fc3", low, 4), m.Linear("fc4", m.Reshape(turned, 2, 12), 4))
	h = m.Add(h, m.Linear("fc5", m.Concat(1, cut, mixed), 4))
	out := m.Linear("head", h, 3)
	loss := m.Named("loss").Add(m.MSE(out, y), m.ReduceMean(m.Square(m.Softmax(turned, -1))))
	c := ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(1e-2)}
	return m, []models.Step{{Name: "train", Losses: []ampc.Loss{{Value: loss}}, Config: c}}, out, m.Err()
}

// blocks computes two blocks again on the way back.
func blocks() (*ampc.Model, []models.Step, ampc.Tensor, error) {
	m := ampc.New("blocks")
	x, y := m.Input("x", ampc.F32, 3, 4), m.Input("y", ampc.F32, 3, 2)
	h := m.Linear("in", x, 4)
	for _, name := range []string{"b0", "b1"} {
		s := m.Scope(name)
		u := s.Gelu(s.Linear("up", s.LayerNorm("norm", h), 5))
		u = s.Linear("down", s.Concat(1, s.Silu(u), s.Slice(u, []int{1}, []int{1}, []int{4})), 4)
		h = m.Checkpoint(s.Add(h, u))
	}
	out := m.Linear("head", h, 2)
	loss := m.Named("loss").MSE(out, y)
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(1e-2)}
	return m, []models.Step{{Name: "train", Losses: []ampc.Loss{{Value: loss}}, Config: c}}, out, m.Err()
}

// arrangement is what a step does beside its model: policy, micro-batches, clipping, losses, scalers, averages.
type arrangement struct {
	name   string
	models []string // nil: every model
	policy passes.Policy
	change func(c *passes.Config, aux *ir.Value)
}

func arrangements() []arrangement {
	small, moving := []string{"mlp", "lenet", "gpt"}, []string{"gpt", "resnet", "joins", "blocks"}
	return []arrangement{
		{"mixed-f16/3/clip+ema", nil, passes.MixedF16(), func(c *passes.Config, _ *ir.Value) {
			c.Micro, c.EMA, c.Clip = 3, 0.9, passes.Clip{Norm: 1}
		}},
		{"mixed-bf16/1/losses", nil, passes.MixedBF16(), func(c *passes.Config, aux *ir.Value) {
			c.Micro = 1
			second(c, aux, passes.Scaler{})
		}},
		{"o2-f16/3/shared", nil, passes.O2(ir.F16), func(c *passes.Config, _ *ir.Value) {
			c.Micro = 3
			shared(c, passes.Collect)
		}},
		{"mixed-f16/1/losses+shared", nil, passes.MixedF16(), func(c *passes.Config, aux *ir.Value) {
			c.Micro, c.EMA = 1, 0.9
			c.Clip.Value = 0.5
			shared(c, passes.Advance)
			second(c, aux, passes.Dynamic())
		}},
		{"mixed-bf16/3/drop+clip", small, passes.MixedBF16(), func(c *passes.Config, _ *ir.Value) {
			c.Micro, c.BadMicro, c.Clip = 3, passes.DropMicro, passes.Clip{Norm: 1}
			s := passes.Dynamic()
			for i := range c.Losses {
				c.Losses[i].Scaler = &s
			}
		}},
		{"mixed-f16/3/weight-copies", small, passes.MixedF16(), func(c *passes.Config, _ *ir.Value) {
			c.Micro, c.WeightCopies, c.Scaler = 3, true, passes.Static(256)
		}},
		{"mixed-f16-trunk/1/clip", moving, trunk("mixed-f16-trunk"), func(c *passes.Config, _ *ir.Value) { c.Micro, c.Clip = 1, passes.Clip{Norm: 1} }},
		{"mixed-bf16-trunk/3", moving, trunk("mixed-bf16-trunk"), func(c *passes.Config, _ *ir.Value) { c.Micro = 3 }},
	}
}

// trunk is a preset that narrows sums.
func trunk(name string) passes.Policy {
	p, err := passes.PolicyNamed(name)
	if err != nil {
		panic(err)
	}
	return p
}

// second adds a loss with a scaler of its own.
func second(c *passes.Config, aux *ir.Value, s passes.Scaler) {
	c.Losses = append(c.Losses, passes.Loss{Value: aux, Weight: 0.5, Scaler: &s})
}

// shared gives the losses of the step a scaler that other steps use too.
func shared(c *passes.Config, part passes.Sharing) {
	s := passes.Dynamic()
	s.Sharing = part
	for i := range c.Losses {
		c.Losses[i].Scaler = &s
	}
}

// subjects compiles every model under every arrangement. A GAN's two steps take turns.
func subjects(t *testing.T) []*subject {
	var list []*subject
	for _, m := range subjectModels() {
		for i, a := range arrangements() {
			if a.models != nil && !slices.Contains(a.models, m.name) {
				continue
			}
			model, steps, out, err := m.open()
			if err != nil {
				t.Fatal(err)
			}
			step := steps[i%len(steps)]
			b := model.Named("aux")
			if len(steps) > 1 { // a loss that every trained parameter of either side may miss is none
				out = step.Losses[0].Value
			}
			aux := b.ReduceMean(b.Square(out))
			if err := b.Err(); err != nil {
				t.Fatal(err)
			}
			step.Config.Outputs = []ampc.Output{{Tensor: step.Losses[0].Value}, {Tensor: aux}}
			s, err := compile(fmt.Sprintf("%s/%s", m.name, a.name), model, step, a)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
	}
	return list
}

// compile expects the second loss as the second output.
func compile(name string, m *ampc.Model, step models.Step, a arrangement) (*subject, error) {
	c := step.Config
	g, cfg, err := m.Source(c, step.Losses...)
	if err != nil {
		return nil, err
	}
	cfg.Policy = a.policy
	cfg.Policy = a.policy
	aux := cfg.Outputs[1].Value
	cfg.Outputs = append(cfg.Outputs, passes.Output{Kind: passes.OfSkip}, passes.Output{Kind: passes.OfScale})
	a.change(&cfg, aux)
	s := &subject{name: name, policy: a.policy, micro: cfg.Micro}
	cfg.Source = func(t *ir.Graph) { s.training = t }
	s.final = g
	if err := passes.Run(s.final, cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.rules = a.policy.ProofRules(s.training, ir.Caps{}, cfg.NoSkip)
	s.index()
	return s, nil
}

func (s *subject) index() {
	s.order, s.sec, s.byType = map[*ir.Node]int{}, map[*ir.Node]ir.Section{}, map[ir.Type][]*ir.Value{}
	s.uses = s.final.Uses()
	s.number()
	for _, v := range s.final.Vars {
		s.byType[v.Type] = append(s.byType[v.Type], v)
	}
	for sec, n := range s.final.Nodes {
		s.order[n], s.sec[n] = len(s.order), sec
		for _, v := range n.Out {
			s.byType[v.Type] = append(s.byType[v.Type], v)
		}
	}
}

// number finds values that are computed the same way, except for dtypes.
func (s *subject) number() {
	s.twins = map[*ir.Value]*ir.Value{}
	class, known := map[*ir.Value]int{}, map[string]*ir.Value{}
	of := func(v *ir.Value) int {
		if v == nil {
			return 0
		}
		if _, v = rounded(v); class[v] == 0 {
			class[v] = len(class) + 1
		}
		return class[v]
	}
	for sec, n := range s.final.Nodes {
		if transparent(n) {
			continue
		}
		in := []int{}
		for _, v := range n.In {
			in = append(in, of(v))
		}
		for i, v := range n.Out {
			key := fmt.Sprint(n.Op, n.Attrs.Without("out").Without("loss"), in, i, sec == ir.Update)
			if v.Next != nil || known[key] == nil {
				known[key] = v
			}
			s.twins[v], class[v] = known[key], of(known[key])
		}
	}
}

// at is where a value is defined in the order of evaluation; variables come first.
func (s *subject) at(v *ir.Value) int {
	if v.Def == nil {
		return -1
	}
	return s.order[v.Def]
}
