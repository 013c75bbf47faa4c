package fit_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"ampc/fit"
)

// A process that is killed at random moments, in the middle of saving too, and is started
// again each time, ends with the same bytes as one that was left alone.
func TestKilledRunsResume(t *testing.T) {
	const variable = "AMPC_TEST_FIT_FOLDER"
	if folder := os.Getenv(variable); folder != "" { // the process that is killed
		r := classifier(t, folder)
		r.SaveEvery = 1
		r.OnStep = func(at fit.Report) error { fmt.Println("step", at.Step); return nil }
		if _, err := r.Fit(context.Background()); err != nil {
			t.Fatal(err)
		}
		return
	}
	if testing.Short() {
		t.Skip("starts processes and kills them: skipped by -short")
	}
	whole, folder := t.TempDir(), t.TempDir()
	left := classifier(t, whole)
	left.SaveEvery = 1
	if _, err := left.Fit(context.Background()); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	begun := 0
	for range 6 {
		p := exec.Command(os.Args[0], "-test.run=^TestKilledRunsResume$")
		p.Env = append(os.Environ(), variable+"="+folder)
		out, err := p.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := r.IntN(8) + 1; n > 0 && lines.Scan(); n-- {
			fmt.Sscanf(lines.Text(), "step %d", &begun)
		}
		time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond) // a step with its checkpoint takes about two milliseconds
		p.Process.Kill()
		p.Wait()
	}
	t.Logf("seed %d: killed six times, at last behind step %d of 42", seed, begun)
	if _, err := classifier(t, folder).Fit(context.Background()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for _, name := range []string{fit.LastFile, fit.BestFile, "log.csv", "log.jsonl"} {
		if read(t, folder, name) != read(t, whole, name) {
			t.Errorf("seed %d: %s differs from that of a run that was left alone", seed, name)
		}
	}
}
