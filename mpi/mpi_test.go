//go:build linux && (amd64 || arm64) && !nompi

package mpi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ampc/ir"
	"ampc/mpi"
	"ampc/world"
)

// flavours start ranks of this test program; those that are not installed are skipped.
var flavours = []struct {
	name  string
	start []string
}{
	{"openmpi", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"}},
	{"mpich", []string{"mpiexec.mpich", "-n"}},
}

// TestMain runs a part of a test on a rank where a test has started this program so.
func TestMain(m *testing.M) {
	part := parts[os.Getenv("AMPC_TEST_PART")]
	if part == nil {
		flag.Parse()
		if err := flag.Set("test.parallel", "6"); err != nil { // tests of lost ranks wait for timeouts
			panic(err)
		}
		os.Exit(m.Run())
	}
	timeout := 8 * time.Second
	if os.Getenv("AMPC_TEST_PART") == "late" {
		timeout = 4 * time.Second
	}
	procs := runtime.GOMAXPROCS(0)
	w, err := mpi.Open(mpi.Options{Timeout: timeout})
	if now := runtime.GOMAXPROCS(0); now != procs {
		err = fmt.Errorf("Open has changed GOMAXPROCS from %d to %d", procs, now)
	}
	if err == nil {
		err = part(w)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// ranks runs a part on so many ranks and returns what they printed.
func ranks(t *testing.T, start []string, n int, part string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath(start[0]); err != nil {
		t.Skipf("%s is not installed", start[0])
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, start[0], append(append([]string{}, start[1:]...), fmt.Sprint(n), exe)...)
	c.Env = append(os.Environ(), "AMPC_TEST_PART="+part, "GOMAXPROCS=1")
	var out bytes.Buffer
	c.Stdout, c.Stderr, c.WaitDelay = &out, &out, time.Second
	err = c.Run()
	if ctx.Err() != nil {
		t.Fatalf("the ranks have not ended within a minute\n%s", out.String())
	}
	return out.String(), err
}

var parts = map[string]func(w world.World) error{
	"reduce": reduce,
	"late":   late,
	"killed": func(w world.World) error { return endless(w, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }) },
	"hangs":  func(w world.World) error { return endless(w, func() { time.Sleep(time.Hour) }) },
	"stopped": func(w world.World) error {
		return endless(w, func() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) })
	},
}

// late is a rank with work of its own behind the last message, longer than the timeout.
func late(w world.World) error {
	m := &world.Message{Name: "last", DType: ir.F32, Wire: ir.F32, In: [][]byte{make([]byte, 64)}}
	m.Out = m.In
	if err := exchange(w, m); err != nil {
		return err
	}
	if w.Rank() == 0 {
		time.Sleep(6 * time.Second)
	}
	return w.Close()
}

// endless sends messages; rank 1 comes to an end before one of them.
func endless(w world.World, end func()) error {
	for i := range 1000 {
		if w.Rank() == 1 && i == 3 {
			end()
		}
		m := &world.Message{Name: fmt.Sprint("m", i), DType: ir.F32, Wire: ir.F32, In: [][]byte{make([]byte, 64)}}
		m.Out = m.In
		if err := exchange(w, m); err != nil {
			return err
		}
	}
	return w.Close()
}

func exchange(w world.World, m *world.Message) error {
	if err := w.Start(m); err != nil {
		return err
	}
	return w.Wait(context.Background(), m)
}

// reduce compares messages of every kind with what the ranks of one process make of them.
func reduce(w world.World) error {
	for _, n := range []int{0, 1, 3, 1000, 70001} { // the last is sent in place
		for _, kind := range []world.Message{
			{DType: ir.F32, Wire: ir.F32}, {DType: ir.F32, Wire: ir.F16, Shift: 2}, {DType: ir.F32, Wire: ir.BF16},
			{DType: ir.F64, Wire: ir.F32}, {DType: ir.I32, Wire: ir.F32}, {DType: ir.Bool, Wire: ir.F32, Op: world.Max}, {DType: ir.F32, Wire: ir.F32, Op: world.Mean},
		} {
			m := kind
			m.Name = fmt.Sprintf("%d of %s as %s", n, kind.DType, kind.Wire)
			m.In = [][]byte{operand(w.Rank(), n, kind.DType), operand(w.Rank()+7, 5, kind.DType)}
			want := local(w.Size(), kind, n)
			for _, m.Out = range [][][]byte{{make([]byte, len(m.In[0])), make([]byte, len(m.In[1]))}, m.In} {
				if err := exchange(w, &m); err != nil {
					return err
				}
				if !bytes.Equal(m.Out[0], want[0]) || !bytes.Equal(m.Out[1], want[1]) {
					return fmt.Errorf("rank %d: %s: other bits than the ranks of one process have", w.Rank(), m.Name)
				}
			}
		}
	}
	if err := errors.Join(gather(w), scatter(w)); err != nil {
		return err
	}
	if w.Rank() == 0 {
		fmt.Println("equal on", w.Size(), "ranks of", w.Engine())
	}
	return w.Close()
}

