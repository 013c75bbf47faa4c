package ampc

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"

	"ampc/ir"
	"ampc/onnx"
	onnxconvert "ampc/onnx/convert"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// calibrated is what running a model on data says about its conversion.
type calibrated struct {
	policy passes.Policy     // with a rule for each node that is decided otherwise than by the policy given
	why    map[string]string // why nodes stay f32, by their first results
	runs   int
}

// calibrate finds the fewest nodes of m that must stay f32 on the data: those that
// leave the range of 16 bits there, and those without which the error is above this
// share of the limit.
func (o *ConvertOptions) calibrate(ctx context.Context, m *onnx.Model, x *onnx.Imported, policy passes.Policy, share float64) (*calibrated, error) {
	if len(x.Foreign) > 0 || onnxconvert.HasBodies(m, x) {
		return o.calibrateBodies(ctx, m, x, policy, share)
	}
	t, err := onnxconvert.NewTrial(m, x, policy)
	if err != nil {
		return nil, err
	}
	most, err := o.magnitudes(ctx, x)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(t.Flags)) // of nodes that may compute in 16 bits
	for i, n := range m.Graph.Nodes {
		if t.Flags[i] != "" {
			names[i] = n.Result()
		}
	}
	r, err := o.trial(ctx, t)
	if err != nil {
		return nil, err
	}
	defer r.model.Close()
	c := &calibrated{}
	half, err := c.search(names, t.Outside(most), share*o.MaxError, r.run)
	if err != nil {
		return nil, err
	}
	c.policy, err = t.Rules(policy, half)
	return c, err
}

// search finds which of the named nodes compute in 16 bits. Those that leave the range stay f32;
// outside says why they do.
func (c *calibrated) search(names, outside []string, limit float64, run func(half []bool) (float64, error)) ([]bool, error) {
	c.why = map[string]string{}
	half := make([]bool, len(names))
	for i, why := range outside {
		if half[i] = names[i] != "" && why == ""; why != "" {
			c.why[names[i]] = why
		}
	}
	found, err := onnxconvert.Search(half, limit, run)
	if err != nil {
		return nil, err
	}
	for i, on := range found.Half {
		if on {
			c.why[names[i]] = "16 bits would cost more casts than they save"
		}
	}
	for i, e := range found.Alone {
		c.why[names[i]] = fmt.Sprintf("in 16 bits alone it moves an output by %.2g", e)
		if math.IsInf(e, 0) {
			c.why[names[i]] = "in 16 bits an output is not finite"
		}
	}
	c.runs = found.Runs
	return found.Half, nil
}

// magnitudes are the largest magnitudes of all values over the data.
func (o *ConvertOptions) magnitudes(ctx context.Context, x *onnx.Imported) (map[string]float64, error) {
	g, names, err := onnxconvert.Recording(x)
	if err != nil {
		return nil, err
	}
	m := FromGraph(g)
	defer m.Close()
	outputs := m.Outputs()
	s, err := m.Infer(InferConfig{Policy: Manual()}, outputs...)
	if err != nil {
		return nil, err
	}
	most := map[string]float64{}
	for _, f := range o.feeds(randomOf(s)) {
		r, err := s.Run(ctx, f)
		if err != nil {
			return nil, err
		}
		for k, y := range outputs {
			h, err := r.Value(y)
			if err != nil {
				return nil, err
			}
			if a := h.At(0); a > most[names[k]] || math.IsNaN(a) {
				most[names[k]] = a
			}
		}
	}
	return most, nil
}

// trialRun tries assignments in memory.
type trialRun struct {
	ctx     context.Context
	model   *Model
	step    *Step
	flags   []string
	outputs []Tensor
	feeds   []Feed
	want    [][]HostTensor // of each feed
}

func (o *ConvertOptions) trial(ctx context.Context, t *onnxconvert.Trial) (*trialRun, error) {
	m := FromGraph(t.Graph)
	r := &trialRun{ctx: ctx, model: m, flags: t.Flags, outputs: m.Outputs()}
	var err error
	if r.step, err = m.Infer(InferConfig{Policy: Manual()}, r.outputs...); err != nil {
		m.Close()
		return nil, err
	}
	for _, f := range o.feeds(randomOf(r.step)) {
		f = maps.Clone(f)
		r.feeds = append(r.feeds, f)
		got, err := r.values(f, make([]bool, len(r.flags)))
		if err != nil {
			m.Close()
			return nil, err
		}
		r.want = append(r.want, got)
	}
	return r, nil
}

