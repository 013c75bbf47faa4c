package interp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sort"
)

// Memory is a simulated device memory: allocations at distinct addresses with unmapped gaps
// between them, every byte knowing whether it was ever written.
type Memory struct {
	bufs   []*buffer // sorted by address
	next   uint64
	last   *buffer // the buffer of the previous access
	launch uint32  // counts launches; marks of earlier launches are stale
	used   int64
	touch  bool // record touched pages
	pages  []Touch

	// reused by the next launch: registers and shared memory
	registers []lanes
	shared    *buffer
}

// sharedOf returns a block's shared memory of n bytes.
func (m *Memory) sharedOf(n int) *buffer {
	if m.shared == nil || len(m.shared.data) != n {
		m.shared = &buffer{data: make([]byte, n), init: make([]byte, n)}
	}
	return m.shared
}

// registersOf returns the registers of warp i of n warps, uninitialized.
func (m *Memory) registersOf(i, n, each int) []lanes {
	if len(m.registers) < n*each {
		m.registers = make([]lanes, n*each)
	}
	return m.registers[i*each : (i+1)*each]
}

// Touch is a page that the last traced launch accessed.
type Touch struct {
	Addr  uint64
	Write bool // written, and possibly read
	buf   *buffer
}

type buffer struct {
	addr   uint64
	data   []byte
	init   []byte // 1 for each byte that was written
	marks  shadow
	launch uint32
	pages  []uint8 // accesses of the current launch to each page: pageRead, pageWrite
}

// touched returns the race marks of n bytes.
func (b *buffer) touched(off uint64, n int) []mark {
	return b.marks.of(len(b.data), off, n)
}

// written reports whether all of n bytes were written; n is a power of two up to 16.
func (b *buffer) written(off uint64, n int) bool {
	p := b.init[off : off+uint64(n)]
	switch n {
	case 1:
		return p[0] != 0
	case 2:
		return binary.LittleEndian.Uint16(p) == 0x0101
	case 4:
		return binary.LittleEndian.Uint32(p) == 0x01010101
	case 8:
		return binary.LittleEndian.Uint64(p) == 0x0101010101010101
	}
	return binary.LittleEndian.Uint64(p) == 0x0101010101010101 && binary.LittleEndian.Uint64(p[8:]) == 0x0101010101010101
}

// never returns the first of n bytes that was not written.
func (b *buffer) never(off uint64, n int) uint64 {
	return off + uint64(bytes.IndexByte(b.init[off:off+uint64(n)], 0))
}

// PageSize is the granularity of Touched.
const PageSize = 256

const (
	pageRead  = 1
	pageWrite = 2
)

const (
	firstAddr = 0x7f00_0000_0000
	alignment = 256
	gap       = 4096 // number of unmapped bytes after each allocation
)

// NewMemory returns an empty memory.
func NewMemory() *Memory { return &Memory{next: firstAddr} }

// Alloc reserves n bytes, aligned to 256, all uninitialized, and returns their address.
func (m *Memory) Alloc(n int) uint64 {
	b := &buffer{addr: m.next, data: make([]byte, n), init: make([]byte, n)}
	m.bufs = append(m.bufs, b)
	m.next += (uint64(n)+alignment-1)/alignment*alignment + gap
	m.used += int64(n)
	return b.addr
}

// Free releases an allocation; addr must be what Alloc returned.
func (m *Memory) Free(addr uint64) error {
	for i, b := range m.bufs {
		if b.addr == addr {
			m.used -= int64(len(b.data))
			m.bufs = append(m.bufs[:i], m.bufs[i+1:]...)
			m.last = nil
			return nil
		}
	}
	return fmt.Errorf("interp: free of %#x, which is not an allocation", addr)
}

// find returns the buffer that holds [addr, addr+n), or nil.
func (m *Memory) find(addr, n uint64) *buffer {
	if b := m.last; b != nil && addr >= b.addr && addr-b.addr+n <= uint64(len(b.data)) {
		return b
	}
	i := sort.Search(len(m.bufs), func(i int) bool { return m.bufs[i].addr > addr }) - 1
	if i < 0 {
		return nil
	}
	b := m.bufs[i]
	if off := addr - b.addr; off+n < off || off+n > uint64(len(b.data)) {
		return nil
	}
	m.last = b
	return b
}

// span returns the bytes [addr, addr+n), or an error that explains why they are not accessible.
func (m *Memory) span(addr uint64, n int) (*buffer, uint64, error) {
	b := m.find(addr, uint64(n))
	if b == nil {
		return nil, 0, fmt.Errorf("interp: %d bytes at %#x are outside every allocation", n, addr)
	}
	return b, addr - b.addr, nil
}

// Write copies data to addr and marks it initialized.
func (m *Memory) Write(addr uint64, data []byte) error {
	b, off, err := m.span(addr, len(data))
	if err != nil {
		return err
	}
	copy(b.data[off:], data)
	setAll(b.init[off : off+uint64(len(data))])
	return nil
}

// Read copies len(dst) bytes from addr; bytes never written are an error.
func (m *Memory) Read(dst []byte, addr uint64) error {
	b, off, err := m.span(addr, len(dst))
	if err != nil {
		return err
	}
	if i := bytes.IndexByte(b.init[off:off+uint64(len(dst))], 0); i >= 0 {
		return fmt.Errorf("interp: byte %d of the %d at %#x was never written", i, len(dst), addr)
	}
	copy(dst, b.data[off:])
	return nil
}

// Fill sets n bytes to v and marks them initialized.
func (m *Memory) Fill(addr uint64, v byte, n int) error {
	b, off, err := m.span(addr, n)
	if err != nil {
		return err
	}
	for i := range b.data[off : off+uint64(n)] {
		b.data[off+uint64(i)] = v
	}
	setAll(b.init[off : off+uint64(n)])
	return nil
}

func setAll(s []byte) {
	for i := range s {
		s[i] = 1
	}
}

// marksOf returns the race marks of n bytes for the current launch.
func (m *Memory) marksOf(b *buffer, off uint64, n int) []mark {
	if b.launch != m.launch {
		b.launch = m.launch
		b.marks.clear()
	}
	return b.touched(off, n)
}

// Touched lists the pages the last launch with Options.Trace accessed, in the order first touched.
func (m *Memory) Touched() []Touch {
	for i := range m.pages {
		t := &m.pages[i]
		t.Write = t.buf.pages[(t.Addr-t.buf.addr)/PageSize]&pageWrite != 0
	}
	return m.pages
}

// startTrace discards the record of the previous launch's pages.
func (m *Memory) startTrace(on bool) {
	for _, t := range m.pages {
		t.buf.pages[(t.Addr-t.buf.addr)/PageSize] = 0
	}
	m.pages, m.touch = m.pages[:0], on
}

// note records an access to global memory. An access never crosses a page.
func (m *Memory) note(b *buffer, off uint64, kind uint8) {
	if b.pages == nil {
		b.pages = make([]uint8, (len(b.data)+PageSize-1)/PageSize)
	}
	page := off / PageSize
	if b.pages[page] == 0 {
		m.pages = append(m.pages, Touch{Addr: b.addr + page*PageSize, buf: b})
	}
	b.pages[page] |= kind
}