// gather compares what is gathered with the operands of the ranks, as they lie.
func gather(w world.World) error {
	for _, n := range []int{0, 1, 999, 200000} {
		for _, d := range []ir.DType{ir.F32, ir.I32, ir.Bool} {
			m := &world.Message{Name: fmt.Sprintf("%d of %s", n, d), Op: world.Gather, DType: d, Wire: ir.F32, In: [][]byte{operand(w.Rank(), n, d)}}
			var want []byte
			for r := range w.Size() {
				want = append(want, operand(r, n, d)...)
			}
			want = want[:max(len(want)-int(d.Size())*(w.Size()-1), 0)] // elements that fill up the last rank's tensor
			m.Out = [][]byte{make([]byte, len(want))}
			if err := exchange(w, m); err != nil {
				return err
			}
			if !bytes.Equal(m.Out[0], want) {
				return fmt.Errorf("rank %d: %s: other bits are gathered than were sent", w.Rank(), m.Name)
			}
		}
	}
	return nil
}

// scatter compares what a reduce-scatter leaves on this rank with its part of an all-reduce,
// and gathers several tensors in one message.
func scatter(w world.World) error {
	for _, kind := range []world.Message{{DType: ir.F32, Wire: ir.F32}, {DType: ir.F32, Wire: ir.F16, Shift: 2}, {DType: ir.F64, Wire: ir.F32}, {DType: ir.F32, Wire: ir.BF16, Op: world.Mean}} {
		whole, parts := kind, kind
		gathered := world.Message{Name: "gathered", Op: world.Gather, DType: kind.DType, Wire: ir.F32}
		for i, n := range []int{1, 250, 70000} {
			in := operand(w.Rank()+i, n*w.Size(), kind.DType)
			whole.In, whole.Out = append(whole.In, in), append(whole.Out, make([]byte, len(in)))
			parts.In, parts.Out = append(parts.In, in), append(parts.Out, make([]byte, len(in)/w.Size()))
			gathered.Out = append(gathered.Out, make([]byte, len(in)))
		}
		whole.Name, parts.Name, parts.Scatter, gathered.In = "whole", "parts", true, parts.Out
		if err := errors.Join(exchange(w, &whole), exchange(w, &parts), exchange(w, &gathered)); err != nil {
			return err
		}
		for i := range whole.Out {
			if !bytes.Equal(whole.Out[i], gathered.Out[i]) {
				return fmt.Errorf("rank %d: tensor %d of %s as %s: scattered and gathered bits are not those of an all-reduce", w.Rank(), i, kind.DType, kind.Wire)
			}
		}
	}
	return nil
}

func operand(rank, n int, d ir.DType) []byte {
	out := make([]byte, n*int(d.Size()))
	for i := range n {
		x := math.Sin(float64(i*13+rank*5)) * 100
		switch d {
		case ir.F32:
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(x)))
		case ir.F64:
			binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(x))
		case ir.I32:
			binary.LittleEndian.PutUint32(out[4*i:], uint32(int32(x)))
		case ir.Bool:
			out[i] = byte((i + rank) % 5 / 4)
		}
	}
	return out
}

func local(size int, kind world.Message, n int) [][]byte {
	messages := make([]*world.Message, size)
	worlds := world.Local(size, world.LocalOptions{})
	for r, w := range worlds {
		m := kind
		m.In = [][]byte{operand(r, n, kind.DType), operand(r+7, 5, kind.DType)}
		m.Out = m.In
		messages[r] = &m
		if err := w.Start(&m); err != nil {
			panic(err)
		}
	}
	if err := worlds[0].Wait(context.Background(), messages[0]); err != nil {
		panic(err)
	}
	return messages[0].Out
}

// TestCloseWaitsForWork closes ranks while one of them, which is there, has not ended.
func TestCloseWaitsForWork(t *testing.T) {
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if out, err := ranks(t, f.start, 3, "late"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestAllReduce(t *testing.T) {
	for _, f := range flavours {
		for _, n := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%s/%d", f.name, n), func(t *testing.T) {
				out, err := ranks(t, f.start, n, "reduce")
				if err != nil || !strings.Contains(out, fmt.Sprintf("equal on %d ranks of MPI", n)) {
					t.Errorf("%v\n%s", err, out)
				}
				t.Log(out)
			})
		}
	}
}

// A rank that is killed, hangs or is stopped ends the others, which say so in a line.
func TestRankIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for timeouts")
	}
	t.Parallel()
	for _, f := range flavours {
		for part, want := range map[string]string{"killed": "", "hangs": "rank 1 has not sent it", "stopped": "rank 1 has not been heard of"} {
			t.Run(f.name+"/"+part, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				out, err := ranks(t, f.start, 3, part)
				if err == nil || !strings.Contains(out, want) {
					t.Errorf("%v: the output lacks %q\n%s", err, want, out)
				}
				t.Logf("after %v:\n%s", time.Since(start).Round(time.Second/10), out)
			})
		}
	}
}

// Under the launcher of one library and with the other library, every rank ends with the
// line that says so.
func TestLauncherOfAnotherLibrary(t *testing.T) {
	for _, c := range []struct{ flavour, library string }{{"openmpi", "libmpich.so.12"}, {"mpich", "libmpi.so.40"}} {
		t.Run(c.flavour, func(t *testing.T) {
			for _, f := range flavours {
				if f.name != c.flavour {
					continue
				}
				t.Setenv("AMPC_MPI", c.library)
				out, err := ranks(t, f.start, 2, "reduce")
				if strings.Contains(out, "not available") {
					t.Skipf("%s is not installed", c.library)
				}
				if err == nil || !strings.Contains(out, "has started 2 ranks, and") || !strings.Contains(out, "sees 1: use the launcher of this library") {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
}
