package cpu

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

// Limits of control groups are found as the kernel and containers lay them out; the least of a group and those around it
// counts.
func TestGroupLimit(t *testing.T) {
	const (
		v2 = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1 = "40 32 0:34 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n41 32 0:35 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups": {nil, 0},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/user.slice/a b\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/user.slice/a b/memory.max": "104857600\n",
		}, 100 << 20},
		"version 2, no limit": {map[string]string{
			"proc/self/cgroup": "0::/user.slice\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/user.slice/memory.max": "max\n",
		}, 0},
		"version 2, the limit of the group around it": {map[string]string{
			"proc/self/cgroup": "0::/pod/box/inner\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/pod/memory.max": "300\n", "sys/fs/cgroup/pod/box/memory.max": "200\n", "sys/fs/cgroup/pod/box/inner/memory.max": "max\n",
		}, 200},
		"version 2 in a container with its own view": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "500\n",
		}, 500},
		"version 2 in a container that sees the name from outside": {map[string]string{
			"proc/self/cgroup":          "0::/docker/123\n",
			"proc/self/mountinfo":       "30 25 0:26 /docker/123 /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
			"sys/fs/cgroup/memory.max":  "500\n",
			"docker/123/memory.max":     "1\n",
			"sys/fs/cgroup/docker/junk": "",
		}, 500},
		"version 2, a group outside of the view": {map[string]string{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "500\n",
		}, 500},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/a/b\n2:cpu,cpuacct:/a\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "700\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
		}, 700},
		"version 1 in a container": {map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/123\n0::/\n",
			"proc/self/mountinfo":                        "41 32 0:35 /docker/123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" + v2,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "800\n",
		}, 800},
		"both versions, the least counts": {map[string]string{
			"proc/self/cgroup": "4:memory:/a\n0::/b\n", "proc/self/mountinfo": v1 + `42 32 0:36 / /sys/fs/cgroup/uni\040fied rw - cgroup2 cgroup rw` + "\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "900\n",
			"sys/fs/cgroup/uni fied/b/memory.max":          "600\n",
		}, 600},
		"damaged": {map[string]string{
			"proc/self/cgroup": "\n0\n::\n0::\n4:memory:\n", "proc/self/mountinfo": "x - y\n - \n" + v2 + v1,
			"sys/fs/cgroup/memory.max": "a lot\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "-1\n",
		}, 0},
	} {
		tree := fstest.MapFS{}
		for path, text := range c.files {
			tree[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, _ := groupRoom(tree); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// What other processes have of a machine and of a group counts, what this one has and pages of files
// do not; of groups around each other that counts which leaves least.
func TestShares(t *testing.T) {
	const (
		v2     = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1     = "41 32 0:35 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"
		all    = "MemTotal:        1000 kB\nMemFree:          50 kB\nMemAvailable:     700 kB\n"
		kB     = 1 << 10
		whole  = "of this machine"
		inside = "that the container (its cgroup) may use"
	)
	page := int64(os.Getpagesize())
	own := 10 * page // resident 25 pages, 15 of them of files
	for name, c := range map[string]struct {
		files map[string]string
		want  []shared
	}{
		"machine":                            {map[string]string{"proc/meminfo": all}, []shared{{1000 * kB, 300*kB - own, whole}}},
		"an old kernel":                      {map[string]string{"proc/meminfo": "MemTotal: 1000 kB\n"}, []shared{{1000 * kB, 0, whole}}},
		"this process alone":                 {map[string]string{"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 990 kB\n"}, []shared{{1000 * kB, 0, whole}}},
		"what this process has is not known": {map[string]string{"proc/meminfo": all, "proc/self/statm": ""}, []shared{{1000 * kB, 0, whole}}},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/pod/box\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/pod/box/memory.max": "900000\n", "sys/fs/cgroup/pod/box/memory.current": "600000\n",
			"sys/fs/cgroup/pod/box/memory.stat": "anon 1\ninactive_file 100000\nactive_file 50000\n",
		}, []shared{{900000, 450000 - own, inside}}},
		"version 2, a group around it has more in use": {map[string]string{
			"proc/self/cgroup": "0::/pod/box\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/pod/memory.max": "1000000\n", "sys/fs/cgroup/pod/memory.current": "950000\n",
			"sys/fs/cgroup/pod/box/memory.max": "900000\n", "sys/fs/cgroup/pod/box/memory.current": "100000\n",
		}, []shared{{1000000, 950000 - own, inside}}},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/a\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":   "99999999999\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "700000\n",
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes": "500000\n",
			"sys/fs/cgroup/memory/a/memory.stat":           "inactive_file 5\ntotal_inactive_file 200000\ntotal_active_file 10000\n",
		}, []shared{{700000, 290000 - own, inside}}},
		"no file of what is used": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "500\n",
		}, []shared{{500, 0, inside}}},
	} {
		tree := fstest.MapFS{"proc/self/statm": {Data: []byte("100 25 15 5 0 30 0\n")}}
		for path, text := range c.files {
			tree[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := shares(tree); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMapped(t *testing.T) {
	tree := fstest.MapFS{"proc/self/statm": {Data: []byte("100 50 20 5 0 30 0\n")}}
	page := int64(os.Getpagesize())
	for field, pages := range map[int]int64{addressSpace: 100, resident: 50, residentFiles: 20, dataSegment: 30, 9: 0} {
		if got := mapped(tree, field); got != pages*page {
			t.Errorf("field %d: %d bytes, want %d pages", field, got, pages)
		}
	}
	if got := mapped(fstest.MapFS{}, addressSpace); got != 0 {
		t.Errorf("without the file: %d", got)
	}
}
