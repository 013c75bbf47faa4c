package cpu

import (
	"testing"
	"testing/fstest"

	"ampc/runtime/cpu/kern"
)

// NUMA nodes are read from the system's tree, with the processors that the process may run on. Where
// there is one, or where the tree is not consistent, there is nothing to divide.
func TestNUMANodes(t *testing.T) {
	two := map[string]string{"online": "0-1\n", "node0/cpulist": "0-3,8-11\n", "node1/cpulist": "4-7,12-15\n"}
	with := func(changes map[string]string) map[string]string {
		files := map[string]string{}
		for _, from := range []map[string]string{two, changes} {
			for name, text := range from {
				files[name] = text
			}
		}
		return files
	}
	status := func(nodes string) string {
		return "Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t" + nodes + "\nvoluntary_ctxt_switches:\t1\n"
	}
	for name, c := range map[string]struct {
		files  map[string]string
		status string
		mine   string
		want   []string
	}{
		"no tree":  {nil, "", "0-15", nil},
		"one node": {map[string]string{"online": "0\n", "node0/cpulist": "0-15\n"}, status("0"), "0-15", nil},
		"two":      {two, status("0-1"), "0-15", []string{"0-3,8-11", "4-7,12-15"}},
		"two, where the system names no nodes for memory": {two, "", "0-15", []string{"0-3,8-11", "4-7,12-15"}},
		"the process may run on some processors of each":  {two, status("0-1"), "2-5,15", []string{"2,3", "4,5,15"}},
		"the process may run on one node":                 {two, status("0-1"), "0-2", nil},
		"the process may run on the other":                {two, status("0-1"), "12-15", nil},
		"the process may have memory on one":              {two, status("1"), "0-15", nil},
		"memory without processors (CXL)":                 {with(map[string]string{"online": "0-2\n", "node2/cpulist": "\n"}), status("0-2"), "0-15", []string{"0-3,8-11", "4-7,12-15"}},
		"one node and memory without processors":          {map[string]string{"online": "0-1\n", "node0/cpulist": "0-15\n", "node1/cpulist": "\n"}, status("0-1"), "0-15", nil},
		"an offline node":                                 {map[string]string{"online": "0,3\n", "node0/cpulist": "0-7\n", "node2/cpulist": "0-15\n", "node3/cpulist": "8-15\n"}, status("0,3"), "0-15", []string{"0-7", "8-15"}},
		"an offline node, with processors of the process": {with(map[string]string{"online": "0\n"}), status("0"), "0-15", nil},
		"a processor on no node":                          {two, status("0-1"), "0-16", nil},
		"a processor on two nodes":                        {with(map[string]string{"node1/cpulist": "3-7,12-15\n"}), status("0-1"), "0-15", nil},
		"a node without a list":                           {with(map[string]string{"online": "0-2\n"}), status("0-1"), "0-15", nil},
		"damaged online":                                  {with(map[string]string{"online": "0-\n"}), status("0-1"), "0-15", nil},
		"damaged list":                                    {with(map[string]string{"node1/cpulist": "4-7,12..15\n"}), status("0-1"), "0-15", nil},
		"a list from large to small":                      {with(map[string]string{"node1/cpulist": "7-4,12-15\n"}), status("0-1"), "0-15", nil},
		"a list with a sign":                              {with(map[string]string{"node1/cpulist": "4-7,+12,13-15\n"}), status("0-1"), "0-15", nil},
		"numbers beyond a set":                            {with(map[string]string{"node1/cpulist": "4-7,12-15,1024\n"}), status("0-1"), "0-15", nil},
		"damaged nodes for memory":                        {two, status("none"), "0-15", []string{"0-3,8-11", "4-7,12-15"}},
	} {
		tree := fstest.MapFS{"proc/self/status": {Data: []byte(c.status)}}
		for path, text := range c.files {
			tree["sys/devices/system/node/"+path] = &fstest.MapFile{Data: []byte(text)}
		}
		var want []kern.Processors
		for _, list := range c.want {
			want = append(want, numbers(t, list))
		}
		got := numaNodes(tree, numbers(t, c.mine))
		if len(got) != len(want) {
			t.Errorf("%s: %d nodes, want %d", name, len(got), len(want))
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: node %d has the processors %x, want %x", name, i, got[i], want[i])
			}
		}
	}
}

func numbers(t *testing.T, list string) kern.Processors {
	t.Helper()
	s, ok := parseNumbers(list)
	if !ok {
		t.Fatalf("%q is no list of numbers", list)
	}
	return s
}
