package cpu

import (
	"os"
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
		if got := groupLimit(tree); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMapped(t *testing.T) {
	tree := fstest.MapFS{"proc/self/statm": {Data: []byte("100 50 20 5 0 30 0\n")}}
	page := int64(os.Getpagesize())
	for field, pages := range map[int]int64{addressSpace: 100, dataSegment: 30, 9: 0} {
		if got := mapped(tree, field); got != pages*page {
			t.Errorf("field %d: %d bytes, want %d pages", field, got, pages)
		}
	}
	if got := mapped(fstest.MapFS{}, addressSpace); got != 0 {
		t.Errorf("without the file: %d", got)
	}
}
