package generate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how the next token is chosen from the logits. Its zero value takes the
// most likely one.
type Sampling struct {
	Temperature float64 // divides the logits; 0: always the most likely token
	TopK        int     // sample from this many of the most likely tokens; 0: all
	TopP        float64 // sample from the most likely tokens whose probabilities sum to this (Holtzman et al. 2020); 0: all
	Repetition  float64 // divides positive logits of earlier tokens, and multiplies negative ones (Keskar et al. 2019); 0: 1
	Seed        uint64  // the same seed gives the same tokens
}

// check returns an error for an invalid field.
func (o Sampling) check() error {
	switch {
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0):
		return fmt.Errorf("generate: Temperature is %g, want 0 or more", o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("generate: TopK is %d, want 0 or more", o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return fmt.Errorf("generate: TopP is %g, want 0 to 1", o.TopP)
	case !(o.Repetition >= 0) || math.IsInf(o.Repetition, 0):
		return fmt.Errorf("generate: Repetition is %g, want 0 or more", o.Repetition)
	}
	return nil
}

// Sampler chooses tokens. One goroutine at a time may use it.
type Sampler struct {
	o    Sampling
	dice *rand.Rand
	list []candidate
}

type candidate struct {
	id int32
	p  float64 // the logit, later the probability times a constant factor
}

// NewSampler makes a sampler for one of several sequences, whose random numbers differ.
func NewSampler(o Sampling, sequence int) (*Sampler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Sampler{o: o, dice: rand.New(rand.NewPCG(o.Seed, uint64(sequence)))}, nil
}

// Pick chooses a token from logits, which it may change, after the tokens before. A
// NaN is never chosen; where all are, the result is an error.
func (s *Sampler) Pick(logits []float32, before []int32) (int32, error) {
	s.penalize(logits, before)
	top := -1
	for i, x := range logits {
		if x == x && (top < 0 || x > logits[top]) {
			top = i
		}
	}
	if top < 0 {
		return 0, fmt.Errorf("generate: all %d logits are NaN", len(logits))
	}
	if s.o.Temperature == 0 || s.o.TopK == 1 || math.IsInf(float64(logits[top]), 0) {
		return int32(top), nil
	}
	return s.draw(s.likely(logits, float64(logits[top]))), nil
}

// penalize makes each earlier token less likely, once per distinct token.
func (s *Sampler) penalize(logits []float32, before []int32) {
	if s.o.Repetition == 0 || s.o.Repetition == 1 {
		return
	}
	seen := map[int32]bool{}
	for _, id := range before {
		if seen[id] || int(id) >= len(logits) {
			continue
		}
		seen[id] = true
		if logits[id] > 0 {
			logits[id] /= float32(s.o.Repetition)
		} else {
			logits[id] *= float32(s.o.Repetition)
		}
	}
}

// likely lists the candidate tokens with their probabilities times a constant factor. They are
// sorted, the most likely first, if some are excluded.
func (s *Sampler) likely(logits []float32, top float64) []candidate {
	list, sum := s.list[:0], 0.0
	for i, x := range logits {
		if p := math.Exp((float64(x) - top) / s.o.Temperature); p > 0 {
			list, sum = append(list, candidate{int32(i), p}), sum+p
		}
	}
	s.list = list
	falling := func(a, b candidate) int {
		if a.p != b.p {
			return int(math.Copysign(1, b.p-a.p))
		}
		return int(a.id - b.id)
	}
	if k := s.o.TopK; k > 0 && k < len(list) {
		slices.SortFunc(list, falling)
		list, sum = list[:k], 0
		for _, c := range list {
			sum += c.p
		}
	}
	if p := s.o.TopP; p > 0 && p < 1 {
		// tokens below this threshold together have less than 1-p, so only the others are sorted
		least := (1 - p) * sum / float64(len(list))
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.p < least })
		slices.SortFunc(list, falling)
		for i, held := 0, 0.0; i < len(list); i++ {
			if held += list[i].p; held >= p*sum {
				list = list[:i+1]
			}
		}
	}
	return list
}

func (s *Sampler) draw(list []candidate) int32 {
	sum := 0.0
	for _, c := range list {
		sum += c.p
	}
	at := s.dice.Float64() * sum
	for _, c := range list {
		if at -= c.p; at < 0 {
			return c.id
		}
	}
	return list[len(list)-1].id
}
