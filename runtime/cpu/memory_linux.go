package cpu

import (
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// nonHeapBytes is what a process needs apart from its heap: code pages, stacks and the
	// collector's tables. A small model's run has 22 MB of them resident.
	nonHeapBytes = 24 << 20
	// heapArena is the smallest amount of address space by which the heap grows.
	arena = 64 << 20
)

// ceilings returns the bounds on this process's memory.
func ceilings(h heapUse) []ceiling {
	root := os.DirFS("/")
	var list []ceiling
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) == nil {
		list = append(list, ceiling{int64(s.Totalram) * int64(s.Unit), h.objects + nonHeapBytes, "of this machine", false})
	}
	if n := recentGroupLimit(root); n > 0 {
		list = append(list, ceiling{n, h.objects + nonHeapBytes, "that the container (its cgroup) may use", false})
	}
	for _, r := range []struct {
		number, field int
		flag          string
	}{{syscall.RLIMIT_AS, addressSpace, "-v"}, {syscall.RLIMIT_DATA, dataSegment, "-d"}} {
		var l syscall.Rlimit
		if syscall.Getrlimit(r.number, &l) == nil && l.Cur < math.MaxInt64 {
			list = append(list, ceiling{int64(l.Cur), mapped(root, r.field) + arena - h.idle, "that ulimit " + r.flag + " allows", true})
		}
	}
	return list
}

// groupSeen caches groupLimit and the time of the call, because a limit rarely changes and finding
// it reads several files.
var groupSeen struct {
	sync.Mutex
	limit int64
	at    time.Time
}

// recentGroupLimit is groupLimit, at most one second old.
func recentGroupLimit(root fs.FS) int64 {
	groupSeen.Lock()
	defer groupSeen.Unlock()
	if time.Since(groupSeen.at) > time.Second {
		groupSeen.limit, groupSeen.at = groupLimit(root), time.Now()
	}
	return groupSeen.limit
}

// Fields of /proc/self/statm.
const (
	addressSpace = 0
	dataSegment  = 5
)

// mapped returns a field of /proc/self/statm in bytes, 0 if it cannot be read.
func mapped(root fs.FS, field int) int64 {
	data, _ := fs.ReadFile(root, "proc/self/statm")
	words := strings.Fields(string(data))
	if len(words) <= field {
		return 0
	}
	pages, err := strconv.ParseInt(words[field], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// groupLimit is the smallest memory limit in bytes of the control groups of this process (versions
// 1 and 2) and of their parents. It is 0 if there is none. root is the file system from its root.
func groupLimit(root fs.FS) int64 {
	return int64(leastOfGroups(root, "memory", func(dir string, v2 bool) float64 {
		if v2 {
			return groupNumber(root, dir, "memory.max", 0)
		}
		return groupNumber(root, dir, "memory.limit_in_bytes", 0)
	}))
}

// groupProcessors is how many processors' time the control groups of this process and their parents
// allow it, 0 if they do not say.
func groupProcessors(root fs.FS) float64 {
	return leastOfGroups(root, "cpu", func(dir string, v2 bool) float64 {
		quota, period := 0.0, 0.0
		if v2 {
			quota, period = groupNumber(root, dir, "cpu.max", 0), groupNumber(root, dir, "cpu.max", 1)
		} else {
			quota, period = groupNumber(root, dir, "cpu.cfs_quota_us", 0), groupNumber(root, dir, "cpu.cfs_period_us", 0)
		}
		if quota <= 0 || period <= 0 {
			return 0
		}
		return quota / period
	})
}

// groupNumber is a word of a group's file as a number: 0 where there is none, as for "max". The root
// group has no such files.
func groupNumber(root fs.FS, dir, file string, word int) float64 {
	data, _ := fs.ReadFile(root, strings.TrimPrefix(path.Join(dir, file), "/"))
	words := strings.Fields(string(data))
	if len(words) <= word {
		return 0
	}
	n, err := strconv.ParseInt(words[word], 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}

// leastOfGroups is the least limit above 0 that limit finds in the directories of this process's
// control groups of a controller, and of their parents, 0 if there is none. See cgroups(7),
// proc_pid_mountinfo(5).
func leastOfGroups(root fs.FS, controller string, limit func(dir string, v2 bool) float64) float64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return 0
	}
	least := 0.0
	for line := range strings.Lines(string(groups)) { // hierarchy:controllers:path
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		v2 := parts[0] == "0" && parts[1] == ""
		if !v2 && !containsWord(parts[1], controller) {
			continue
		}
		for _, m := range groupMounts(string(mounts), v2, controller) {
			for dir := range m.dirs(parts[2]) {
				if n := limit(dir, v2); n > 0 && (least == 0 || n < least) {
					least = n
				}
			}
		}
	}
	return least
}

// groupMount is where a control group hierarchy is mounted: the group root is mounted at dir.
type groupMount struct{ root, dir string }

// groupMounts finds the mounts of version 2, or those of version 1 with a controller, in the text of mountinfo:
//
//	36 35 0:32 /root /dir rw,noatime shared:1 - cgroup cgroup rw,memory
func groupMounts(mounts string, v2 bool, controller string) []groupMount {
	kind := "cgroup"
	if v2 {
		kind = "cgroup2"
	}
	var list []groupMount
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		place, system := strings.Fields(before), strings.Fields(after)
		if len(place) < 5 || len(system) < 3 || system[0] != kind || !v2 && !containsWord(system[2], controller) {
			continue
		}
		list = append(list, groupMount{unescapeMount(place[3]), unescapeMount(place[4])})
	}
	return list
}

// dirs are the directories of group and its parents, as far as they are mounted.
func (m groupMount) dirs(group string) iter.Seq[string] {
	// In a container the group's name may be relative to the host while only the container's own
	// part is mounted.
	below, ok := strings.CutPrefix(path.Clean("/"+group)+"/", strings.TrimSuffix(m.root, "/")+"/")
	if !ok {
		below = ""
	}
	return func(yield func(string) bool) {
		for at := path.Clean("/" + below); ; at = path.Dir(at) {
			if !yield(path.Join(m.dir, at)) || at == "/" {
				return
			}
		}
	}
}

// containsWord reports whether a comma-separated list contains a word.
func containsWord(list, word string) bool { return strings.Contains(","+list+",", ","+word+",") }

// unescapeMount replaces the octal escapes of mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
