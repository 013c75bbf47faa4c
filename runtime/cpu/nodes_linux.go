package cpu

import (
	"io/fs"
	"os"
	"strconv"
	"strings"

	"ampc/runtime/cpu/kern"
)

// thisHost is what this process may use.
func thisHost() kern.Host {
	root := os.DirFS("/")
	h := kern.Host{Quota: func() float64 { return groupProcessors(root) }}
	if mine, ok := kern.Affinity(); ok {
		h.Nodes = numaNodes(root, mine)
		h.Caches = cachesOf(root, mine)
	}
	return h
}

// numaNodes are the NUMA nodes with processors of mine, in the order of their numbers: those of mine
// that each has. It is nil where workers need not be divided: there is one such node; the process may
// have memory on at most one of them; the system does not show nodes, or shows them in a way that
// does not say for each processor on which node it is. root is the file system from its root. See
// /sys/devices/system/node and Mems_allowed_list of proc_pid_status(5).
func numaNodes(root fs.FS, mine kern.Processors) []kern.Processors {
	const dir = "sys/devices/system/node"
	online, ok := numberSet(root, dir+"/online")
	if !ok {
		return nil
	}
	memory, limited := allowedNodes(root)
	var nodes []kern.Processors
	var seen kern.Processors
	withMemory := 0
	for n := range kern.MaxProcessors {
		if !online.Has(n) {
			continue
		}
		cpus, ok := numberSet(root, dir+"/node"+strconv.Itoa(n)+"/cpulist")
		cpus = cpus.And(mine)
		if both := cpus.And(seen); !ok || both.Len() > 0 {
			return nil
		}
		if cpus.Len() == 0 { // memory alone, or processors that the process may not run on
			continue
		}
		seen = seen.Or(cpus)
		nodes = append(nodes, cpus)
		if !limited || memory.Has(n) {
			withMemory++
		}
	}
	if withMemory < 2 || seen != mine {
		return nil
	}
	return nodes
}

// allowedNodes are the nodes on which the process may have memory. ok is false where the system does
// not say.
func allowedNodes(root fs.FS) (s kern.Processors, ok bool) {
	status, _ := fs.ReadFile(root, "proc/self/status")
	_, list, ok := strings.Cut(string(status), "\nMems_allowed_list:")
	if !ok {
		return s, false
	}
	list, _, _ = strings.Cut(list, "\n")
	return parseNumbers(list)
}

// numberSet is parseNumbers of a file.
func numberSet(root fs.FS, file string) (s kern.Processors, ok bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return s, false
	}
	return parseNumbers(string(text))
}

// parseNumbers parses a list of numbers and ranges: "0-3,8\n". ok is false where the text is another
// one, or names numbers that are too large for a set.
func parseNumbers(text string) (s kern.Processors, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return s, true
	}
	for word := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		lo, err := strconv.ParseUint(first, 10, 16)
		hi, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || hi < lo || hi >= kern.MaxProcessors {
			return s, false
		}
		for n := lo; n <= hi; n++ {
			s.Add(int(n))
		}
	}
	return s, true
}
