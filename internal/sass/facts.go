package sass

import (
	"strings"
)

// GPU are the limits of one multiprocessor.
//
// Sources: the table "Technical Specifications per Compute Capability" of the CUDA C++ Programming
// Guide (registers, threads, blocks, shared memory, the KiB that the system keeps of each block); the
// CUDA Occupancy Calculator (registers are given to warps in units of 256, to each of the four
// schedulers from its own quarter); the whitepapers of A100 and H100 SXM (number of multiprocessors,
// which the H200 shares).
type GPU struct {
	Multiprocessors int
	Registers       int // of a multiprocessor
	Threads, Blocks int
	Shared          int // bytes
}

// GPUs are the GPUs that kernels are measured for, by compute capability.
var GPUs = map[int]GPU{
	80: {108, 65536, 2048, 32, 164 << 10},
	90: {132, 65536, 2048, 32, 228 << 10},
}

const (
	warpSize     = 32
	schedulers   = 4
	registerUnit = 256     // registers are given to a warp in this unit
	sharedSystem = 1 << 10 // shared memory of each block that the system keeps
	sharedUnit   = 128
)

// Resident is the number of blocks that a multiprocessor holds at a time.
func (g GPU) Resident(registers, shared, threads int) int {
	warps := (threads + warpSize - 1) / warpSize
	n := min(g.Blocks, g.Threads/(warps*warpSize))
	perWarp := (registers*warpSize + registerUnit - 1) / registerUnit * registerUnit
	n = min(n, g.Registers/schedulers/perWarp*schedulers/warps)
	bytes := (shared + sharedSystem + sharedUnit - 1) / sharedUnit * sharedUnit
	return min(n, g.Shared/bytes)
}

// widths are the bytes of an access by the suffix of its instruction; without one it has 4.
// Source: what ptxas makes of ld and st of each width, which TestWidths assembles.
var widths = map[string]int{"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}

// width is the bytes that an instruction moves for a thread.
func width(op string) int {
	for _, s := range strings.Split(op, ".") {
		if n := widths[s]; n > 0 {
			return n
		}
	}
	return 4
}

// is reports whether op is the instruction name, with any suffixes.
func is(op string, names ...string) bool {
	base, _, _ := strings.Cut(op, ".")
	for _, n := range names {
		if base == n {
			return true
		}
	}
	return false
}

// Instructions by what they write. Source: "Instruction Set Reference" of NVIDIA's CUDA Binary
// Utilities, which has their names; the order of operands is what nvdisasm 11.8 prints.
var (
	noResult       = []string{"STG", "ST", "STS", "STL", "RED", "BAR", "BRA", "BRX", "EXIT", "BSSY", "BSYNC", "WARPSYNC", "NOP", "CALL", "RET", "DEPBAR", "MEMBAR", "YIELD", "ERRBAR", "CCTL", "BREAK", "ENDCOLLECTIVE"}
	afterPredicate = []string{"SHFL", "LOP3", "VOTE", "MATCH"}          // a register follows a leading predicate result
	carrying       = []string{"IADD3", "UIADD3", "LEA", "ULEA", "IMAD"} // predicate results may follow the register
)
