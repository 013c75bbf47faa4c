package kern

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// Block is an array whose memory the garbage collector neither counts nor frees, on Linux without the
// race detector; otherwise it is on the Go heap. The memory returns to the system when the
// last holder releases the Block, or when nothing refers to the Block any more: code that uses its
// bytes must keep the Block. It must not contain words that goroutines synchronize by.
type Block struct {
	mem     []byte
	mapped  []byte // the pages that contain mem; nil: mem is on the Go heap
	holders atomic.Int64
	cleanup runtime.Cleanup
}

// mappedBytes is the number of bytes of all blocks outside the Go heap.
var mappedBytes atomic.Int64

// MappedBytes is the number of bytes of this process's blocks outside the Go heap.
func MappedBytes() int64 { return mappedBytes.Load() }

// NoMemory is the panic value of a kernel, or of NewBlock, where the system maps no more memory: the
// limit of ulimit is reached, or it promises no more than it has. To ask Go's heap instead would end
// the process.
type NoMemory struct {
	Bytes int64
	Err   error
}

func (e NoMemory) Error() string {
	return fmt.Sprintf("the system gives no memory for %.1f MB more: %v", float64(e.Bytes)/(1<<20), e.Err)
}

func (e NoMemory) Unwrap() error { return e.Err }

// AsNoMemory returns the NoMemory that a panic value is, or that of the task of a parallel region.
func AsNoMemory(value any) (NoMemory, bool) {
	if t, ok := value.(*taskPanic); ok {
		value = t.Value
	}
	e, ok := value.(NoMemory)
	return e, ok
}

// NewBlock returns n zero bytes, aligned to 64, with the caller as holder. Pages take no memory
// before they are touched. It panics with NoMemory.
func NewBlock(n int64) *Block {
	if b := mapBlock(n, true); b != nil {
		return b
	}
	return HeapBlock(Alloc(n))
}

// NewSparseBlock is NewBlock for memory of which few pages are touched: none of them is huge.
func NewSparseBlock(n int64) *Block {
	b := mapBlock(n, false)
	if b == nil {
		return HeapBlock(Alloc(n))
	}
	adviseSmall(b.mapped)
	return b
}

// HeapBlock returns a block of memory of the Go heap. Holders and releases have no effect on it.
func HeapBlock(mem []byte) *Block {
	b := &Block{mem: mem}
	b.holders.Store(1)
	return b
}

// mapBlock is NewBlock outside the Go heap, with huge pages or without; nil where blocks are of the
// heap.
func mapBlock(n int64, huge bool) *Block {
	if RaceEnabled || n <= 0 { // the race detector tracks only the Go heap
		return nil
	}
	extra := int64(colors * colorStep)
	if huge = huge && n >= HugePage; huge {
		extra += 2 * HugePage // from the first aligned byte to the last page
	}
	mem, err := mapMemory(n + extra)
	if err != nil {
		panic(NoMemory{n, err})
	}
	if mem == nil {
		return nil
	}
	b := HeapBlock(within(mem, n, huge))
	b.mapped = mem
	mappedBytes.Add(int64(len(mem)))
	b.cleanup = runtime.AddCleanup(b, unmapCounted, mem)
	return b
}

// Blocks begin at different places of their pages: elements of equal index of several arrays would otherwise share sets of
// the caches.
const (
	colors    = 16
	colorStep = 4096 + 4*64
)

var nextColor atomic.Int64

// within is n bytes of mapped memory. Where huge is set, whole huge pages are requested, and one for its end if that takes
// little more memory.
func within(mem []byte, n int64, huge bool) []byte {
	color := nextColor.Add(1) % colors * colorStep
	if !huge {
		return mem[color:][:n:n]
	}
	mem = mem[toAlign(mem, HugePage):]
	end := (color + n) &^ (HugePage - 1)
	if whole := end + HugePage; whole <= int64(len(mem)) && whole-color-n <= n/32 {
		end = whole
	}
	adviseHuge(mem[:end])
	return mem[color:][:n:n]
}

func unmapCounted(mem []byte) {
	unmapMemory(mem)
	mappedBytes.Add(-int64(len(mem)))
}

// Bytes is the memory of the block.
func (b *Block) Bytes() []byte { return b.mem }

// Touch makes the system provide the pages of a mapped block now, so that the first use does not
// wait for them.
func (b *Block) Touch() {
	if b.mapped != nil {
		touch(wholePages(b.mem))
	}
}

// wholePages is the part of b that consists of whole pages.
func wholePages(b []byte) []byte {
	page := int64(systemPage)
	from := min(toAlign(b, page), int64(len(b)))
	return b[from:][:(int64(len(b))-from)&^(page-1)]
}

// Hold adds a holder.
func (b *Block) Hold() { b.holders.Add(1) }

// Release ends the hold of one holder. After the last one the bytes must not be used.
func (b *Block) Release() {
	if b.holders.Add(-1) > 0 || b.mapped == nil {
		return
	}
	b.cleanup.Stop()
	unmapCounted(b.mapped)
	b.mem, b.mapped = nil, nil
}
