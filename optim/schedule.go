package optim

import (
	"fmt"
	"math"

	"ampc"
)

// OneCycle rises in half a cosine from 1/25 of the rate to the rate, over the first
// 30% of the steps, and falls in another one to a millionth of it divided by 4 at
// step total (Smith and Topin, 2018), as torch's OneCycleLR with its defaults. total
// is at least 7.
func OneCycle(rate float64, total int64) ampc.Schedule {
	const first, last = 1.0 / 25, 1.0 / 25 / 1e4
	rise := int64(math.Round(0.3*float64(total))) - 1
	return ampc.Phases(rate, ampc.Phase{Steps: rise, From: first, To: 1}, ampc.Phase{Steps: total - 1 - rise, From: 1, To: last})
}

// WarmupStableDecay rises in a line over warmup steps, stays, and falls to 0 in a line
// over the last decay of total steps (Hu et al., 2024, "MiniCPM").
func WarmupStableDecay(rate float64, warmup, decay, total int64) ampc.Schedule {
	s := ampc.Phases(rate, ampc.Phase{Steps: total - warmup - decay, From: 1, To: 1, Power: 1}, ampc.Phase{Steps: decay, From: 1, Power: 1})
	s.Warmup = warmup
	return s
}

// Polynomial rises over warmup steps and falls as (1-u)^power to 0 at step total, with
// u the share of the steps after the warm-up: torch's PolynomialLR without one.
func Polynomial(rate, power float64, warmup, total int64) ampc.Schedule {
	s := ampc.Phases(rate, ampc.Phase{Steps: total - warmup, From: 1, Power: power})
	s.Warmup = warmup
	return s
}

// CosineRestarts falls in half a cosine to least, a share of the rate, cycles times:
// first over the given number of steps, then over growth times those before (Loshchilov
// and Hutter, 2017, "SGDR"), as torch's CosineAnnealingWarmRestarts. cycles is at most 16.
func CosineRestarts(rate float64, first, growth int64, cycles int, least float64) ampc.Schedule {
	var phases []ampc.Phase
	for range cycles {
		phases = append(phases, ampc.Phase{Steps: first, From: 1, To: least})
		first *= growth
	}
	return ampc.Phases(rate, phases...)
}

// Plateau lowers the learning rate where a number that should fall stops falling, as
// torch's ReduceLROnPlateau. Its fields may be saved and set again. The zero Plateau is
// ready for use.
type Plateau struct {
	Factor   float64 // of a drop; 0: 0.1
	Patience int     // observations without progress that are waited for; 0: 10
	Progress float64 // a number is better by at least this share of the best; 0: 1e-4
	Least    float64 // the rate does not fall below it

	Best float64 // so far; counts once Seen
	Bad  int     // observations since
	Seen bool
	Rate float64 // now; 0: not known yet
}

// Observe takes the next number, such as a validation loss, and sets the rate of step
// where it is time to. rate is the base rate that step was made with. It reports
// whether the rate was lowered.
func (p *Plateau) Observe(step *ampc.Step, rate, x float64) (lowered bool, err error) {
	if p.Rate == 0 {
		p.Rate = rate
	}
	if !p.Seen || x < p.Best*(1-math.Copysign(or(p.Progress, 1e-4), p.Best)) {
		p.Best, p.Bad, p.Seen = x, 0, true
		return false, nil
	}
	patience := p.Patience
	if patience == 0 {
		patience = 10
	}
	if p.Bad++; p.Bad <= patience {
		return false, nil
	}
	next := max(p.Rate*or(p.Factor, 0.1), p.Least)
	if next >= p.Rate {
		return false, nil
	}
	if err := step.SetLR(next); err != nil {
		return false, fmt.Errorf("plateau: %w", err)
	}
	p.Rate, p.Bad = next, 0
	return true, nil
}
