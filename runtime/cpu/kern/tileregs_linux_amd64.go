package kern

import "syscall"

// askTileRegisters reads CPUID (AMX_TILE and AMX_BF16, with AVX-512 and the tile state enabled by
// the operating system) and asks Linux for the permission. Linux refuses if the signal stack of a
// thread is too small for the tile state, which is not the case for Go's threads. It does not know
// the request before 5.16.
func askTileRegisters() (t TileState) {
	const hasBF16, hasTiles, state = 1 << 22, 1 << 24, 1<<17 | 1<<18
	_, avx512, bf16 := features()
	if !avx512 || !bf16 {
		return t
	}
	_, _, _, d := cpuid(7, 0)
	enabled, _ := xgetbv()
	if t.Present = d&(hasBF16|hasTiles) == hasBF16|hasTiles && enabled&state == state; !t.Present {
		return t
	}
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
	_, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	t.Usable = err == 0
	return t
}
