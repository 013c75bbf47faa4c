// Package gpu runs Programs on an NVIDIA GPU, or on a simulated one, through
// the driver interface of package cuda.
//
// A step is one graph launch: the first step of a Program is issued launch by
// launch, the second is captured, and from then on the graph is launched again.
// The host waits for the device only where a result or a variable is read.
package gpu

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/runtime"
)

// Backend is one device. Any goroutine may call it: the calls run one after the other on a
// goroutine that is bound to the device.
type Backend struct {
	name    string
	target  sm.Target
	d       cuda.Driver
	held    *sim.Device // the same as d if the device is simulated
	blas    cuda.Blas   // opened by the first product
	dnn     cuda.Dnn    // nil if there is none
	plans   map[string]*sharedPlan
	open    func() (cuda.Blas, error)
	tune    bool   // measure what there is to choose from
	vary    bool   // attention may use engines whose sums change from run to run
	cache   string // folder for the selected algorithms
	tuner   *cuda.Tuner
	chosen  []Chosen
	streams []workStream // streams of the device; every call begins and ends on the first
	eager   bool
	lost    error     // set after an error that breaks the context
	less    sm.Target // what it lacks, the backend does without from the start

	kept   []byte      // page-locked memory, see pinned
	copier cuda.Stream // of inputs, made by the first step that needs it; 0: none yet

	clock bool            // steps are measured
	times []time.Duration // of steps

	foreign    bool        // the caller owns the driver
	user       cuda.Stream // the caller's stream, 0: none
	fork, join cuda.Event  // events that order its work and the backend's

	settled bool           // the call under way has waited for all work
	comm    cuda.Comm      // nil: it is no rank of a world
	watch   Watch          // of comm
	linked  map[*Exec]bool // Execs that are joined to its world

	calls  chan func()
	gone   chan struct{} // closed by Close
	closed sync.Once
}

// workStream is a stream with the workspace of the products on it.
type workStream struct {
	stream cuda.Stream
	space  cuda.Ptr
}

var _ runtime.Backend = (*Backend)(nil)

// Open initializes the GPU with this ordinal. The error wraps cuda.ErrUnavailable if there is none,
// and says what to do.
func Open(ordinal int) (*Backend, error) { return openWithout(ordinal, sm.Target{}) }

// openWithout is Open for a device that does without what less lacks. Without cuDNN, none is opened.
func openWithout(ordinal int, less sm.Target) (*Backend, error) {
	b := &Backend{name: fmt.Sprintf("cuda:%d", ordinal), open: cuda.OpenBlas, tune: true, cache: cacheDir(), less: less}
	return b, b.start(func() (cuda.Driver, error) { return cuda.Open(ordinal) })
}

// OpenSim makes a simulated GPU of a target such as sm_90. It runs the same kernels and library
// calls as a real one, at the speed of an interpreter.
func OpenSim(target string) (*Backend, error) {
	number, _, _ := strings.Cut(strings.TrimPrefix(target, "sm_"), "/")
	cc, err := strconv.Atoi(number)
	t, ok := sm.DeviceNamed(target)
	if !ok || err != nil {
		return nil, fmt.Errorf("sim:%s: no such GPU; there are sim:sm_70, sim:sm_80 and sim:sm_90, and each without some of %s", target, sm.FeatureNames())
	}
	return openSimulator(sim.Options{Major: cc / 10, Minor: cc % 10}, t)
}

// ErrName is wrapped by the error for a name that no GPU can have.
var ErrName = errors.New("want cuda:0 or another number, or sim:sm_70, sim:sm_80 or sim:sm_90, each also without some of " + sm.FeatureNames())

// varySuffix behind a device's name calls Vary.
const varySuffix = "/vary"

// OpenNamed opens the GPU cuda:N or the simulated GPU sim:TARGET. Suffixes disable features, as in
// cuda:0/nodnn; a last suffix /vary calls Vary. The error wraps ErrName, or is that of Open or OpenSim.
func OpenNamed(name string) (*Backend, error) {
	plain, vary := strings.CutSuffix(name, varySuffix)
	b, err := openNamed(plain)
	if err == nil && vary {
		b.Vary(true)
		b.name += varySuffix
	}
	return b, err
}

