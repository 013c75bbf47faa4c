package ampc_test

import (
	"fmt"
	"testing"

	"ampc"
)

// Checkpoints by hand keep no more than themselves, take less memory, and change no bit; with a limit
// as well, the compiler adds no more work than they do.
func TestCheckpointsByHand(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()} {
		t.Run(p.Name, func(t *testing.T) {
			want, whole := trainedBlocks(t, false, ampc.TrainConfig{Policy: p})
			got, hand := trainedBlocks(t, true, ampc.TrainConfig{Policy: p})
			_, limited := trainedBlocks(t, true, ampc.TrainConfig{Policy: p, Memory: whole.Program().Total() * 9 / 10})
			if a, b := whole.Program().Total(), hand.Program().Total(); 10*b > 9*a {
				t.Errorf("%d bytes with checkpoints, %d without", b, a)
			}
			if a := limited.Program().Total(); 10*a > 9*whole.Program().Total() {
				t.Errorf("%d bytes under a limit of nine tenths of %d", a, whole.Program().Total())
			}
			for name, v := range want {
				if got[name] != v {
					t.Errorf("%s differs with checkpoints", name)
				}
			}
		})
	}
}

// trainedBlocks trains a perceptron of six blocks with dropout for three steps.
func trainedBlocks(t *testing.T, checkpoints bool, c ampc.TrainConfig) (map[string]string, *ampc.Step) {
	t.Helper()
	m := ampc.New("blocks")
	t.Cleanup(func() { m.Close() })
	x := m.Input("x", ampc.F32, 256, 16)
	h := x
	for i := range 6 {
		s := m.Scope(fmt.Sprintf("b%d", i))
		u := s.Dropout("drop", s.Gelu(s.Linear("up", h, 64)), 0.1)
		h = s.Named("out").Add(h, s.Linear("down", u, 16))
		if checkpoints {
			h = m.Checkpoint(h)
		}
	}
	c.Optimizer, c.LR = ampc.SGD(0.9), ampc.Constant(0.1)
	loss := m.ReduceMean(m.Square(h))
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]float32, 256*16)
	for i := range data {
		data[i] = float32(i%37)/37 - 0.5
	}
	for range 3 {
		r, err := step.Run(t.Context(), ampc.Feed{"x": data})
		if err == nil {
			_, err = r.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	state := map[string]string{}
	for _, name := range m.Variables() {
		v, err := m.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		state[name] = string(v.Bytes)
	}
	return state, step
}

func TestCheckpointMistakes(t *testing.T) {
	m := ampc.New("m")
	m.Checkpoint(m.Input("x", ampc.F32, 4))
	wantError(t, m.Err(), "memory_test.go:", "checkpoint: %x is input, which is kept in any case")
	m = ampc.New("m")
	m.Checkpoint(ampc.Tensor{})
	wantError(t, m.Err(), "checkpoint: the tensor is absent")
}
