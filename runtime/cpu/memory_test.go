package cpu

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
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
	b, s := openStore(t)
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

// openStore opens a backend of one thread, and a store of no variables.
func openStore(t *testing.T) (*Backend, runtime.Store) {
	t.Helper()
	b, err := Open(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s, err := b.NewStore(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b, s
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

// What the caller feeds counts: the inputs of one micro-batch, or of as many as it says that it holds.
func TestFeedsCount(t *testing.T) {
	b, s := openStore(t)
	p := &lower.Program{Vars: []lower.Var{
		{Name: "x", Kind: ir.Input, Type: ir.T(ir.F32, 1<<10)},
		{Name: "w", Kind: ir.Param, Type: ir.T(ir.F32, 1<<10)},
	}}
	p.Arenas[lower.WorkArena] = 100
	for n, want := range map[int]int64{0: 4<<10 + 100, 1: 4<<10 + 100, 4: 16<<10 + 100} {
		b.Fed(n)
		if got, err := b.Need(p, s); got != want || err != nil {
			t.Errorf("%d held: needs %d bytes, want %d; %v", n, got, want, err)
		}
	}
}

// Less than all of what is left is room: a plan is as near as that. Of address space more is kept, and
// of little memory less.
func TestRoomOfBound(t *testing.T) {
	for _, c := range []struct {
		of                ceiling
		room, least, most int64 // and bounds of what an error advises
	}{
		{ceiling{bytes: 11000 << 20, used: 1000 << 20}, 9784 << 20, 9460 << 20, 9480 << 20},
		{ceiling{bytes: 11000 << 20, used: 1000 << 20, space: true}, 9704 << 20, 9300 << 20, 9310 << 20},
		{ceiling{bytes: 100 << 20, used: 84 << 20}, 16<<20 - 16<<20/50 - 2<<20, -4 << 20, 0},
		{ceiling{bytes: 100, used: 200}, -100 + 2 + 12, -1 << 30, 0},
	} {
		room := c.of.room()
		if advised := room - c.of.spare(); room != c.room || advised < c.least || advised > c.most {
			t.Errorf("%+v: room for %d, %d are advised, want %+v", c.of, room, advised, c)
		}
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
