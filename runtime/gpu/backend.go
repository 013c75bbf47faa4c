// Package gpu runs Programs on an NVIDIA GPU, or on a simulated one, through
// the driver interface of package cuda.
package gpu

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/lower"
	"ampc/runtime"
)

// Backend is one device. Its calls may come from any goroutine: all of them run
// one after the other on one that is bound to the device.
type Backend struct {
	name   string
	target lower.Target
	d      cuda.Driver
	blas   cuda.Blas // opened by the first product
	open   func() (cuda.Blas, error)
	stream cuda.Stream
	space  cuda.Ptr // workspace of products

	calls  chan func()
	closed sync.Once
}

var _ runtime.Backend = (*Backend)(nil)

// Open makes the GPU with this ordinal ready. The error wraps
// cuda.ErrUnavailable where there is none, and says what to do.
func Open(ordinal int) (*Backend, error) {
	return start(fmt.Sprintf("cuda:%d", ordinal), cuda.OpenBlas, func() (cuda.Driver, error) { return cuda.Open(ordinal) })
}

// OpenSim makes a simulated GPU of a target such as sm_90: everything but the
// silicon, at the speed of an interpreter.
func OpenSim(t lower.Target) (*Backend, error) {
	cc, err := strconv.Atoi(strings.TrimPrefix(string(t), "sm_"))
	if _, ok := t.CUDA(); !ok || err != nil {
		return nil, fmt.Errorf("sim:%s: no such GPU; there are sim:sm_70, sim:sm_80 and sim:sm_90", t)
	}
	return OpenSimulator(sim.Options{Major: cc / 10, Minor: cc % 10})
}

// OpenSimulator makes a simulated GPU with options of its own: less memory, faults.
func OpenSimulator(opt sim.Options) (*Backend, error) {
	d, err := sim.Open(opt)
	if err != nil {
		return nil, err
	}
	return start(fmt.Sprintf("sim:sm_%d%d", opt.Major, opt.Minor), func() (cuda.Blas, error) { return d.Blas(), nil },
		func() (cuda.Driver, error) { return d, nil })
}

// start opens the device on the goroutine that will make every call.
func start(name string, blas func() (cuda.Blas, error), open func() (cuda.Driver, error)) (*Backend, error) {
	b := &Backend{name: name, open: blas, calls: make(chan func())}
	go func() {
		for f := range b.calls {
			f()
		}
	}()
	err := b.do(func() error {
		d, err := open()
		if err != nil {
			return err
		}
		b.d = d
		if err := d.Bind(); err != nil {
			return err
		}
		i := d.Info()
		b.target = lower.Target(fmt.Sprintf("sm_%d%d", i.Major, i.Minor))
		b.stream, err = d.NewStream()
		return err
	})
	if err != nil {
		close(b.calls)
		return nil, err
	}
	return b, nil
}

// do runs f on the bound goroutine and waits for it.
func (b *Backend) do(f func() error) error {
	done := make(chan error, 1)
	b.calls <- func() { done <- f() }
	return <-done
}

// Name implements runtime.Backend: cuda:0, sim:sm_90.
func (b *Backend) Name() string { return b.name }

// Target implements runtime.Backend.
func (b *Backend) Target() lower.Target { return b.target }

// Info describes the device.
func (b *Backend) Info() cuda.Info { return b.d.Info() }

// Syncs counts how often the host waited for the device.
func (b *Backend) Syncs() int64 { return b.d.Syncs() }

// Close implements runtime.Backend. Stores and Execs must be closed before.
func (b *Backend) Close() error {
	var err error
	b.closed.Do(func() {
		err = b.do(b.shut)
		close(b.calls)
	})
	return err
}

func (b *Backend) shut() error {
	err := b.d.Synchronize(b.stream)
	if b.space != 0 {
		err = errors.Join(err, b.d.Free(b.space))
	}
	if b.blas != nil {
		err = errors.Join(err, b.blas.Close())
	}
	return errors.Join(err, b.d.FreeStream(b.stream), b.d.Close())
}

// alloc reserves n bytes, one at least, and names what they are for where there are none.
func (b *Backend) alloc(n int64, what string) (cuda.Ptr, error) {
	p, err := b.d.Alloc(max(n, 1))
	var ce *cuda.Error
	if errors.As(err, &ce) && ce.Code == cuda.CodeOutOfMemory {
		free, total, _ := b.d.MemInfo()
		return 0, fmt.Errorf("%s: no %d bytes for %s: %d of %d are free; a smaller batch or more micro-batches need less (%w)", b.name, n, what, free, total, err)
	}
	return p, err
}

// upload copies src to the device and waits.
func (b *Backend) upload(dst cuda.Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return b.pinned(len(src), func(mem []byte) error {
		copy(mem, src)
		return errors.Join(b.d.CopyToDevice(dst, mem, b.stream), b.d.Synchronize(b.stream))
	})
}

// download copies from the device to dst and waits.
func (b *Backend) download(dst []byte, src cuda.Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return b.pinned(len(dst), func(mem []byte) error {
		err := errors.Join(b.d.CopyToHost(mem, src, b.stream), b.d.Synchronize(b.stream))
		copy(dst, mem)
		return err
	})
}

// pinned runs f with n bytes of page-locked memory.
func (b *Backend) pinned(n int, f func(mem []byte) error) error {
	mem, err := b.d.HostAlloc(int64(n))
	if err != nil {
		return err
	}
	return errors.Join(f(mem), b.d.HostFree(mem))
}
