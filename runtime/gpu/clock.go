package gpu

import (
	"errors"
	"time"

	"ampc/cuda"
)

// Clock makes the backend measure each step from its first launch to its last, by events on the device,
// and wait for it. StepTimes gives what was measured since.
func (b *Backend) Clock(on bool) {
	_ = b.call(func() error { b.clock, b.times = on, nil; return nil }) // fails after Close alone
}

// StepTimes are the times on the device of the steps since Clock.
func (b *Backend) StepTimes() (times []time.Duration) {
	_ = b.call(func() error { times = append(times, b.times...); return nil })
	return times
}

// clocked issues a step between two events, where steps are measured.
func (b *Backend) clocked(issue func() error) error {
	if !b.clock {
		return issue()
	}
	took, err := cuda.TimeOf(b.d, b.stream(), issue)
	if err == nil {
		b.times = append(b.times, took)
	}
	return err
}

// CopyRate is the rate at which the device copies its memory, in bytes read and written each second:
// what a kernel that streams can reach. Without the memory for cuda.CopyBytes the copy is smaller.
func (b *Backend) CopyRate() (rate float64, err error) {
	err = b.do(func() error {
		free, _, err := b.d.MemInfo()
		if err != nil {
			return err
		}
		n, measure := min(cuda.CopyBytes, free/8), cuda.Measure
		if b.held != nil {
			n, measure = min(n, simulatedCopy), cuda.TimeOf // always the same
		}
		src, err := b.alloc(n, "a copy that is timed")
		if err != nil {
			return err
		}
		dst, err := b.alloc(n, "a copy that is timed")
		if err != nil {
			return errors.Join(err, b.d.Free(src))
		}
		var took time.Duration
		err = b.d.Fill8(src, 1, n, b.stream())
		if err == nil {
			took, err = measure(b.d, b.stream(), func() error { return b.d.Copy(dst, src, n, b.stream()) })
		}
		rate = 2 * float64(n) / took.Seconds()
		return errors.Join(err, b.d.Synchronize(b.stream()), b.d.Free(src), b.d.Free(dst))
	})
	return rate, err
}

// simulatedCopy is the size on a simulated device, which copies on the CPU.
const simulatedCopy = 8 << 20
