package world_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"ampc/ir"
	"ampc/world"
)

// Waiting for a message that was not started, or out of turn, is an error and no panic. The World
// goes on.
func TestWaitOutOfTurn(t *testing.T) {
	w := world.Local(1, world.LocalOptions{Timeout: time.Second})[0]
	message := func(name string) *world.Message {
		data := []byte{1}
		return &world.Message{Name: name, Op: world.Max, DType: ir.Bool, In: [][]byte{data}, Out: [][]byte{data}}
	}
	wait := func(m *world.Message, want string) {
		t.Helper()
		err := w.Wait(context.Background(), m)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	a, b := message("a"), message("b")
	wait(a, "wait: the message a has not been started")
	for _, m := range []*world.Message{a, b} {
		if err := w.Start(m); err != nil {
			t.Fatal(err)
		}
	}
	wait(b, "wait: the message b is waited for before a, which was started first")
	wait(a, "")
	wait(b, "")
	wait(b, "wait: the message b has not been started")
}
