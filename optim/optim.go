// Package optim has optimizers beyond those of package ampc, each an
// ampc.UpdateRule: ops of the training step, in f32, under its loss scaler, checks
// and clips. The Optimizer that a function returns has the fields Decay and
// MatrixDecay to change. Read a rule to write your own.
package optim

import "ampc"

// LionOptions are the constants of Lion.
type LionOptions struct {
	Beta1 float64    // share of the momentum in the step's direction; 0: 0.9
	Beta2 float64    // decay of the momentum; 0: 0.99
	Decay float64    // weight decay, taken off the weight
	State ampc.DType // of the momentum; 0: F32
}

// Lion steps every weight by the learning rate in the direction of a momentum's
// sign, and keeps one state of the weight's shape (Chen et al., 2023, "Symbolic
// Discovery of Optimization Algorithms", algorithm 2):
// w' = w - lr*(sign(beta1*m + (1-beta1)*g) + decay*w); m' = beta2*m + (1-beta2)*g.
func Lion(o LionOptions) ampc.Optimizer {
	o.Beta1, o.Beta2 = or(o.Beta1, 0.9), or(o.Beta2, 0.99)
	return rule(o.Decay, ampc.UpdateRule{Name: "lion", Elementwise: true, Next: func(u *ampc.Update, p ampc.Param) ampc.Tensor {
		m := newState(u, p, "m", o.State)
		step := u.Sign(m.average(o.Beta1, p.Grad))
		m.set(m.average(o.Beta2, p.Grad))
		if d := p.Decay; d != 0 {
			step = u.Add(step, u.Affine(p.Weight, d, 0))
		}
		return u.Sub(p.Weight, u.Mul(p.LR, step))
	}})
}

// RMSpropOptions are the constants of RMSprop.
type RMSpropOptions struct {
	Alpha    float64 // decay of the mean square; 0: 0.99
	Eps      float64 // added to the root; 0: 1e-8
	Momentum float64 // 0: none, and no state for it
	Centered bool    // divide by the standard deviation instead of the root mean square
	Decay    float64 // weight decay, added to the gradient
}

// RMSprop divides gradients by the root of their running mean square (Hinton, 2012),
// as torch.optim.RMSprop does.
func RMSprop(o RMSpropOptions) ampc.Optimizer {
	o.Alpha, o.Eps = or(o.Alpha, 0.99), or(o.Eps, 1e-8)
	return rule(o.Decay, ampc.UpdateRule{Name: "rmsprop", Elementwise: true, Next: func(u *ampc.Update, p ampc.Param) ampc.Tensor {
		g := p.Grad
		if d := p.Decay; d != 0 {
			g = u.Add(g, u.Affine(p.Weight, d, 0))
		}
		square := newState(u, p, "v", ampc.F32)
		v := square.average(o.Alpha, u.Square(g))
		square.set(v)
		if o.Centered {
			mean := newState(u, p, "mean", ampc.F32)
			a := mean.average(o.Alpha, g)
			mean.set(a)
			v = u.Sub(v, u.Square(a))
		}
		step := u.Div(g, u.Affine(u.Sqrt(v), 1, o.Eps))
		if o.Momentum != 0 {
			m := newState(u, p, "m", ampc.F32)
			step = u.Add(u.Affine(m.old, o.Momentum, 0), step)
			m.set(step)
		}
		return u.Sub(p.Weight, u.Mul(p.LR, step))
	}})
}

// rule is the Optimizer of a rule with a weight decay.
func rule(decay float64, r ampc.UpdateRule) ampc.Optimizer {
	o := ampc.WithRule(r)
	o.Decay = decay
	return o
}

// state is a state of the shape of a parameter.
type state struct {
	u         *ampc.Update
	kept, old ampc.Tensor // as it is stored, and in f32
}

// newState declares a state of a parameter's shape in d, F32 for the zero DType.
func newState(u *ampc.Update, p ampc.Param, name string, d ampc.DType) state {
	if d == 0 {
		d = ampc.F32
	}
	s := u.State(name, ampc.TypeOf(d, p.Weight.Shape()...), ampc.Zeros())
	return state{u, s, u.Cast(s, ampc.F32)}
}

// average is decay*s + (1-decay)*x.
func (s state) average(decay float64, x ampc.Tensor) ampc.Tensor {
	return s.u.Add(s.u.Affine(s.old, decay, 0), s.u.Affine(x, 1-decay, 0))
}

func (s state) set(x ampc.Tensor) { s.u.Set(s.kept, s.u.Cast(x, s.kept.DType())) }

// or is x, or the default where it is 0.
func or(x, otherwise float64) float64 {
	if x == 0 {
		return otherwise
	}
	return x
}
