package cpu

import (
	"testing"
	"testing/fstest"
)

// Quotas of processor time are found in either version of control groups, in those around a group,
// and where there are none.
func TestGroupProcessors(t *testing.T) {
	const (
		v2 = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1 = "40 32 0:34 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n41 32 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  float64
	}{
		"no groups":           {nil, 0},
		"version 2":           {map[string]string{"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5},
		"version 2, no quota": {map[string]string{"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, 0},
		"version 2, nested": {map[string]string{
			"proc/self/cgroup": "0::/pod/box/inner\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/pod/cpu.max": "400000 100000\n", "sys/fs/cgroup/pod/box/cpu.max": "25000 50000\n", "sys/fs/cgroup/pod/box/inner/cpu.max": "max 100000\n",
		}, 0.5},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/b\n2:cpu,cpuacct:/a/c\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/a/c/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu,cpuacct/a/c/cpu.cfs_period_us": "100000\n",
		}, 3},
		"damaged": {map[string]string{"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/a/cpu.max": "100000\n", "sys/fs/cgroup/cpu.max": "5 0\n"}, 0},
	} {
		tree := fstest.MapFS{}
		for path, text := range c.files {
			tree[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := groupProcessors(tree); got != c.want {
			t.Errorf("%s: %g processors, want %g", name, got, c.want)
		}
	}
}
