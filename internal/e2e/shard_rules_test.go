package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/optim"
	"ampc/world"
)

// bounded has a state of the weight's shape and a scalar one.
func bounded(elementwise bool) ampc.Optimizer {
	return ampc.WithRule(ampc.UpdateRule{Name: "bounded", Elementwise: elementwise, Next: func(u *ampc.Update, p ampc.Param) ampc.Tensor {
		sum := u.State("sum", p.Weight.Type(), ampc.Fill(0.5))
		times := u.State("times", ampc.TypeOf(ampc.F32), ampc.Zeros())
		next, count := u.Add(sum, u.Square(p.Grad)), u.Affine(times, 1, 1)
		u.Set(sum, next)
		u.Set(times, count)
		step := u.Div(u.Clip(p.Grad, -1, 1), u.Add(u.Affine(u.Sqrt(next), 1, 1e-6), count))
		return u.Sub(p.Weight, u.Mul(p.LR, step))
	}})
}

// Rules that say that they are Elementwise update parts: ranks that shard them save the bytes of ranks
// that do not, and declare no whole weight. Others keep whole weights and say so.
func TestShardsOfRules(t *testing.T) {
	for name, o := range map[string]ampc.Optimizer{"bounded": bounded(true), "lion": optim.Lion(optim.LionOptions{Decay: 0.1, State: ampc.BF16}), "rmsprop": optim.RMSprop(optim.RMSpropOptions{Momentum: 0.9, Centered: true}), "whole": bounded(false)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, shard := range []bool{false, true} {
				onRanks(t, 4, func(w world.World) error {
					r, err := openShards(w, "mlp?batch=2&hidden=16", ampc.MixedF16(), func(c *ampc.TrainConfig) {
						c.Parallel.Shard, c.Optimizer, c.LR, c.Groups = shard, o, ampc.Constant(1e-3), nil
					})
					if err != nil {
						return err
					}
					defer r.zoo.Model.Close()
					parts := 0
					for _, v := range r.step.Program().Vars {
						if v.Attr.Get("part") != nil {
							parts++
						}
					}
					noted := strings.Contains(strings.Join(r.step.Notes(), "\n"), "rule bounded: it does not say that it is Elementwise")
					if want := shard && name != "whole"; want != (parts > 0) || noted != (shard && name == "whole") {
						return fmt.Errorf("shard is %t: %d variables are parts, notes %q", shard, parts, r.step.Notes())
					}
					if err := r.train(0, 5, 2); err != nil {
						return err
					}
					if !shard && w.Rank() > 0 {
						return nil
					}
					return r.zoo.Model.SaveFile(filepath.Join(dir, fmt.Sprint(shard)))
				})
			}
			sameFiles(t, filepath.Join(dir, "false"), filepath.Join(dir, "true"))
		})
	}
}

// A rule that says that it is Elementwise and is not is refused in one line, in one process too.
func TestRulesAreElementwise(t *testing.T) {
	for want, next := range map[string]func(u *ampc.Update, p ampc.Param) ampc.Tensor{
		"its reduce_sum is not computed from one element": func(u *ampc.Update, p ampc.Param) ampc.Tensor {
			return u.Sub(p.Weight, u.Mul(p.LR, u.Div(p.Grad, u.Sqrt(u.ReduceSum(u.Square(p.Grad))))))
		},
		"its reduce_mean is not": func(u *ampc.Update, p ampc.Param) ampc.Tensor {
			s := u.State("mean", ampc.TypeOf(ampc.F32), ampc.Zeros())
			u.Set(s, u.ReduceMean(p.Grad))
			return u.Sub(p.Weight, u.Mul(p.LR, p.Grad))
		},
		"its state rows of %fc1.w is f32[1,": func(u *ampc.Update, p ampc.Param) ampc.Tensor {
			u.State("rows", ampc.TypeOf(ampc.F32, 1, p.Weight.Shape()[0]), ampc.Zeros())
			return p.Weight
		},
	} {
		r, err := openShards(nil, "mlp?batch=2&hidden=16", ampc.Policy{}, func(c *ampc.TrainConfig) {
			c.Optimizer, c.LR, c.Groups = ampc.WithRule(ampc.UpdateRule{Name: "wrong", Elementwise: true, Next: next}), ampc.Constant(1e-3), nil
		})
		r.zoo.Model.Close()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
