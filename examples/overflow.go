package main

import (
	"fmt"
	"io"
	"math"

	"ampc"
)

// onlyMixed is a feed-forward layer with a hidden value of 66,246, as T5 has
// them: f32 and bf16 hold it, f16 ends at 65,504. Only that layer needs f32.
func onlyMixed(w io.Writer) error {
	for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16(), ampc.MixedBF16(), ampc.MixedF16().Keep("ff")} {
		m := ampc.New("t5")
		x, y := m.Input("x", ampc.F32, 4, 16), m.Input("y", ampc.F32, 4, 16)
		ff := m.Scope("ff")
		wide := ff.Named("act").Relu(ff.Linear("wi", x, 16, ampc.LinearOptions{NoBias: true}))
		out := m.Linear("out", ff.Linear("wo", wide, 16, ampc.LinearOptions{Init: ampc.Normal(0, 1e-5)}), 16)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: p}, ampc.Loss{Value: m.MSE(out, y)})
		if err != nil {
			return err
		}
		if err := m.SetVariable("ff.wi.w", filled(256, 66246.0/16)); err != nil {
			return err
		}
		fmt.Fprintf(w, "-- %s%s\n", p.Name, kept(p))
		if err := tell(w, step, ampc.Feed{"x": filled(64, 1), "y": filled(64, 0)}); err != nil {
			return err
		}
		m.Close()
	}
	return nil
}

func kept(p ampc.Policy) string {
	if len(p.Rules) == 0 {
		return ""
	}
	return " with " + p.Rules[0].Pattern + " kept in f32"
}

func filled(n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return v
}

// whichLayer has twelve equal blocks, of which one has grown: the doctor names it.
func whichLayer(w io.Writer) error {
	m := ampc.New("deep")
	x, y := m.Input("x", ampc.F32, 4, 16), m.Input("y", ampc.F32, 4, 16)
	h := x
	for i := range 12 {
		block := m.Scope(fmt.Sprintf("h%d", i))
		up := block.GeluTanh(block.Linear("up", block.LayerNorm("ln", h), 64))
		h = block.Named("res").Add(h, block.Linear("down", up, 16))
	}
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()}, ampc.Loss{Value: m.MSE(m.Linear("head", h, 16), y)})
	if err != nil {
		return err
	}
	defer m.Close()
	grown, err := m.Variable("h7.up.w")
	if err != nil {
		return err
	}
	weights := grown.Floats()
	for i := range weights {
		weights[i] *= 200_000
	}
	if err := m.SetVariable("h7.up.w", weights); err != nil {
		return err
	}
	in := make([]float32, 64)
	for i := range in {
		in[i] = float32(math.Sin(float64(i)))
	}
	return tell(w, step, ampc.Feed{"x": in, "y": filled(64, 0)})
}

// adamHalf spells Adam out in the manner of a port to pure half precision: the
// second moment and epsilon are f16, where the square of a gradient under
// 2.4e-4 is 0 and 1e-8 is 0 too. The first step divides by zero.
func adamHalf(w io.Writer) error {
	for _, d := range []ampc.DType{ampc.F16, ampc.F32} {
		m, loss := classifier(64, 32)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16(), Gradients: adamIn(d)}, ampc.Loss{Value: loss})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "-- second moment and epsilon in %s\n", d)
		if err := tell(w, step, spirals(1, 64)); err != nil {
			return err
		}
		m.Close()
	}
	return nil
}

// adamIn is the first step of Adam: the gradient over the root of its mean square.
func adamIn(d ampc.DType) func(u *ampc.Update, gs []ampc.Grad) []ampc.Grad {
	return func(u *ampc.Update, gs []ampc.Grad) []ampc.Grad {
		for i, g := range gs {
			name := g.Param.Name()
			second := u.Named("v."+name).Cast(u.Square(g.Value), d)
			root := u.Cast(u.Sqrt(u.Cast(second, ampc.F32)), d)
			den := u.Cast(u.Named("den."+name).Affine(u.Cast(root, ampc.F32), 1, 1e-8), d)
			gs[i].Value = u.Named("step."+name).Div(g.Value, u.Cast(den, ampc.F32))
		}
		return gs
	}
}
