package kern

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// A block lies outside the Go heap where the system allows it, holds zeros, and goes back with its last holder.
func TestBlock(t *testing.T) {
	before := MappedBytes()
	const n = 5<<20 + 3
	b := NewBlock(n)
	if mapped := MappedBytes() - before; runtime.GOOS == "linux" && !RaceEnabled && mapped < n || RaceEnabled && mapped != 0 {
		t.Errorf("%d bytes of a block of %d lie outside the heap (race detector: %t)", mapped, n, RaceEnabled)
	}
	if mem := b.Bytes(); len(mem) != n || cap(mem) != n || toAlign(mem, 64) != 0 {
		t.Errorf("%d bytes, cap %d, %d before an aligned one", len(mem), cap(mem), toAlign(mem, 64))
	}
	for i, x := range b.Bytes() {
		if x != 0 {
			t.Fatalf("byte %d is %d", i, x)
		}
		b.Bytes()[i] = 1
	}
	b.Hold()
	b.Release()
	if b.Bytes()[n-1] != 1 {
		t.Error("the last byte has changed while the block is held")
	}
	b.Release()
	if after := MappedBytes(); after != before {
		t.Errorf("%d bytes are mapped after the last release, %d before", after, before)
	}
}

// What the system does not map is an error that names the bytes, also from a task of a parallel region.
func TestNoMemory(t *testing.T) {
	if runtime.GOOS != "linux" || RaceEnabled {
		t.Skip("blocks are of the Go heap")
	}
	const n = 1 << 50
	caught := func(f func()) (e NoMemory, ok bool) {
		defer func() { e, ok = AsNoMemory(recover()) }()
		f()
		return e, ok
	}
	m := New(Paths()[0], 2)
	defer m.Close()
	for name, f := range map[string]func(){
		"block":  func() { NewBlock(n) },
		"sparse": func() { NewSparseBlock(n) },
		"kernel": func() { m.Pool().For(4, func(_, i int) { NewBlock(n) }) },
	} {
		if e, ok := caught(f); !ok || e.Bytes != n || !strings.Contains(e.Error(), "no memory for 1073741824.0 MB more: ") {
			t.Errorf("%s: %v, %t", name, e, ok)
		}
	}
	if _, ok := AsNoMemory("another panic"); ok {
		t.Error("any panic is taken for it")
	}
}

// A block that is not released is freed when nothing refers to it.
func TestLostBlock(t *testing.T) {
	before := MappedBytes()
	NewBlock(3 << 20).Bytes()[0] = 1
	for range 100 {
		if runtime.GC(); MappedBytes() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d bytes are still mapped, %d before", MappedBytes(), before)
}
