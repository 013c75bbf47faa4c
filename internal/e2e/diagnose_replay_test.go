package e2e_test

import (
	"ampc/internal/trial"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
)

// replayFile names a replay that the test binary, run again, has to diagnose.
const replayFile = "AMPC_TEST_REPLAY"

// A step saved to a file gets the same answer in another process.
func TestReplayElsewhere(t *testing.T) {
	if path := os.Getenv(replayFile); path != "" {
		d, err := ampc.DiagnoseFile(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("diagnosis:\n%s\nend\n", d)
		return
	}
	for _, i := range faults() {
		t.Run(i.name, func(t *testing.T) {
			w := i.open(t, ampc.MixedF16(), 3)
			w.run()
			path := filepath.Join(t.TempDir(), "bad.ampc")
			if err := w.step.SaveReplay(path); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestReplayElsewhere$")
			cmd.Env = append(os.Environ(), replayFile+"="+path)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, rest, _ := strings.Cut(string(out), "diagnosis:\n")
			got, _, _ := strings.Cut(rest, "\nend\n")
			if want := w.diagnose().String(); got != want {
				t.Errorf("from the file:\n%s\nfrom the step:\n%s", got, want)
			}
		})
	}
}

// A file that was cut off, or of which a byte was changed, is refused in one line.
func TestDamagedReplays(t *testing.T) {
	w := faults()[0].open(t, ampc.MixedF16(), 3)
	w.run()
	path := filepath.Join(t.TempDir(), "bad.ampc")
	if err := w.step.SaveReplay(path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, data []byte) {
		t.Helper()
		trial.WriteFile(t, path, string(data))
		d, err := ampc.DiagnoseFile(context.Background(), path)
		if err == nil {
			t.Errorf("%s: accepted, and says\n%s", what, d)
			return
		}
		wantError(t, err, path)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		cut := r.IntN(len(whole))
		refused(fmt.Sprintf("cut off at byte %d", cut), whole[:cut])
		at, bit := r.IntN(len(whole)), byte(1)<<r.IntN(8)
		flipped := []byte(string(whole))
		flipped[at] ^= bit
		refused(fmt.Sprintf("byte %d flipped by %#x", at, bit), flipped)
	}
	refused("empty", nil)
	refused("text", []byte("no replay\n"))
	_, err = ampc.DiagnoseFile(context.Background(), filepath.Join(t.TempDir(), "none.ampc"))
	wantError(t, err, "none.ampc")
}
