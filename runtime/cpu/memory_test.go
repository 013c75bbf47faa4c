package cpu

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// What no machine holds is refused before it is asked for: the process would end.
func TestTooLittleMemory(t *testing.T) {
	all := ceilings(heap())
	if len(all) == 0 {
		t.Skip("this system does not say how much memory there is")
	}
	c := tightest(all)
	least := c.bytes - c.used
	if err := fits(least / 2); err != nil {
		t.Errorf("half of the memory: %v", err)
	}
	if err := fits(least + 1<<30); err == nil || !strings.HasSuffix(err.Error(), "in use: make the batch or the model smaller") {
		t.Errorf("a GB more than there is: %v", err)
	}
	if n := Available(); n < least || n > all[0].bytes {
		t.Errorf("%d bytes are available to the heap, want those that are left, %d, and those in use", n, least)
	}
	b, err := Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, err := b.NewStore(nil)
	if err != nil {
		t.Fatal(err)
	}
	huge := lower.Var{Name: "w", Kind: ir.Param, Type: ir.T(ir.F32, 1<<40)}
	if err := s.Declare([]lower.Var{huge}); err == nil || !strings.HasPrefix(err.Error(), "cpu: variables: 4096.00 GB are more than") {
		t.Errorf("4 TB of weights: %v", err)
	}
	p := &lower.Program{Name: "p", Target: lower.CPU}
	p.Arenas[lower.WorkArena] = math.MaxInt64 / 2
	if _, err := b.Load(p, s); err == nil || !strings.HasPrefix(err.Error(), "cpu: p: ") {
		t.Errorf("a program that wants more than there is: %v", err)
	}
	if _, err := s.(*store).workArena(new(execContext), p); err == nil || !strings.HasSuffix(err.Error(), "in use: run fewer steps, or micro-batches, at the same time") {
		t.Errorf("one more step at the same time: %v", err)
	}
}

// Of several bounds the one counts that leaves least room, not the first nor the smallest.
func TestTightestBound(t *testing.T) {
	if c := tightest([]ceiling{{100, 10, "machine", false}, {40, 10, "group", false}, {80, 60, "ulimit", true}, {90, 65, "other", true}}); c == nil || c.whose != "ulimit" {
		t.Errorf("%+v, want that of ulimit, which leaves 20", c)
	}
	if c := tightest(nil); c != nil {
		t.Errorf("no bound: %+v", c)
	}
}

// What a program needs is counted beside what the process holds, and only once.
func TestMemoryInUseCounts(t *testing.T) {
	held := make([]byte, 64<<20)
	before := heap().objects
	if before < int64(len(held)) {
		t.Errorf("the heap holds %d bytes, %d of them here", before, len(held))
	}
	held[0] = 1
	b, err := Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	w := lower.Var{Name: "w", Kind: ir.Param, Type: ir.T(ir.F32, 1<<10)}
	made, err := b.NewStore([]lower.Var{w})
	if err != nil {
		t.Fatal(err)
	}
	s := made.(*store)
	if _, err := s.workArena(s.b.first, &lower.Program{Arenas: [lower.NumArenas]int64{lower.WorkArena: 100}}); err != nil {
		t.Fatal(err)
	}
	s.copyOf(s.vars["w"], ir.F16)
	p := &lower.Program{Vars: []lower.Var{w}, WeightCopies: []lower.WeightCopy{{Var: "w", DType: ir.F16}, {Var: "w", DType: ir.BF16}}}
	p.Arenas[lower.WorkArena] = 300
	if got := s.held(p); got != 4<<10+2<<10+100 {
		t.Errorf("%d bytes of the program are held, want w, its copy in f16 and 100 of work", got)
	}
}
