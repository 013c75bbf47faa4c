package mpi

import (
	"os"
	"strconv"
	"strings"
)

// srun is the name of Slurm's launcher.
const srun = "srun"

// srunSize is the number of tasks that srun has started, 0 if it has not started this process. A batch
// script, which is one process, has the number of tasks of its job and a SLURM_PROCID of 0, too, but none
// of the step's variables.
func srunSize() int {
	if n := number("SLURM_STEP_NUM_TASKS"); n > 0 && os.Getenv("SLURM_PROCID") != "" {
		return n
	}
	if os.Getenv("SLURM_PROCID") == "" || os.Getenv("ENVIRONMENT") == "BATCH" {
		return 0
	}
	return number("SLURM_NTASKS")
}

// srunLocalSize is the number of srun's tasks on this machine, 0 if it is not known.
func srunLocalSize() int {
	list := os.Getenv("SLURM_STEP_TASKS_PER_NODE")
	if list == "" {
		return number("SLURM_NTASKS_PER_NODE")
	}
	node, err := strconv.Atoi(os.Getenv("SLURM_NODEID"))
	if err != nil {
		return 0
	}
	for part := range strings.SplitSeq(list, ",") { // such as 2(x3),1: two tasks on each of three nodes
		count, times, _ := strings.Cut(part, "(x")
		n, err := strconv.Atoi(count)
		if err != nil {
			return 0
		}
		nodes := 1
		if t, err := strconv.Atoi(strings.TrimSuffix(times, ")")); err == nil {
			nodes = t
		}
		if node -= nodes; node < 0 {
			return n
		}
	}
	return 0
}
