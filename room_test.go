package ampc_test

import (
	"errors"
	"regexp"
	"strconv"
	"testing"

	"ampc"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// A step that does not fit into the machine's memory is refused before it runs; the error names the
// largest batch that does fit, and one that large is not refused.
func TestLargestBatchThatFits(t *testing.T) {
	if cpu.Available() > 1<<45 {
		t.Skip("this system does not say how much memory there is")
	}
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
	if err := train(n / 2); err != nil {
		t.Errorf("half of the largest batch: %v", err)
	}
}
