package cpu_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
)

// twoProcessors are the first two processors that this process may run on.
func twoProcessors(t *testing.T) (list []int) {
	t.Helper()
	mine, ok := kern.Affinity()
	if !ok || mine.Len() < 2 {
		t.Skip("the process may run on one processor only, or the system does not say on which")
	}
	for n := range kern.MaxProcessors {
		if mine.Has(n) && len(list) < 2 {
			list = append(list, n)
		}
	}
	return list
}

// digest is a hash of the variables of two models after some steps.
func digest(t *testing.T, b *cpu.Backend) string {
	t.Helper()
	h := sha256.New()
	for _, spec := range []string{"mlp?batch=128", "gpt?layers=1&dim=64&heads=4&seq=32&batch=4&vocab=256"} {
		vars := stateOn(t, b, compiled(t, spec, "mixed-bf16"))
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			h.Write([]byte(vars[name]))
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// A process that may run on one processor has one worker, whatever GOMAXPROCS says, and the results of
// two.
func TestOneWorkerOnOneProcessor(t *testing.T) {
	if os.Getenv("AMPC_TEST_AFFINITY") != "" {
		b, err := cpu.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		fmt.Printf("on one: %d %s\n", b.Threads(), digest(t, b))
		return
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Skip("there is no taskset: ", err)
	}
	first := fmt.Sprint(twoProcessors(t)[0])
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := "on one: 1 " + digest(t, b) + "\n"
	for _, procs := range []string{"", "4"} {
		c := exec.Command(taskset, "-c", first, os.Args[0], "-test.run=^TestOneWorkerOnOneProcessor$")
		c.Env = append(os.Environ(), "AMPC_TEST_AFFINITY=1", "GOMAXPROCS="+procs)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("GOMAXPROCS=%s: the process says %q, want %q", procs, out, want)
		}
	}
}

// masks are the processors of this process's threads, in the kernel's words: "0-3".
func masks(t *testing.T) (list []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads in /proc: %v", err)
	}
	for _, f := range files {
		if status, err := os.ReadFile(f); err == nil { // the thread may have ended
			list = append(list, maskIn(string(status)))
		}
	}
	return list
}

func maskIn(status string) string {
	_, list, _ := strings.Cut(status, "\nCpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	return strings.TrimSpace(list)
}

// callersMask is the processors of the caller's thread.
func callersMask(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	return maskIn(string(status))
}

// On two nodes of one processor each every worker's thread is confined to one, and the caller's while
// a step runs. No bit of the results changes, and no thread stays confined after Close.
func TestWorkersAreConfinedToNodes(t *testing.T) {
	at := twoProcessors(t)
	h := kern.Host{Nodes: make([]kern.Processors, 2)}
	for i := range h.Nodes {
		h.Nodes[i].Add(at[i])
	}
	plain, err := cpu.Open(4)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	want, before, here := digest(t, plain), masks(t), callersMask(t)
	count := func(mask string) int {
		return len(slices.DeleteFunc(masks(t), func(m string) bool { return m != mask }))
	}
	for _, mask := range before {
		if mask != here {
			t.Fatalf("before there are nodes, a thread may run on %s and this one on %s", mask, here)
		}
	}
	b := cpu.OpenOn(kern.Paths()[0], 4, h)
	if b.Nodes() != 2 {
		t.Fatalf("%d nodes, want 2", b.Nodes())
	}
	nodes := []string{fmt.Sprint(at[0]), fmt.Sprint(at[1])}
	if n0, n1 := count(nodes[0]), count(nodes[1]); n0 != 1 || n1 != 2 { // and the caller on node 0
		t.Errorf("%d threads are confined to node 0 and %d to node 1, want 1 and 2", n0, n1)
	}
	for range 2 {
		if got := digest(t, b); got != want {
			t.Error("other results than without nodes")
		}
		b.Hold(func() {
			if m := callersMask(t); m != nodes[0] {
				t.Errorf("during a step the caller may run on %s, want %s", m, nodes[0])
			}
		})
		if m := callersMask(t); m != here {
			t.Errorf("after a step the caller may run on %s, before on %s", m, here)
		}
	}
	b.Close()
	for wait := time.Millisecond; count(nodes[0])+count(nodes[1]) > 0; wait *= 2 {
		if wait > 10*time.Second {
			t.Fatalf("after Close threads may run on %v", masks(t))
		}
		time.Sleep(wait)
	}
}
