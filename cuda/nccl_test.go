//go:build linux && amd64 && !nocuda

package cuda

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// fakeNccl builds the NCCL that writes down its calls. log returns the calls since the last log.
func fakeNccl(t *testing.T) (so string, log func() string) {
	t.Helper()
	src, err := os.ReadFile("testdata/nccl.c")
	must(t, err)
	so = compileC(t, "nccl", string(src))
	all := recorderSymbol(t, so, "nccl_log")
	seen := 0
	return so, func() string {
		text := cString(all())
		defer func() { seen = len(text) }()
		return strings.TrimSuffix(text[seen:], "\n")
	}
}

// TestNcclCalls follows a communicator from its id to its end, as NCCL sees it. Calls that are under way
// are waited for.
func TestNcclCalls(t *testing.T) {
	so, log := fakeNccl(t)
	n, err := openNccl(openLibrary(libNCCL, []string{so}))
	must(t, err)
	if n.Version() != 22203 {
		t.Errorf("version %d", n.Version())
	}
	id, err := n.NewID()
	must(t, err)
	id[127] = 'z'
	c, err := n.Join(id, 4, 3)
	must(t, err)
	expectLog(t, "join", log(), "init 3 of 4 id iz size 0 magic cafebeef version 21800 blocking 0 defaults 11111")
	for pending := 0; ; pending++ {
		if err := c.State(); err == nil {
			if pending != 2 {
				t.Errorf("ready after %d looks", pending)
			}
			break
		} else if !errors.Is(err, ErrPending) {
			t.Fatal(err)
		}
	}
	must(t, c.Group(func() error {
		return errors.Join(c.AllReduce(0x100, 0x200, 1<<33, NcclFloat32, NcclSum, 0x51), c.AllGather(0x300, 0x400, 5, NcclUint8, 0x51),
			c.Send(0x500, 6, NcclBfloat, 2, 0x51), c.Recv(0x600, 7, NcclFloat16, 1, 0x51))
	}))
	expectLog(t, "group", log(), "group", "reduce 0x100 0x200 8589934592 type 7 op 0 0xc0 0x51", "gather 0x300 0x400 5 type 1 0xc0 0x51",
		"send 0x500 6 type 9 to 2 0xc0 0x51", "recv 0x600 7 type 6 from 1 0xc0 0x51", "end")
	if err := c.State(); err != nil {
		t.Errorf("the group is not waited for: %v", err)
	}
	must(t, c.AllReduce(0x100, 0x100, 1, NcclUint8, NcclMax, 0x51))
	must(t, c.Close())
	expectLog(t, "close", log(), "reduce 0x100 0x100 1 type 1 op 2 0xc0 0x51", "finalize 0xc0", "destroy 0xc0")
}

// TestNcclErrors: errors have NCCL's words, and an aborted communicator is not called again.
func TestNcclErrors(t *testing.T) {
	so, log := fakeNccl(t)
	lib := openLibrary(libNCCL, []string{so})
	n, err := openNccl(lib)
	must(t, err)
	c, err := n.Join(NcclID{}, 2, 0)
	must(t, err)
	log()
	if err := c.Send(0x500, 6, NcclUint8, 9, 0x51); err == nil || err.Error() != "nccl: ncclSend: invalid argument (4)" {
		t.Errorf("%v", err)
	}
	recorderSymbol(t, so, "nccl_break")()
	if err := c.State(); err == nil || err.Error() != "nccl: an NCCL operation: remote process exited or there was a network error (6): NET/IB: got completion from peer with status 12" {
		t.Errorf("%v", err)
	}
	log()
	must(t, errors.Join(c.Abort(), c.Abort()))
	if err := c.AllReduce(1, 2, 3, NcclFloat32, NcclSum, 4); err == nil || !strings.Contains(err.Error(), "the communicator was aborted") {
		t.Errorf("%v", err)
	}
	must(t, c.Close())
	expectLog(t, "abort", log(), "abort 0xc0")
	recorderSymbol(t, so, "nccl_age")()
	if _, err := openNccl(lib); !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), "nccl.so is NCCL 2.10.5: install 2.18.0 or later") {
		t.Errorf("%v", err)
	}
	if _, err := openNccl(&library{}); !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), "install libnccl2 or set AMPC_LIBNCCL") {
		t.Errorf("%v", err)
	}
}
