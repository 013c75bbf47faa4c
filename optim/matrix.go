package optim

import (
	"math"

	"ampc"
)

// AdafactorOptions are the constants of Adafactor.
type AdafactorOptions struct {
	BetaDecay float64 // the mean square decays by 1 - step^BetaDecay; 0: -0.8
	Eps       float64 // least root mean square of a weight that scales the rate; 0: 1e-3
	Clip      float64 // largest root mean square of an update; 0: 1
	Decay     float64 // weight decay, taken off the weight
}

// Adafactor keeps the mean squares of a matrix's gradient as one row and one
// column of factors, and other parameters' in full (Shazeer and Stern, 2018,
// "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost"), as
// torch.optim.Adafactor does. The learning rate is relative to the root mean square
// of the weight, and at most 1/sqrt(step). The last two dimensions of a parameter of
// higher rank are its matrices.
func Adafactor(o AdafactorOptions) ampc.Optimizer {
	o.BetaDecay, o.Eps, o.Clip = or(o.BetaDecay, -0.8), or(o.Eps, 1e-3), or(o.Clip, 1)
	return rule(o.Decay, ampc.UpdateRule{Name: "adafactor", Next: func(u *ampc.Update, p ampc.Param) ampc.Tensor {
		root := math.Sqrt(float64(size(p.Weight)))
		share := u.Pow(p.Step, u.Scalar(ampc.F32, o.BetaDecay)) // of this step in the means
		rate := u.Min(p.LR, u.Rsqrt(p.Step))
		rate = u.Mul(rate, u.Max(u.Affine(norm(u, p.Weight), 1/root, 0), u.Scalar(ampc.F32, o.Eps)))
		w := p.Weight
		if p.Decay != 0 {
			w = u.Sub(w, u.Mul(u.Affine(p.LR, p.Decay, 0), w))
		}
		const least = 0x1p-23 // the spacing of f32 at 1
		v := meanSquare(u, p, share, least)
		step := u.Mul(u.Rsqrt(u.Clip(v, least*least, math.MaxFloat32)), p.Grad)
		large := u.Max(u.Scalar(ampc.F32, 1), u.Affine(norm(u, step), 1/(root*o.Clip), 0))
		return u.Sub(w, u.Mul(u.Div(rate, large), step))
	}})
}

// meanSquare advances the running mean of the squared gradient by a share, and
// returns it: whole for rank 0 and 1, else the product of its row and column means.
func meanSquare(u *ampc.Update, p ampc.Param, share ampc.Tensor, least float64) ampc.Tensor {
	square := u.Square(p.Grad)
	toward := func(name string, x ampc.Tensor) ampc.Tensor {
		s := u.State(name, x.Type(), ampc.Zeros())
		next := u.Add(s, u.Mul(share, u.Sub(x, s)))
		u.Set(s, next)
		return next
	}
	r := p.Grad.Rank()
	if r < 2 {
		return toward("v", square)
	}
	mean := func(x ampc.Tensor, axis int) ampc.Tensor {
		return u.ReduceMean(x, ampc.ReduceOptions{Axes: []int{axis}, Keep: true})
	}
	rows, columns := toward("rows", mean(square, r-1)), toward("columns", mean(square, r-2))
	return u.Div(u.Mul(rows, columns), u.Clip(mean(rows, r-2), least, math.MaxFloat32))
}

// norm is the 2-norm of all elements.
func norm(u *ampc.Update, x ampc.Tensor) ampc.Tensor { return u.Sqrt(u.ReduceSum(u.Square(x))) }

func size(x ampc.Tensor) int {
	n := 1
	for _, d := range x.Shape() {
		n *= d
	}
	return n
}

// MuonOptions are the constants of Muon.
type MuonOptions struct {
	Momentum float64 // 0: 0.95
	Plain    bool    // step along the momentum; default: one step ahead of it (Nesterov)
	Steps    int     // of the iteration that makes the step orthogonal; 0: 5
	Decay    float64 // weight decay, taken off the weight
	// MatchAdamW scales updates to the root mean square of AdamW's, 0.2*sqrt(max(in,
	// out)), so that AdamW's rates and decay can be kept; default: sqrt(max(1, out/in)).
	MatchAdamW bool
}

// Muon steps a matrix along its momentum made orthogonal by a Newton-Schulz
// iteration (Jordan, 2024, "Muon: An optimizer for hidden layers in neural networks").
// The iteration runs in f32. Weights are [in, out], as Linear makes them; those of
// convolutions are matrices of [out, all else]. Give embeddings, the last layer,
// biases and norms to a Group with another optimizer; a parameter of rank 0 or 1 is
// an error.
func Muon(o MuonOptions) ampc.Optimizer {
	o.Momentum = or(o.Momentum, 0.95)
	if o.Steps == 0 {
		o.Steps = 5
	}
	return rule(o.Decay, ampc.UpdateRule{Name: "muon", Next: func(u *ampc.Update, p ampc.Param) ampc.Tensor {
		shape := p.Weight.Shape()
		if len(shape) < 2 {
			u.Fail("muon steps matrices, and %s has rank %d: give it a Group with another optimizer, before the one of Muon", p.Name, len(shape))
			return p.Weight
		}
		m := newState(u, p, "m", ampc.F32)
		next := m.average(o.Momentum, p.Grad)
		m.set(next)
		if !o.Plain {
			next = u.Add(u.Affine(p.Grad, 1-o.Momentum, 0), u.Affine(next, o.Momentum, 0))
		}
		in, out := shape[0], size(p.Weight)/shape[0]
		if len(shape) > 2 {
			next = u.Reshape(next, in, out)
			in, out = out, in
		}
		step := u.Reshape(orthogonal(u, next, o.Steps), shape...)
		scale := math.Sqrt(max(1, float64(out)/float64(in)))
		if o.MatchAdamW {
			scale = 0.2 * math.Sqrt(float64(max(in, out)))
		}
		w := p.Weight
		if p.Decay != 0 {
			w = u.Sub(w, u.Mul(u.Affine(p.LR, p.Decay, 0), w))
		}
		return u.Sub(w, u.Mul(u.Affine(p.LR, scale, 0), step))
	}})
}

// orthogonal is about the nearest matrix to x with singular values of 1: those of the
// result lie between 0.7 and 1.2. The coefficients are Jordan's, the steepest at 0.
func orthogonal(u *ampc.Update, x ampc.Tensor, steps int) ampc.Tensor {
	const a, b, c, least = 3.4445, -4.7750, 2.0315, 1e-7
	x = u.Div(x, u.Max(norm(u, x), u.Scalar(ampc.F32, least)))
	tall := x.Dim(0) > x.Dim(1)
	for range steps {
		g := u.Matmul(x, x, ampc.MatmulOptions{TransposeX: tall, TransposeY: !tall}) // over the longer side
		g = u.Add(u.Affine(g, b, 0), u.Affine(u.Matmul(g, g), c, 0))
		if tall {
			x = u.Add(u.Affine(x, a, 0), u.Matmul(x, g))
		} else {
			x = u.Add(u.Affine(x, a, 0), u.Matmul(g, x))
		}
	}
	return x
}