func openNamed(name string) (*Backend, error) {
	kind, which, _ := strings.Cut(name, ":")
	number, without, less := strings.Cut(which, "/")
	n, err := strconv.Atoi(number)
	t, known := sm.DeviceNamed("sm_90/" + without)
	switch {
	case kind == "sim":
		return OpenSim(which)
	case kind != "cuda" || err != nil || less && !known:
		return nil, ErrName
	}
	return openWithout(n, t)
}

// OpenSimulator makes a simulated GPU with options, such as less memory or faults.
func OpenSimulator(opt sim.Options) (*Backend, error) { return openSimulator(opt, sm.Target{}) }

func openSimulator(opt sim.Options, less sm.Target) (*Backend, error) {
	d, err := sim.Open(opt)
	if err != nil {
		return nil, err
	}
	b := &Backend{name: d.String(), open: blasOf(d), less: less}
	return b, b.start(func() (cuda.Driver, error) { return d, nil })
}

// hold issues a step's operations. A simulated device checks that they access only
// the memory that the step declares.
func (b *Backend) hold(touches *sim.Footprint, issue func() error) error {
	if b.held == nil {
		return issue()
	}
	b.held.Limit(touches)
	defer b.held.Limit(nil)
	return issue()
}

// blasOf opens the products that belong to a driver.
func blasOf(d cuda.Driver) func() (cuda.Blas, error) {
	if s, ok := d.(*sim.Device); ok {
		return s.OpenBlas
	}
	return cuda.OpenBlas
}

// openDnn opens the cuDNN that belongs to a driver, if there is one: without it convolutions and
// attention run as products and kernels. A cuDNN that does not work is an error.
func (b *Backend) openDnn() error {
	for _, feature := range sm.Features {
		if b.less.Lacks(feature.Name) {
			b.Without(feature.Name)
		}
	}
	if b.target.Lacks(sm.NoDnn) {
		return nil
	}
	open := cuda.OpenDnn
	if s, ok := b.d.(*sim.Device); ok {
		open = s.OpenDnn
	}
	dnn, err := open()
	if errors.Is(err, cuda.ErrUnavailable) {
		b.Without(sm.NoDnn)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cuDNN: %w; without it: %s/%s", err, b.name, sm.NoDnn)
	}
	b.dnn = dnn
	return nil
}

// start opens the device on the goroutine that makes all calls.
func (b *Backend) start(open func() (cuda.Driver, error)) error {
	b.calls, b.gone, b.linked, b.plans = make(chan func()), make(chan struct{}), map[*Exec]bool{}, map[string]*sharedPlan{}
	go func() {
		for {
			select {
			case f := <-b.calls:
				f()
			case <-b.gone:
				return
			}
		}
	}()
	err := b.call(func() error {
		d, err := open()
		if err != nil {
			return err
		}
		b.d = d
		b.held, _ = d.(*sim.Device)
		if err := d.Bind(); err != nil {
			return err
		}
		i := d.Info()
		var ok bool
		if b.target, ok = sm.DeviceNamed(fmt.Sprintf("sm_%d%d", i.Major, i.Minor)); !ok {
			return fmt.Errorf("%s: no kernels for a GPU of compute capability %d.%d", b.name, i.Major, i.Minor)
		}
		return errors.Join(b.openDnn(), b.needStreams(1))
	})
	if err != nil {
		close(b.gone)
	}
	return err
}

// needStreams makes streams up to n.
func (b *Backend) needStreams(n int) error {
	for len(b.streams) < n {
		s, err := b.d.NewStream()
		if err != nil {
			return err
		}
		b.streams = append(b.streams, workStream{stream: s})
	}
	return nil
}

// syncAll waits for all work, also for copies of inputs that no step waits for because it failed.
func (b *Backend) syncAll() error {
	err := b.d.Synchronize(b.stream())
	if b.copier != 0 {
		err = errors.Join(err, b.d.Synchronize(b.copier))
	}
	return err
}

// stream is the stream on which every call begins and ends.
func (b *Backend) stream() cuda.Stream { return b.streams[0].stream }