// values runs one assignment on one feed.
func (r *trialRun) values(f Feed, half []bool) ([]HostTensor, error) {
	for i, name := range r.flags {
		if name != "" && r.model.Graph().Var(name) != nil {
			f[name] = HostTensor{TypeOf(Bool), []byte{0}}
			if half[i] {
				f[name] = HostTensor{TypeOf(Bool), []byte{1}}
			}
		}
	}
	res, err := r.step.Run(r.ctx, f)
	if err != nil {
		return nil, err
	}
	var out []HostTensor
	for _, y := range r.outputs {
		h, err := res.Value(y)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// run is the largest error of an assignment over data and outputs.
func (r *trialRun) run(half []bool) (float64, error) {
	most := 0.0
	for k, f := range r.feeds {
		got, err := r.values(f, half)
		if err != nil {
			return 0, err
		}
		for i := range got {
			e, err := difference(r.outputs[i].Name(), r.want[k][i], got[i])
			if err != nil {
				return math.Inf(1), nil //nolint:nilerr // not finite: as bad as can be
			}
			most = max(most, e)
		}
	}
	return most, nil
}

// calibrateBodies is calibrate for a model that has nodes in branches, in bodies of
// loops or in functions, or that has no static form: it runs in sessions, each
// assignment as a model that is made in memory.
func (o *ConvertOptions) calibrateBodies(ctx context.Context, m *onnx.Model, x *onnx.Imported, policy passes.Policy, share float64) (*calibrated, error) {
	b, err := cpu.Open(0)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	bodies, err := onnxconvert.NewBodies(m, x, policy, b)
	if err != nil {
		return nil, err
	}
	t := bodiesTrial{ctx: ctx, m: m, x: x, backend: b}
	most, err := t.source(o)
	if err != nil {
		return nil, err
	}
	c := &calibrated{}
	half, err := c.search(bodies.Names, bodies.Outside(most), share*o.MaxError, func(half []bool) (float64, error) {
		e, err := bodies.Edit(policy, half)
		if err != nil {
			return 0, err
		}
		return t.error(e)
	})
	if err != nil {
		return nil, err
	}
	c.policy, err = bodies.Rules(policy, half)
	return c, err
}

// bodiesTrial tries assignments as models.
type bodiesTrial struct {
	ctx     context.Context
	m       *onnx.Model
	x       *onnx.Imported
	backend runtime.Backend
	feeds   []Feed
	want    [][]HostTensor // of each feed
}

// runner runs the model as e makes it; observe, where it is set, sees its values.
func (t *bodiesTrial) runner(e *onnx.Edit, observe func(name string, v *host.Value)) (*runner, error) {
	m, err := t.m.Edited(e)
	if err != nil {
		return nil, err
	}
	r := ONNXRun{Policy: Manual(), Backend: t.backend}
	s, err := r.session(func(o host.Options) (*host.Session, error) {
		o.Observe = observe
		return host.New(m, o)
	})
	if err != nil {
		return nil, err
	}
	return s.runner(m, t.x), nil
}

// source runs the source, and returns the largest magnitudes of all values over the data, by
// their names in whatever graph.
func (t *bodiesTrial) source(o *ConvertOptions) (map[string]float64, error) {
	most := map[string]float64{}
	r, err := t.runner(&onnx.Edit{}, func(name string, v *host.Value) {
		if v.Type.DType != ir.F32 {
			return
		}
		most[name] = max(most[name], magnitude(v.Bytes())) // NaN where either is
	})
	if err != nil {
		return nil, err
	}
	defer r.close()
	t.feeds = o.feeds(r.feed)
	for _, f := range t.feeds {
		got, err := r.run(t.ctx, f)
		if err != nil {
			return nil, err
		}
		t.want = append(t.want, got)
	}
	return most, nil
}

// magnitude is the largest among f32 elements, NaN where one is no number. Infinities stay what
// they are in 16 bits.
func magnitude(b []byte) float64 {
	most := 0.0
	for ; len(b) >= 4; b = b[4:] {
		a := math.Abs(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		if math.IsNaN(a) {
			return a
		}
		if !math.IsInf(a, 0) {
			most = max(most, a)
		}
	}
	return most
}

// error is the largest error of the model as e makes it, over data and outputs.
func (t *bodiesTrial) error(e *onnx.Edit) (float64, error) {
	r, err := t.runner(e, nil)
	if err != nil {
		return 0, err
	}
	defer r.close()
	most := 0.0
	for k, f := range t.feeds {
		got, err := r.run(t.ctx, f)
		if err != nil {
			return 0, err
		}
		for i, name := range r.names {
			e, err := difference(name, t.want[k][i], got[i])
			if err != nil {
				return math.Inf(1), nil //nolint:nilerr // not finite: as bad as can be
			}
			most = max(most, e)
		}
	}
	return most, nil
}
