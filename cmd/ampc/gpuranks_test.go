package main

import (
	"strings"
	"testing"

	"ampc/cuda"
)

// RANK and WORLD_SIZE start a rank on a GPU: one that is not there, or that does not reach the others,
// is one line.
func TestRanksOnGPUs(t *testing.T) {
	t.Setenv("RANK", "1")
	t.Setenv("WORLD_SIZE", "2")
	t.Setenv("LOCAL_RANK", "7")
	for _, c := range []struct{ device, want string }{
		{"--device=sim:sm_90", "--device sim:sm_90: simulated GPUs of several processes do not reach each other"},
		{"--device=cpu", "RANK and WORLD_SIZE start one process for each GPU: give --device cuda, or unset them and start ranks on CPUs by mpirun"},
		{"", "cuda: not available"},
		{"--device=cuda", "cuda: not available"},
	} {
		if c.want == "cuda: not available" && cuda.Discover().Problem == "" {
			t.Log("skipped: what a machine without a GPU says, as this one has one")
			continue
		}
		args := []string{"train", "zoo:mlp", "--out", t.TempDir()}
		if c.device != "" {
			args = append(args, c.device)
		}
		code, _, errs := ampcRun("", args...)
		if code == 0 || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d: %s", c.device, code, errs)
		}
	}
}
