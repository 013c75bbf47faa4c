//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// ncclLib is NCCL. It implements Nccl.
type ncclLib struct{ lib *library }

// OpenNccl opens NCCL. The error wraps ErrUnavailable if it is missing or too old.
func OpenNccl() (Nccl, error) {
	w := realPlaces()
	n, err := openNccl(w.open(libNCCL, newestCUDA(w.open(libDriver, 0))))
	if err != nil {
		return nil, err
	}
	return n, nil
}

func openNccl(lib *library) (*ncclLib, error) {
	if !lib.loaded() {
		return nil, fmt.Errorf("%w: no NCCL; tried %s; install libnccl2 or set AMPC_LIBNCCL", ErrUnavailable, summary(lib.tried))
	}
	n := &ncclLib{lib}
	if n.Version() < ncclOldest {
		return nil, fmt.Errorf("%w: %s is NCCL %s: install %s or later", ErrUnavailable, lib.path, lib.version(), ncclVersion(ncclOldest))
	}
	return n, nil
}

// Version implements Nccl.
func (n *ncclLib) Version() int { return n.lib.number() }

// NewID implements Nccl.
func (n *ncclLib) NewID() (NcclID, error) {
	var id NcclID
	err := n.lib.status("ncclGetUniqueId", uintptr(unsafe.Pointer(&id[0])))
	return id, err
}

// ncclConfig is the ncclConfig_t of version 2.18. Later versions take it as it is and give later
// fields their defaults. It is little-endian as both processors are.
func ncclConfig() *[48]byte {
	const magic, blocking = 0xcafebeef, 0
	undefined := uint32(1 << 31) // NCCL_CONFIG_UNDEF_INT
	var c [48]byte
	le := binary.LittleEndian
	le.PutUint64(c[0:], uint64(len(c)))
	le.PutUint32(c[8:], magic)
	le.PutUint32(c[12:], ncclOldest)
	le.PutUint32(c[16:], blocking)
	for at := 20; at < 32; at += 4 { // cgaClusterSize, minCTAs, maxCTAs
		le.PutUint32(c[at:], undefined)
	}
	le.PutUint32(c[40:], undefined) // splitShare, behind the pointer netName
	return &c
}

// Join implements Nccl.
func (n *ncclLib) Join(id NcclID, ranks, rank int) (Comm, error) {
	c := &ncclComm{lib: n.lib, handle: new(uintptr)}
	config := ncclConfig()
	before := []uintptr{uintptr(unsafe.Pointer(c.handle)), uintptr(ranks)}
	after := []uintptr{uintptr(rank), uintptr(unsafe.Pointer(config))}
	var pin runtime.Pinner // NCCL keeps the address of the handle until the communicator is ready
	pin.Pin(c.handle)
	pin.Pin(config)
	c.pin = &pin
	code := int32(n.lib.callWithID("ncclCommInitRankConfig", before, &id, after))
	if code != 0 && code != ncclInProgress {
		return nil, n.lib.failure("ncclCommInitRankConfig", int(code))
	}
	return c, nil
}

// Results of NCCL that are no errors of a call.
const ncclInProgress = 7

// ncclComm implements Comm.
type ncclComm struct {
	lib     *library
	handle  *uintptr
	pin     *runtime.Pinner
	grouped bool
	gone    atomic.Bool
}

// pollEvery is the interval at which a call that does not block is asked for.
const pollEvery = 200 * time.Microsecond

// State implements Comm.
func (c *ncclComm) State() error {
	if c.gone.Load() {
		return &Error{Lib: libNCCL, Call: "ncclCommAbort", Code: math.MaxInt16, Name: "the communicator was aborted"}
	}
	var state int32
	if err := c.lib.status("ncclCommGetAsyncError", *c.handle, uintptr(unsafe.Pointer(&state))); err != nil {
		return err
	}
	switch state {
	case 0:
		return nil
	case ncclInProgress:
		return ErrPending
	}
	return c.explained(c.lib.failure("an NCCL operation", int(state)))
}

// explained adds NCCL's last message to an error.
func (c *ncclComm) explained(err error) error {
	var ce *Error
	if errors.As(err, &ce) && !c.gone.Load() {
		ce.Text = cString(c.lib.call("ncclGetLastError", *c.handle))
	}
	return err
}

// settle waits until a call that was begun has ended.
func (c *ncclComm) settle() error {
	for {
		err := c.State()
		if !errors.Is(err, ErrPending) {
			return err
		}
		time.Sleep(pollEvery)
	}
}

// issue calls a function of NCCL. Outside a group it waits until the call is issued.
//
//go:uintptrescapes
func (c *ncclComm) issue(name string, args ...uintptr) error {
	if c.gone.Load() {
		return c.State()
	}
	code := int32(c.lib.call(name, args...))
	switch {
	case code == ncclInProgress && c.grouped:
		return nil
	case code == ncclInProgress:
		return c.settle()
	case code != 0:
		return c.explained(c.lib.failure(name, int(code)))
	}
	return nil
}

// Group implements Comm.
func (c *ncclComm) Group(f func() error) error {
	if err := c.issue("ncclGroupStart"); err != nil {
		return err
	}
	c.grouped = true
	err := f()
	c.grouped = false
	return errors.Join(err, c.issue("ncclGroupEnd"))
}

// AllReduce implements Comm.
func (c *ncclComm) AllReduce(src, dst Ptr, count int64, t NcclType, op NcclOp, s Stream) error {
	return c.issue("ncclAllReduce", uintptr(src), uintptr(dst), uintptr(count), uintptr(t), uintptr(op), *c.handle, uintptr(s))
}

// AllGather implements Comm.
func (c *ncclComm) AllGather(src, dst Ptr, count int64, t NcclType, s Stream) error {
	return c.issue("ncclAllGather", uintptr(src), uintptr(dst), uintptr(count), uintptr(t), *c.handle, uintptr(s))
}

// Send implements Comm.
func (c *ncclComm) Send(src Ptr, count int64, t NcclType, peer int, s Stream) error {
	return c.issue("ncclSend", uintptr(src), uintptr(count), uintptr(t), uintptr(peer), *c.handle, uintptr(s))
}

// Recv implements Comm.
func (c *ncclComm) Recv(dst Ptr, count int64, t NcclType, peer int, s Stream) error {
	return c.issue("ncclRecv", uintptr(dst), uintptr(count), uintptr(t), uintptr(peer), *c.handle, uintptr(s))
}

// Abort implements Comm.
func (c *ncclComm) Abort() error {
	if c.gone.Swap(true) {
		return nil
	}
	return c.lib.status("ncclCommAbort", *c.handle)
}

// Close implements Comm.
func (c *ncclComm) Close() error {
	defer c.pin.Unpin()
	if c.gone.Load() {
		return nil
	}
	if err := c.issue("ncclCommFinalize", *c.handle); err != nil {
		return errors.Join(err, c.Abort())
	}
	c.gone.Store(true)
	return c.lib.status("ncclCommDestroy", *c.handle)
}
