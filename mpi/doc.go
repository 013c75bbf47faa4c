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
	{"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "srun"},
}

// launcherSize returns the number of ranks that the launcher gives, and the launcher's name. It is
// 0 without a launcher.
func launcherSize() (int, string) {
	for _, l := range launchers {
		if n, err := strconv.Atoi(os.Getenv(l.size)); err == nil && n > 0 && (l.size != "SLURM_NTASKS" || os.Getenv("SLURM_PROCID") != "") {
			return n, l.name
		}
	}
	return 0, ""
}

// localSize returns the number of ranks on this machine. It is 1 if the launcher does not give it.
func localSize() int {
	for _, l := range launchers {
		if n, err := strconv.Atoi(os.Getenv(l.local)); err == nil && n > 0 {
			return n
		}
	}
	return 1
}

// Cores is how many processors a rank of this machine has for itself: those it is bound
// to, or its share of all of them where it is bound to none. The warning, "" where there
// is none, says that the launcher has bound it to fewer than its share.
func Cores() (n int, warning string) { return cores(runtime.NumCPU(), onlineCPUs(), localSize()) }

func cores(bound, online, ranks int) (n int, warning string) {
	share := max(online/ranks, 1)
	if bound >= online { // the process is not bound to processors
		return share, ""
	}
	if bound < share {
		warning = fmt.Sprintf("this rank is bound to %s of %d and its share is %d: start it with mpirun --bind-to none", countOf(bound, "processor"), online, share)
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
	if _, name := launcherSize(); name == "MPICH's mpiexec" {
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
	return fmt.Errorf("mpi: %s has started %d ranks, and %s sees %d: use the launcher of this library, or name the launcher's library in AMPC_MPI", name, want, library, size)
}
