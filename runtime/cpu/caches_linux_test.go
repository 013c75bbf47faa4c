package cpu

import (
	"fmt"
	"os"
	"testing"
	"testing/fstest"

	"ampc/runtime/cpu/kern"
)

// Caches are read from the system's tree. What processors of this process share is divided among them.
func TestCaches(t *testing.T) {
	cache := func(level, kind, size, shared string) map[string]string {
		return map[string]string{"level": level + "\n", "type": kind + "\n", "size": size + "\n", "shared_cpu_list": shared + "\n"}
	}
	first, code := cache("1", "Data", "48K", "0"), cache("1", "Instruction", "32K", "0")
	const kib, mib = 1 << 10, 1 << 20
	for name, c := range map[string]struct {
		cpu    int
		caches []map[string]string
		mine   string
		want   kern.Caches
	}{
		"no tree":                           {0, nil, "0-3", kern.Caches{}},
		"three levels":                      {0, []map[string]string{first, code, cache("2", "Unified", "1024K", "0"), cache("3", "Unified", "32768K", "0-7")}, "0-15", kern.Caches{Second: mib, Last: 4 * mib}},
		"the process may run on two":        {0, []map[string]string{first, code, cache("2", "Unified", "1024K", "0"), cache("3", "Unified", "32768K", "0-7")}, "0-1", kern.Caches{Second: mib, Last: 16 * mib}},
		"two threads of a core":             {0, []map[string]string{first, code, cache("2", "Unified", "2048K", "0,8"), cache("3", "Unified", "32768K", "0-15")}, "0-15", kern.Caches{Second: mib, Last: 2 * mib}},
		"two levels":                        {0, []map[string]string{first, code, cache("2", "Unified", "4096K", "0-3")}, "0-3", kern.Caches{Second: mib, Last: mib}},
		"not the first processor":           {5, []map[string]string{first, code, cache("2", "Unified", "512K", "5")}, "5-6", kern.Caches{Second: 512 * kib, Last: 512 * kib}},
		"a processor that is not described": {1, []map[string]string{cache("2", "Unified", "512K", "1")}, "0-1", kern.Caches{Second: 512 * kib, Last: 512 * kib}},
		"second-level instructions":         {0, []map[string]string{cache("2", "Instruction", "512K", "0"), cache("2", "Data", "256K", "0")}, "0", kern.Caches{Second: 256 * kib, Last: 256 * kib}},
		"damaged size":                      {0, []map[string]string{first, cache("2", "Unified", "1M", "0")}, "0", kern.Caches{}},
		"damaged level":                     {0, []map[string]string{cache("x", "Unified", "1024K", "0")}, "0", kern.Caches{}},
		"damaged list":                      {0, []map[string]string{cache("2", "Unified", "1024K", "0-")}, "0", kern.Caches{}},
		"no list":                           {0, []map[string]string{cache("2", "Unified", "1024K", "")}, "0", kern.Caches{}},
	} {
		tree := fstest.MapFS{}
		for i, files := range c.caches {
			for file, text := range files {
				tree[fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index%d/%s", c.cpu, i, file)] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		if got := cachesOf(tree, numbers(t, c.mine)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// What this machine says of its caches is plausible.
func TestCachesHere(t *testing.T) {
	mine, ok := kern.Affinity()
	if !ok {
		t.Skip("the system does not say where the process may run")
	}
	c := cachesOf(os.DirFS("/"), mine)
	if c == (kern.Caches{}) {
		t.Skip("the system describes no caches")
	}
	if c.Second < 16<<10 || c.Second > 1<<30 || c.Last < 16<<10 {
		t.Errorf("%+v", c)
	}
}
