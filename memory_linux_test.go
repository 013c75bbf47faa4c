package ampc_test

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ampc"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// limitSpace lets this process map so many bytes more until the test ends, as ulimit -v does: what other
// processes have does not change it.
func limitSpace(t *testing.T, bytes uint64) {
	t.Helper()
	if kern.RaceEnabled {
		t.Skip("not under the race detector, which keeps arenas in Go's heap")
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &old); err != nil {
		t.Fatal(err)
	}
	set := func(l syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_AS, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(syscall.Rlimit{Cur: pages*uint64(os.Getpagesize()) + bytes, Max: old.Max})
	t.Cleanup(func() { set(old) })
}

// A step that does not fit is refused before it runs; the error names the largest batch that does fit.
// One that large runs, with its feed on Go's heap; one larger by a fifth is refused.
func TestLargestBatchThatFits(t *testing.T) {
	limitSpace(t, 2<<30)
	m := ampc.New("large")
	defer m.Close()
	x := m.Input("x", ampc.F32, ampc.Dim("N"), 1<<20)
	loss := m.MSE(m.Linear("fc", x, 4), m.Input("y", ampc.F32, ampc.Dim("N"), 4))
	train := func(n int64) error {
		s, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Sizes: ampc.Sizes{"N": n}}, ampc.Loss{Value: loss})
		if err != nil {
			return err
		}
		if r, err := s.Run(t.Context(), ampc.Feed{"x": make([]float32, n<<20), "y": make([]float32, n*4)}); err != nil {
			t.Errorf("batch %d: %v", n, err)
		} else if _, err := r.Wait(t.Context()); err != nil {
			t.Errorf("batch %d: %v", n, err)
		}
		return s.Close()
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
	if bytes := n << 22; 2*bytes > room.Room || bytes < room.Room/3 {
		t.Errorf("batch %d takes %d bytes, there is room for %d", n, bytes, room.Room)
	}
	if err := train(n); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
	if err := train(n + n/5); !errors.As(err, &room) {
		t.Errorf("a batch larger by a fifth: %v", err)
	}
}

// The batch may be a number in the model. A model that is written for it says so.
func TestLargestBatchOfNumbers(t *testing.T) {
	limitSpace(t, 6<<30)
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
	if err := train(n+n/10, flat(n+n/10)); !errors.As(err, &room) {
		t.Errorf("a batch larger by a tenth: %v", err)
	}
	err = train(rows, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.Reshape(m.Reshape(x, 2, rows/2, 1<<20), rows, 1<<20)
	})
	if err == nil || !strings.Contains(err.Error(), "the model is written for 1048576: ") {
		t.Errorf("two halves of the rows: %v", err)
	}
}

// The largest batch of an inference step leaves memory for what the caller reads.
func TestLargestBatchThatIsRead(t *testing.T) {
	limitSpace(t, 2<<30)
	m := ampc.New("large")
	defer m.Close()
	y := m.Relu(m.Input("x", ampc.F32, ampc.Dim("N"), 1<<20))
	infer := func(n int64) (*ampc.Step, error) {
		return m.Infer(ampc.InferConfig{Sizes: ampc.Sizes{"N": n}}, y)
	}
	_, err := infer(1 << 20)
	var room *runtime.RoomError
	if !errors.As(err, &room) {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`: the largest N that fits is (\d+)$`).FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatal(err)
	}
	n, _ := strconv.ParseInt(found[1], 10, 64)
	const held = 4 // what is fed, the result, its copy that is kept, and that of Value
	if bytes := held * n << 22; bytes > room.Room || bytes < room.Room/2 {
		t.Fatalf("batch %d takes %d bytes, there is room for %d", n, bytes, room.Room)
	}
	step, err := infer(n)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), ampc.Feed{"x": make([]float32, n<<20)})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := r.Value(y); err != nil || h.Len() != int(n)<<20 {
		t.Errorf("%d elements, %v", h.Len(), err)
	}
}
