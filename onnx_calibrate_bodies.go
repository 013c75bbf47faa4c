package ampc

import (
	"context"
	"encoding/binary"
	"math"

	"ampc/ir"
	"ampc/onnx"
	onnxconvert "ampc/onnx/convert"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

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
	if t.feeds = o.Data; len(t.feeds) == 0 {
		t.feeds = []Feed{r.feed(o.Seed)}
	}
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
