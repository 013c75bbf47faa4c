package gpu

import (
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/ir"
)

// alloc allocates n bytes, at least one. An out-of-memory error names the purpose.
func (b *Backend) alloc(n int64, what string) (cuda.Ptr, error) {
	p, err := b.d.Alloc(max(n, 1))
	if errors.Is(err, cuda.ErrOutOfMemory) {
		free, total, _ := b.d.MemInfo()
		return 0, fmt.Errorf("no %s for %s, %s of %s are free: %w", ir.Bytes(n), what, ir.Bytes(free), ir.Bytes(total), err)
	}
	return p, err
}

// Room is the free memory of the device; see runtime.Bounded.
func (b *Backend) Room() (int64, error) {
	free, _, err := b.d.MemInfo()
	return free, err
}

// upload copies src to the device and waits.
func (b *Backend) upload(dst cuda.Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return b.pinned(len(src), func(mem []byte) error {
		copy(mem, src)
		return errors.Join(b.d.CopyToDevice(dst, mem, b.stream()), b.settle())
	})
}

// download copies from the device to dst and waits.
func (b *Backend) download(dst []byte, src cuda.Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return b.pinned(len(dst), func(mem []byte) error {
		err := errors.Join(b.d.CopyToHost(mem, src, b.stream()), b.settle())
		copy(dst, mem)
		return err
	})
}

// settle waits for all work of the device.
func (b *Backend) settle() error {
	err := b.d.Synchronize(b.stream())
	b.settled = err == nil
	return err
}

// keptBytes is the most page-locked memory that is kept for the next read or write: reading a result
// allocates nothing.
const keptBytes = 16 << 20

// pinned runs f with n bytes of page-locked memory. f waits for the copies that it issues.
func (b *Backend) pinned(n int, f func(mem []byte) error) error {
	mem, kept := b.kept, true
	if len(mem) < n {
		var err error
		if mem, err = b.d.HostAlloc(int64(max(n, pageBytes))); err != nil {
			return err
		}
		kept = false
	}
	err := f(mem[:n])
	switch {
	case kept && err == nil:
		return nil
	case kept: // a copy may still use it
		b.kept = nil
	case err == nil && n <= keptBytes:
		mem, b.kept = b.kept, mem
	}
	if mem == nil {
		return err
	}
	return errors.Join(err, b.d.HostFree(mem))
}

// pageBytes is the least that is allocated.
const pageBytes = 4096

// MemInfo is the device's free and total memory in bytes, for all processes together.
func (b *Backend) MemInfo() (free, total int64, err error) {
	err = b.call(func() (err error) {
		free, total, err = b.d.MemInfo()
		return err
	})
	return free, total, err
}
