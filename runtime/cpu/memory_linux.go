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
	// arena is the smallest amount of address space by which the heap grows.
	arena = 64 << 20
)

// ceilings returns the bounds on this process's memory.
func ceilings(h heapUse) []ceiling {
	root := os.DirFS("/")
	own := h.objects + h.mapped + nonHeapBytes
	var list []ceiling
	for _, c := range recentShares(root) {
		list = append(list, ceiling{c.bytes, c.others + own, c.whose, false})
	}
	// Free memory of the heap counts as in use here: it may be in pieces, each too small for what is fed.
	for _, r := range []struct {
		number, field int
		flag          string
	}{{syscall.RLIMIT_AS, addressSpace, "-v"}, {syscall.RLIMIT_DATA, dataSegment, "-d"}} {
		var l syscall.Rlimit
		if syscall.Getrlimit(r.number, &l) == nil && l.Cur < math.MaxInt64 {
			list = append(list, ceiling{int64(l.Cur), mapped(root, r.field) + arena, "that ulimit " + r.flag + " allows", true})
		}
	}
	return list
}

// shared is memory that this process shares with others.
type shared struct {
	bytes, others int64  // all of it, and what other processes have; files that the system can read again do not count
	whose         string // see ceiling
}

// sharesSeen caches shares and the time of the call, because finding them reads several files.
var sharesSeen struct {
	sync.Mutex
	list []shared
	at   time.Time
}

// recentShares is shares, at most one second old.
func recentShares(root fs.FS) []shared {
	sharesSeen.Lock()
	defer sharesSeen.Unlock()
	if time.Since(sharesSeen.at) > time.Second {
		sharesSeen.list, sharesSeen.at = shares(root), time.Now()
	}
	return sharesSeen.list
}

// shares are the memory of the machine and that of the control group that leaves least, where the
// system says how much it is. root is the file system from its root.
func shares(root fs.FS) (list []shared) {
	own := mapped(root, resident) - mapped(root, residentFiles)
	count := func(all, used int64, whose string) {
		others := int64(0)
		if own > 0 { // else this process would count twice
			others = max(used-own, 0)
		}
		list = append(list, shared{all, others, whose})
	}
	if all, available := fileNumber(root, "proc/meminfo", "MemTotal:")<<10, fileNumber(root, "proc/meminfo", "MemAvailable:")<<10; all > 0 {
		used := int64(0)
		if available > 0 {
			used = all - available
		}
		count(all, used, "of this machine")
	}
	if limit, used := groupRoom(root); limit > 0 {
		count(limit, used, "that the container (its cgroup) may use")
	}
	return list
}

// fileNumber is the number behind a word at the start of a line, 0 if there is none.
func fileNumber(root fs.FS, path, word string) int64 {
	data, _ := fs.ReadFile(root, path)
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == word {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
		}
	}
	return 0
}

// Fields of /proc/self/statm.
const (
	addressSpace  = 0
	resident      = 1
	residentFiles = 2 // of these, pages of files
	dataSegment   = 5
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

// groupRoom is the memory limit in bytes, and what is used of it, of the one of this process's control
// groups (versions 1 and 2) and of their parents that leaves least. The limit is 0 if there is none.
func groupRoom(root fs.FS) (limit, used int64) {
	for dir, v2 := range groups(root, "memory") {
		files := [...]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"}
		if v2 {
			files = [...]string{"memory.max", "memory.current", "inactive_file", "active_file"}
		}
		l := int64(groupNumber(root, dir, files[0], 0))
		if l <= 0 || l >= noLimit {
			continue
		}
		u := int64(groupNumber(root, dir, files[1], 0))
		for _, word := range files[2:] { // the system takes pages of files back
			u -= fileNumber(root, strings.TrimPrefix(path.Join(dir, "memory.stat"), "/"), word)
		}
		if u = max(u, 0); limit == 0 || l-u < limit-used {
			limit, used = l, u
		}
	}
	return limit, used
}

// noLimit is what version 1 says of a group without a limit, or less.
const noLimit = 1 << 62

// groupProcessors is how many processors' time the control groups of this process and their parents
// allow it, 0 if they do not say.
func groupProcessors(root fs.FS) (least float64) {
	for dir, v2 := range groups(root, "cpu") {
		quota, period := 0.0, 0.0
		if v2 {
			quota, period = groupNumber(root, dir, "cpu.max", 0), groupNumber(root, dir, "cpu.max", 1)
		} else {
			quota, period = groupNumber(root, dir, "cpu.cfs_quota_us", 0), groupNumber(root, dir, "cpu.cfs_period_us", 0)
		}
		if n := quota / period; quota > 0 && period > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
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

// groups are the directories of this process's control groups of a controller, and of their parents,
// and whether each is of version 2. See cgroups(7), proc_pid_mountinfo(5).
func groups(root fs.FS, controller string) iter.Seq2[string, bool] {
	return func(yield func(dir string, v2 bool) bool) {
		names, _ := fs.ReadFile(root, "proc/self/cgroup")
		mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
		for line := range strings.Lines(string(names)) { // hierarchy:controllers:path
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
					if !yield(dir, v2) {
						return
					}
				}
			}
		}
	}
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
