// Package mpi makes a World of the ranks that mpirun, mpiexec or srun has started. It
// opens the MPI library of the launcher (Open MPI or MPICH) when the program runs, so
// a program that imports it builds without cgo and headers.
//
// An all-reduce is an exchange of segments (MPI_Ialltoallv), a local sum in the order
// of ranks, and a gathering of the sums (MPI_Iallgatherv), all in bytes: any dtype, the
// bytes of a ring, and the same bits on all ranks. Large tensors whose elements are sent as they are
// in memory are read and written in place; others are packed into one buffer.
package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Options say how the World of Open behaves. The zero Options are the usual ones.
type Options struct {
	// Library is the file of the MPI library. With "" it is the library of the launcher. The
	// environment variable AMPC_MPI overrides it.
	Library string
	// Timeout is how long one message may wait for a rank, and how long Close waits for a rank
	// without heartbeats. Zero: world.Timeout.
	Timeout time.Duration
	// Exit ends this process if a call of MPI has not returned for Timeout. It is called on a thread of
	// its own. Nil: world.Exit.
	Exit func(error)
}

// ErrUnavailable says that there is no MPI library, or that this build cannot open one.
var ErrUnavailable = errors.New("mpi: not available")

// Launched reports whether a launcher of MPI programs has started this process.
func Launched() bool {
	size, _ := launcherSize()
	return size > 0
}

// launchers lists the environment variables in which launchers give the number of ranks.
var launchers = []struct{ size, local, name string }{
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI's mpirun"},
	{"PMI_SIZE", "MPI_LOCALNRANKS", "MPICH's mpiexec"},
}

// launcherSize returns the number of ranks that the launcher gives, and the launcher's name. It is
// 0 without a launcher.
func launcherSize() (int, string) {
	for _, l := range launchers {
		if n := number(l.size); n > 0 {
			if n == srunSize() && l.size == "PMI_SIZE" { // srun --mpi=pmi2
				return n, srun
			}
			return n, l.name
		}
	}
	if n := srunSize(); n > 0 {
		return n, srun
	}
	return 0, ""
}

// number is the value of an environment variable, 0 if it has none above 0.
func number(variable string) int {
	n, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// localSize returns the number of ranks on this machine. It is 1 if the launcher does not give it.
func localSize() int {
	for _, l := range launchers {
		if n := number(l.local); n > 0 {
			return n
		}
	}
	return max(srunLocalSize(), 1)
}

// Cores is how many processors a rank of this machine has for itself: those it is bound
// to, or its share of all of them where it is bound to none. The warning, "" where there
// is none, says that the launcher has bound it to fewer than its share.
func Cores() (n int, warning string) {
	online, advice := onlineCPUs(), "mpirun --bind-to none"
	if _, name := launcherSize(); name == srun {
		online, advice = min(cmp.Or(number("SLURM_CPUS_ON_NODE"), online), online), "srun --cpu-bind=none, or with --cpus-per-task"
	}
	return cores(runtime.NumCPU(), online, localSize(), advice)
}

func cores(bound, online, ranks int, advice string) (n int, warning string) {
	share := max(online/ranks, 1)
	if bound >= online { // the process is not bound to processors
		return share, ""
	}
	if bound < share {
		warning = fmt.Sprintf("this rank is bound to %s of %d and its share is %d: start it with %s", countOf(bound, "processor"), online, share, advice)
	}
	return bound, warning
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// onlineCPUs returns the number of processors of the machine. If the system does not report it, it
// returns the number that this process may use.
func onlineCPUs() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	n := 0
	for _, part := range strings.Split(strings.TrimSpace(string(text)), ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil {
			return runtime.NumCPU()
		}
		n += b - a + 1
	}
	return n
}

// libraries lists the files to try, those of the launcher first.
func libraries(chosen string) []string {
	if env := os.Getenv("AMPC_MPI"); env != "" {
		chosen = env
	}
	if chosen != "" {
		return []string{chosen}
	}
	open, mpich := []string{"libmpi.so.40", "libmpi.so"}, []string{"libmpich.so.12", "libmpi.so.12"}
	if number("OMPI_COMM_WORLD_SIZE") == 0 && number("PMI_SIZE") > 0 {
		return append(mpich, open...)
	}
	return append(open, mpich...)
}

// wrongLauncher returns an error if library and launcher disagree on the number of ranks. Without
// this check each process would train alone.
func wrongLauncher(library string, size int) error {
	want, name := launcherSize()
	if want == 0 || want == size {
		return nil
	}
	advice := "use the launcher of this library, or name the launcher's library in AMPC_MPI"
	if name == srun {
		advice = "start it with srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH), as srun --mpi=list has them, or name another library in AMPC_MPI"
	}
	return fmt.Errorf("mpi: %s has started %d ranks, and %s sees %d: %s", name, want, library, size, advice)
}
