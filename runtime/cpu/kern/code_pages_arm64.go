package kern

import "unsafe"

// memfdCreate is the number of a Linux system call.
const memfdCreate = 279

// returns is code that only returns.
var returns = []byte{0xc0, 0x03, 0x5f, 0xd6}

// flushCode makes the processors fetch what was written to mem.
func flushCode(mem []byte) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	flushLines(start, start+uintptr(len(mem)))
}

// flushLines writes the lines of the data caches with the addresses back to where instructions are fetched from, and then
// drops those of the instruction caches.
func flushLines(start, end uintptr)
