package ampc_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ampc"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
)

// skipUnmapped skips a test that loads a step as large as the machine's memory where it is not known,
// or the arena would be touched: under the race detector it is in Go's heap.
func skipUnmapped(t *testing.T) {
	if cpu.Available() > 1<<45 {
		t.Skip("this system does not say how much memory there is")
	}
	if kern.RaceEnabled {
		t.Skip("not under the race detector, which keeps arenas in Go's heap")
	}
}

// A step that does not fit into the machine's memory is refused before it runs; the error names the
// largest batch that does fit, and one that large is not refused.
func TestLargestBatchThatFits(t *testing.T) {
	skipUnmapped(t)
	m := ampc.New("large")
	defer m.Close()
	x := m.Input("x", ampc.F32, ampc.Dim("N"), 1<<20)
	loss := m.MSE(m.Linear("fc", x, 4), m.Input("y", ampc.F32, ampc.Dim("N"), 4))
	train := func(n int64) error {
		s, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Sizes: ampc.Sizes{"N": n}}, ampc.Loss{Value: loss})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	err := train(1 << 20)
	var room *runtime.RoomError
	if !errors.As(err, &room) || room.Need <= room.Room {
		t.Fatalf("4 TB of inputs: %v", err)
	}
	found := regexp.MustCompile(`: the largest N that fits is (\d+)$`).FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatal(err)
	}
	n, _ := strconv.ParseInt(found[1], 10, 64)
	if bytes := n << 22; bytes > room.Room || bytes < room.Room/4 {
		t.Errorf("batch %d takes %d bytes, there is room for %d", n, bytes, room.Room)
	}
	if err := train(n); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
	if err := train(n + n/20); !errors.As(err, &room) {
		t.Errorf("a batch larger by a twentieth: %v", err)
	}
}

// The batch may be a number in the model. A model that is written for it says so.
func TestLargestBatchOfNumbers(t *testing.T) {
	skipUnmapped(t)
	const rows = 1 << 20
	train := func(batch int, rows func(m *ampc.Model, x ampc.Tensor) ampc.Tensor) error {
		m := ampc.New("large")
		defer m.Close()
		x := rows(m, m.Input("x", ampc.F32, batch, 1<<10, 1<<10))
		loss := m.MSE(m.Linear("fc", x, 4), m.Input("y", ampc.F32, batch, 4))
		_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, ampc.Loss{Value: loss})
		return err
	}
	flat := func(batch int) func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Reshape(x, batch, 1<<20) }
	}
	err := train(rows, flat(rows))
	var room *runtime.RoomError
	if !errors.As(err, &room) {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`: the largest batch that fits is (\d+)$`).FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(found[1])
	if bytes := int64(n) << 22; bytes > room.Room || bytes < room.Room/4 {
		t.Errorf("batch %d takes %d bytes, there is room for %d", n, bytes, room.Room)
	}
	if err := train(n, flat(n)); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
	if err := train(n+n/20, flat(n+n/20)); !errors.As(err, &room) {
		t.Errorf("a batch larger by a twentieth: %v", err)
	}
	err = train(rows, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.Reshape(m.Reshape(x, 2, rows/2, 1<<20), rows, 1<<20)
	})
	if err == nil || !strings.Contains(err.Error(), "the model is written for 1048576: ") {
		t.Errorf("two halves of the rows: %v", err)
	}
}

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
