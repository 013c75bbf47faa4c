//go:build amd64 || arm64

package kern

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"
)

// twoNodes are made-up nodes of one processor of this process each.
func twoNodes(t *testing.T) []Processors {
	t.Helper()
	mine, ok := Affinity()
	if !ok || mine.Len() < 2 {
		t.Skip("the process may run on one processor only, or the system does not say on which")
	}
	var nodes []Processors
	for n := range MaxProcessors {
		if mine.Has(n) && len(nodes) < 2 {
			nodes = append(nodes, processors(n, n+1))
		}
	}
	return nodes
}

// own is where the caller's thread may run.
func own(t *testing.T) (s Processors) {
	t.Helper()
	if !s.call(syscall.SYS_SCHED_GETAFFINITY) {
		t.Fatal("the system does not say where the thread may run")
	}
	return s
}

// Tasks run on the node of their worker, the caller's among them. Between steps the caller may run
// where it could before, whether or not it has confined itself.
func TestTasksRunOnTheNodeOfTheirWorker(t *testing.T) {
	nodes := twoNodes(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := own(t)
	defer all.call(syscall.SYS_SCHED_SETAFFINITY)
	p := newPool(4, false, nodes)
	defer p.Close()
	p.Leave()
	if p.Nodes() != 2 {
		t.Fatal("the system refuses to confine threads")
	}
	for _, before := range []Processors{all, nodes[0], nodes[1]} {
		if !before.call(syscall.SYS_SCHED_SETAFFINITY) {
			t.Fatal("the system refuses to confine the caller")
		}
		for range 5 {
			p.Enter()
			p.For(200, func(w, _ int) {
				var s Processors
				want := nodes[w/2]
				if w == 0 && before == nodes[1] { // it confined itself elsewhere
					want = before
				}
				if !s.call(syscall.SYS_SCHED_GETAFFINITY) || s != want {
					t.Errorf("worker %d may run on %x, want %x", w, s, want)
				}
			})
			p.Leave()
			if now := own(t); now != before {
				t.Fatalf("the caller may run on %x after the step, before on %x", now, before)
			}
		}
	}
}

// Workers are divided among the nodes anew when GOMAXPROCS changes: all run where there is one of them,
// and on the node of their number among those there are.
func TestNodesFollowGOMAXPROCS(t *testing.T) {
	nodes := twoNodes(t)
	was := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(was)
	p := startPool(0, Host{Processors: 4, Nodes: nodes})
	defer p.Close()
	for _, procs := range []int{1, 2, 4, 3, 1, 2} {
		runtime.GOMAXPROCS(procs)
		want := divideAmong(procs, nodes)
		followed(t, p)
		if n := p.Nodes(); procs == 1 && n != 1 || procs > 1 && n != 2 {
			t.Errorf("GOMAXPROCS %d: workers are on %d nodes", procs, n)
		}
		p.For(200, func(w, _ int) {
			var s Processors
			s.call(syscall.SYS_SCHED_GETAFFINITY)
			if node := want.node(w); node != nil && s != *node {
				t.Errorf("GOMAXPROCS %d: worker %d may run on %x, want %x", procs, w, s, *node)
			}
		})
	}
}

// A block's pages are there after Place, zero, whether or not the kernel can be asked for them.
func TestPlaceProvidesPages(t *testing.T) {
	if RaceEnabled {
		t.Skip("under the race detector blocks are of the heap")
	}
	const noAdvice = 1 << 20
	probe := NewBlock(HugePage)
	defer probe.Release()
	if syscall.Madvise(wholePages(probe.Bytes()), noAdvice) == nil {
		t.Skip("the system takes advice that it does not know, as emulators do: it may not provide pages")
	}
	m := newMachine(Paths()[0], newPool(2, false, twoNodes(t)))
	defer m.Close()
	for _, uses := range [][]ArenaUse{nil, {{0, 5 * HugePage, 1}}} {
		b := NewBlock(5*HugePage + 100)
		m.Place(b, uses)
		mem, page := b.Bytes(), systemPage
		from := int(toAlign(mem, int64(page)))
		resident := make([]byte, (len(mem)-from)/page)
		if err := mincore(mem[from:][:len(resident)*page], resident); err != nil {
			t.Skip("the system does not say which pages are there: ", err)
		}
		for i, r := range resident {
			if r&1 == 0 {
				t.Fatalf("page %d of %d is not there", i, len(resident))
			}
		}
		for i, x := range mem {
			if x != 0 {
				t.Fatalf("byte %d is %d", i, x)
			}
		}
		b.Release()
	}
}

// mincore asks which pages of mem are in memory.
func mincore(mem, pages []byte) error {
	_, _, err := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&pages[0])))
	if err != 0 {
		return err
	}
	return nil
}
