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
		n, warning := cores(c.bound, c.online, c.ranks, "mpirun --bind-to none")
		if n != c.want || (warning == "") != (c.warning == "") || !strings.Contains(warning, c.warning) {
			t.Errorf("bound to %d of %d among %d ranks: %d, %q; want %d, %q", c.bound, c.online, c.ranks, n, warning, c.want, c.warning)
		}
	}
}

// A launcher and a library that count different ranks are one line that says what to do:
// without it each process would train alone.
func TestWrongLauncher(t *testing.T) {
	setSlurm(t, "")
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
}

// setSlurm sets these variables and clears all others that launchers set.
func setSlurm(t *testing.T, variables string) {
	t.Helper()
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID", "SLURM_CPUS_ON_NODE", "ENVIRONMENT"} {
		t.Setenv(name, "")
	}
	for v := range strings.FieldsSeq(variables) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// Ranks of srun are known by what it sets for its step. Neither the shell of an allocation nor a batch
// script are ranks.
func TestSrun(t *testing.T) {
	for _, c := range []struct {
		set         string
		size, local int
		name        string
		library     string // that is tried first
	}{
		{"SLURM_NTASKS=4", 0, 1, "", "libmpi.so.40"},                                  // salloc
		{"SLURM_NTASKS=4 SLURM_PROCID=0 ENVIRONMENT=BATCH", 0, 1, "", "libmpi.so.40"}, // the script of sbatch
		{"SLURM_NTASKS=4 SLURM_PROCID=3", 4, 1, srun, "libmpi.so.40"},
		{"SLURM_NTASKS=4 SLURM_PROCID=3 SLURM_NTASKS_PER_NODE=2", 4, 2, srun, "libmpi.so.40"},
		{"SLURM_NTASKS=8 SLURM_PROCID=6 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_NODEID=2 ENVIRONMENT=BATCH", 7, 2, srun, "libmpi.so.40"},
		{"SLURM_PROCID=6 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_NODEID=3", 7, 1, srun, "libmpi.so.40"},
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0 PMI_SIZE=2", 2, 2, srun, "libmpich.so.12"},                                    // srun --mpi=pmi2
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=1 PMI_SIZE=8 MPI_LOCALNRANKS=4", 8, 4, "MPICH's mpiexec", "libmpich.so.12"}, // which starts its proxies by srun
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4", 8, 4, "Open MPI's mpirun", "libmpi.so.40"},
	} {
		setSlurm(t, c.set)
		size, name := launcherSize()
		if size != c.size || name != c.name || localSize() != c.local || Launched() != (c.size > 0) || libraries("")[0] != c.library {
			t.Errorf("%s: %d ranks by %q, %d here, %s first; want %d by %q, %d, %s", c.set, size, name, localSize(), libraries("")[0], c.size, c.name, c.local, c.library)
		}
	}
}

// Ranks of srun whose library does not speak with it would each train alone: the line says which option
// srun wants. A rank that is bound to one processor of its allocation is told how to have more.
func TestSrunAdvice(t *testing.T) {
	setSlurm(t, "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=4 SLURM_NODEID=0")
	err := wrongLauncher("Open MPI v4.1.4", 1)
	if err == nil || !strings.Contains(err.Error(), "mpi: srun has started 4 ranks, and Open MPI v4.1.4 sees 1: start it with srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	if err := wrongLauncher("Open MPI v4.1.4", 4); err != nil {
		t.Error(err)
	}
	if _, warning := cores(1, 8, 4, "srun --cpu-bind=none, or with --cpus-per-task"); !strings.HasSuffix(warning, "start it with srun --cpu-bind=none, or with --cpus-per-task") {
		t.Error(warning)
	}
}
