package mpi

import (
	"strings"
	"testing"
)

// A rank takes its share of the machine, what it is bound to if that is less, and is
// told when the launcher has bound it to less than its share.
func TestCores(t *testing.T) {
	for _, c := range []struct {
		bound, online, ranks, want int
		warning                    string
	}{
		{8, 8, 1, 8, ""},
		{8, 8, 4, 2, ""},
		{8, 8, 16, 1, ""},
		{2, 8, 4, 2, ""},
		{4, 8, 4, 4, ""},
		{1, 8, 2, 1, "bound to 1 processor of 8 and its share is 4: start it with mpirun --bind-to none"},
		{2, 8, 1, 2, "bound to 2 processors of 8 and its share is 8"},
	} {
		n, warning := cores(c.bound, c.online, c.ranks)
		if n != c.want || (warning == "") != (c.warning == "") || !strings.Contains(warning, c.warning) {
			t.Errorf("bound to %d of %d among %d ranks: %d, %q; want %d, %q", c.bound, c.online, c.ranks, n, warning, c.want, c.warning)
		}
	}
}

// A launcher and a library that count different ranks are one line that says what to do:
// without it each process would train alone.
func TestWrongLauncher(t *testing.T) {
	for _, l := range launchers {
		t.Setenv(l.size, "")
	}
	t.Setenv("SLURM_PROCID", "")
	if err := wrongLauncher("MPICH 4", 1); err != nil {
		t.Errorf("without a launcher: %v", err)
	}
	for variable, name := range map[string]string{"OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun", "PMI_SIZE": "MPICH's mpiexec"} {
		t.Setenv(variable, "4")
		if err := wrongLauncher("MPICH 4", 4); err != nil {
			t.Error(err)
		}
		want := "mpi: " + name + " has started 4 ranks, and MPICH 4 sees 1: use the launcher of this library, or name the launcher's library in AMPC_MPI"
		if err := wrongLauncher("MPICH 4", 1); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		t.Setenv(variable, "")
	}
	t.Setenv("SLURM_NTASKS", "4") // of an allocation: this process was not started by srun
	if err := wrongLauncher("MPICH 4", 1); err != nil {
		t.Error(err)
	}
	t.Setenv("SLURM_PROCID", "0")
	if err := wrongLauncher("MPICH 4", 1); err == nil || !strings.Contains(err.Error(), "srun has started 4 ranks") {
		t.Errorf("got %v", err)
	}
}