// call runs f on the bound goroutine and waits for it.
func (b *Backend) call(f func() error) error {
	done := make(chan error, 1)
	select {
	case b.calls <- func() { done <- f() }:
		return <-done
	case <-b.gone:
		return fmt.Errorf("%s: %w", b.name, ErrClosed)
	}
}

// ErrClosed is wrapped by the error of every call after Close.
var ErrClosed = errors.New("the backend is closed")

// release runs f, which frees memory, unless the backend is closed or the context is lost.
func (b *Backend) release(f func() error) error {
	err := b.call(func() error {
		if b.lost != nil {
			return nil
		}
		return f()
	})
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// ErrLost is wrapped by the error of every call after a call that broke the device's context.
var ErrLost = errors.New("the device failed before and its context is lost: start the process again")

// do runs f on the bound goroutine, ordered after the present work of the caller's
// stream and before its later work. An error that breaks the context is returned
// once; later calls return ErrLost.
func (b *Backend) do(f func() error) error {
	return b.call(func() error {
		if b.lost != nil {
			return b.lost
		}
		end := b.watched()
		err := b.enter()
		if err == nil {
			err = errors.Join(f(), b.leave())
		}
		if fault := end(b.settled); fault != nil {
			b.lost = fault // what the device holds is of no use, and its streams may wait for each other
			return fault
		}
		if errors.Is(err, cuda.ErrInternal) {
			if _, _, lost := b.d.MemInfo(); lost != nil { // the library does not say whether the context is lost
				err = fmt.Errorf("%w: %w", lost, err)
			}
		}
		if lost(err) {
			b.lost = fmt.Errorf("%s: %w", b.name, ErrLost)
			return fmt.Errorf("%w; the context is lost: start the process again", err)
		}
		return err
	})
}

// lost reports whether err says that the context is lost.
func lost(err error) bool {
	var e *cuda.Error
	return errors.As(err, &e) && e.Sticky()
}

// watched begins to watch a call, where the device is a rank of a world.
func (b *Backend) watched() (end func(done bool) error) {
	b.settled = false
	if b.watch == nil {
		return func(bool) error { return nil }
	}
	return b.watch()
}

// Name implements runtime.Backend: cuda:0, sim:sm_90.
func (b *Backend) Name() string { return b.name }

// Target implements runtime.Backend.
func (b *Backend) Target() lower.Target { return b.target }

// Info describes the device.
func (b *Backend) Info() cuda.Info { return b.d.Info() }

// Syncs counts how often the host waited for the device.
func (b *Backend) Syncs() int64 { return b.d.Syncs() }

// Eager makes steps issue their launches one by one instead of as a graph. This is slower, but an
// error names the launch that caused it.
func (b *Backend) Eager(on bool) { _ = b.call(func() error { b.eager = on; return nil }) }

// Close implements runtime.Backend. Close Stores and Execs first: closing them later has no effect.
func (b *Backend) Close() error {
	var err error
	b.closed.Do(func() {
		err = b.call(b.shut)
		close(b.gone)
	})
	return err
}

func (b *Backend) shut() error {
	if b.lost != nil {
		return nil // the error was returned already; nothing of the context can be freed
	}
	err := b.syncAll()
	if b.kept != nil {
		err = errors.Join(err, b.d.HostFree(b.kept))
	}
	if b.copier != 0 {
		err = errors.Join(err, b.d.FreeStream(b.copier))
	}
	if b.comm != nil {
		err = errors.Join(err, b.comm.Abort()) // its world is not closed: other ranks are not waited for
	}
	if b.blas != nil {
		err = errors.Join(err, b.blas.Close())
	}
	if b.dnn != nil {
		err = errors.Join(err, b.dnn.Close())
	}
	for _, l := range b.streams {
		if l.space != 0 {
			err = errors.Join(err, b.d.Free(l.space))
		}
		err = errors.Join(err, b.d.FreeStream(l.stream))
	}
	if b.user != 0 {
		err = errors.Join(err, b.d.FreeEvent(b.fork), b.d.FreeEvent(b.join))
	}
	if b.foreign {
		return err
	}
	return errors.Join(err, b.d.Close())
}
