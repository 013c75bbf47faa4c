package cpu

import (
	"io/fs"
	"strconv"
	"strings"

	"ampc/runtime/cpu/kern"
)

// cachesOf are the caches of the first processor of mine that the system describes. root is the file system from its
// root. See Documentation/ABI/testing/sysfs-devices-system-cpu of the kernel.
func cachesOf(root fs.FS, mine kern.Processors) (c kern.Caches) {
	for n := range kern.MaxProcessors {
		if !mine.Has(n) {
			continue
		}
		last := 1
		for i := 0; ; i++ {
			level, bytes, ok := cacheOf(root, "sys/devices/system/cpu/cpu"+strconv.Itoa(n)+"/cache/index"+strconv.Itoa(i), mine)
			if !ok {
				break
			}
			if level == 2 {
				c.Second = bytes
			}
			if level > last {
				c.Last, last = bytes, level
			}
		}
		if c != (kern.Caches{}) {
			return c
		}
	}
	return c
}

// cacheOf reads the description of a cache: its level, and its bytes divided by the processors of mine that share it. ok is
// false where there is none, or where it has another form. A cache of instructions has level 0.
func cacheOf(root fs.FS, dir string, mine kern.Processors) (level, bytes int, ok bool) {
	read := func(name string) string {
		text, err := fs.ReadFile(root, dir+"/"+name)
		ok = ok && err == nil
		return strings.TrimSpace(string(text))
	}
	ok = true
	kind, size, sharing := read("type"), read("size"), read("shared_cpu_list")
	level, err := strconv.Atoi(read("level"))
	kib, err2 := strconv.ParseUint(strings.TrimSuffix(size, "K"), 10, 31)
	users, isList := parseNumbers(sharing)
	if !ok || err != nil || err2 != nil || !isList || users.Len() == 0 {
		return 0, 0, false
	}
	if kind == "Instruction" {
		level = 0
	}
	both := users.And(mine)
	return level, int(kib) << 10 / max(1, both.Len()), true
}
