package onnx_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"ampc"
	"ampc/onnx"
)

// largeModel writes a chain of products over vectors of side numbers, layers matrices
// long; with away the matrices lie in a file beside the model, and are zeros.
func largeModel(tb testing.TB, path string, side, layers int, away bool) (size int64) {
	tb.Helper()
	bytes := int64(side) * int64(side) * 4
	matrix := func(w io.Writer, layer int) error {
		row := make([]byte, 4*side)
		for i := range side {
			for k := range side {
				binary.LittleEndian.PutUint32(row[4*k:], math.Float32bits(float32((i*31+k*17+layer)%64-32)/float32(64*side)))
			}
			if _, err := w.Write(row); err != nil {
				return err
			}
		}
		return nil
	}
	create := func(path string, write func(w *bufio.Writer) error) {
		f, err := os.Create(path)
		if err != nil {
			tb.Fatal(err)
		}
		defer f.Close()
		w := bufio.NewWriterSize(f, 1<<20)
		if err := errors.Join(write(w), w.Flush()); err != nil {
			tb.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			tb.Fatal(err)
		}
		size += st.Size()
	}
	if away {
		create(path+".data", func(*bufio.Writer) error { return nil })
		size = int64(layers) * bytes
		if err := os.Truncate(path+".data", size); err != nil { // zeros, which take no disk
			tb.Fatal(err)
		}
	}
	var nodes msg
	name := func(i int) string {
		return []string{fmt.Sprintf("h%d", i), "x", "y"}[map[int]int{0: 1, layers: 2}[i]]
	}
	var heads []msg // of initializers, whose elements follow
	total := int64(0)
	for i := range layers {
		nodes = nodes.raw(1, nodeOf("MatMul", []string{name(i), fmt.Sprintf("w%d", i)}, []string{name(i + 1)}))
		t := msg(nil).num(1, int64(side)).num(1, int64(side)).num(2, 1).str(8, fmt.Sprintf("w%d", i))
		var length int64
		if away {
			for k, v := range map[string]string{"location": filepath.Base(path) + ".data", "offset": fmt.Sprint(int64(i) * bytes), "length": fmt.Sprint(bytes)} {
				t = t.raw(13, msg(nil).str(1, k).str(2, v))
			}
			t = t.num(14, 1)
			length = int64(len(t))
		} else {
			t = protowire.AppendVarint(protowire.AppendTag(t, 9, protowire.BytesType), uint64(bytes))
			length = int64(len(t)) + bytes
		}
		head := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), uint64(length))
		heads = append(heads, append(head, t...))
		total += int64(len(head)) + length
	}
	nodes = nodes.raw(11, infoOf("x", 1, 1, side)).raw(12, infoOf("y", 1, 1, side))
	create(path, func(w *bufio.Writer) error {
		top := msg(nil).num(1, 8).raw(8, msg(nil).num(2, 17))
		top = protowire.AppendVarint(protowire.AppendTag(top, 7, protowire.BytesType), uint64(int64(len(nodes))+total))
		w.Write(top)
		w.Write(nodes)
		for i, h := range heads {
			w.Write(h)
			if !away {
				if err := matrix(w, i); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return size
}

// anonymous samples the anonymous memory of the process until stop, which returns the most.
func anonymous() (stop func() int64) {
	read := func() int64 {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return 0
		}
		for line := range strings.Lines(string(b)) {
			var kb int64
			if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); n == 1 {
				return kb << 10
			}
		}
		return 0
	}
	runtime.GC()
	before, most := read(), int64(0)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			most = max(most, read()-before)
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(done); <-ended; return most }
}

// copied copies files and says how long it took.
func copied(tb testing.TB, to string, paths ...string) time.Duration {
	tb.Helper()
	began := time.Now()
	for _, path := range paths {
		in, err := os.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		out, err := os.Create(filepath.Join(to, "copy"))
		if err != nil {
			tb.Fatal(err)
		}
		_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{in}) // by reading and writing, as all programs can
		if err == nil {
			err = out.Sync()
		}
		if err != nil {
			tb.Fatal(err)
		}
		in.Close()
		out.Close()
		os.Remove(out.Name())
	}
	return time.Since(began)
}

// BenchmarkConvertLarge converts 500 MB, and copies them in turn.
func BenchmarkConvertLarge(b *testing.B) {
	dir := b.TempDir()
	in, out := filepath.Join(dir, "in.onnx"), filepath.Join(dir, "out.onnx")
	size := largeModel(b, in, 4096, 8, false)
	var convert, copying time.Duration
	var memory int64
	for b.Loop() {
		copying += copied(b, dir, in)
		stop := anonymous()
		began := time.Now()
		if _, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16()}); err != nil {
			b.Fatal(err)
		}
		convert += time.Since(began)
		memory = max(memory, stop())
	}
	b.ReportMetric(float64(size)*float64(b.N)/convert.Seconds()/1e6, "MB/s")
	b.ReportMetric(float64(copying)/float64(convert), "of-copying")
	b.ReportMetric(float64(memory)/float64(size), "memory/file")
}

var huge = flag.Bool("huge", false, "convert 3 GB of weights in a file of their own")

// TestConvertHuge: 3 GB with external data.
func TestConvertHuge(t *testing.T) {
	if !*huge {
		t.Skip("takes 2 GB of disk and a minute: go test ./onnx -run ConvertHuge -huge")
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.onnx"), filepath.Join(dir, "out.onnx")
	size := largeModel(t, in, 8192, 12, true)
	stop, began := anonymous(), time.Now()
	r, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes in %v, anonymous memory %.2f of them: %d of %d nodes, %d weights, %d bytes in %s", size, time.Since(began).Round(time.Millisecond), float64(stop())/float64(size), r.Low, r.Nodes, r.Weights, r.Out, r.External)
	if size < 3<<30 || r.Weights != 12 || r.External != out+".data" || r.Out > size/2+1<<20 {
		t.Errorf("%+v", r)
	}
}

// BenchmarkImport imports graphs of 3,000 nodes: what model and graph hold, and what is
// allocated on the way, as shares of the protobuf's bytes without weights.
func BenchmarkImport(b *testing.B) {
	path := filepath.Join(b.TempDir(), "m.onnx")
	size := longModel(b, path, 3000)
	var before, after, end runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		m, err := onnx.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		x, err := onnx.Import(m, onnx.Options{})
		if err != nil {
			b.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		runtime.GC()
		runtime.ReadMemStats(&end)
		runtime.KeepAlive(x)
		m.Close()
	}
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(size), "allocated/protobuf")
	b.ReportMetric(float64(end.HeapAlloc-before.HeapAlloc)/float64(size), "held/protobuf")
}

// longModel is a chain of residual layers with nodes as exporters name them.
func longModel(tb testing.TB, path string, nodes int) int64 {
	tb.Helper()
	g := msg(nil).str(2, "long")
	x := "x"
	for i := 0; 6*i < nodes; i++ {
		scope := fmt.Sprintf("/model/layers.%d/mlp", i)
		out := func(s string) string { return scope + "/" + s + "_output_0" }
		g = g.raw(1, nodeOf("MatMul", []string{x, fmt.Sprintf("w%d", i%4)}, []string{out("MatMul")}).str(3, scope+"/MatMul")).
			raw(1, nodeOf("Add", []string{out("MatMul"), "b"}, []string{out("Add")}).str(3, scope+"/Add")).
			raw(1, nodeOf("Sigmoid", []string{out("Add")}, []string{out("Sigmoid")}).str(3, scope+"/Sigmoid")).
			raw(1, nodeOf("Mul", []string{out("Add"), out("Sigmoid")}, []string{out("Mul")}).str(3, scope+"/Mul")).
			raw(1, nodeOf("Softmax", []string{out("Mul")}, []string{out("Softmax")}).str(3, scope+"/Softmax")).
			raw(1, nodeOf("Add", []string{out("Softmax"), x}, []string{out("Add_1")}).str(3, scope+"/Add_1"))
		x = out("Add_1")
	}
	for i := range 4 {
		g = g.raw(5, tensorOf(fmt.Sprintf("w%d", i), []int64{16, 16}, ramp(256, 0, 0.1)...))
	}
	g = g.raw(5, tensorOf("b", []int64{16}, ramp(16, 0, 0.1)...)).raw(11, infoOf("x", 1, 8, 16)).raw(12, infoOf(x, 1, 8, 16))
	b := modelOf(g)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		tb.Fatal(err)
	}
	return int64(len(b)) - 4*4*256
}

// processor is the processor time of the process.
func processor(tb testing.TB) time.Duration {
	tb.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil || len(tasks) == 0 {
		tb.Skip("no processor time in /proc")
	}
	sum := int64(0)
	for _, path := range tasks {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		var ns int64
		fmt.Sscan(string(b), &ns)
		sum += ns
	}
	return time.Duration(sum)
}

// BenchmarkCompileLong compiles 3,000 nodes, from the file to the program.
func BenchmarkCompileLong(b *testing.B) {
	path := filepath.Join(b.TempDir(), "m.onnx")
	longModel(b, path, 3000)
	began := processor(b)
	defer func() { b.ReportMetric(float64((processor(b)-began).Microseconds())/1e3/float64(b.N), "cpu-ms") }()
	for b.Loop() {
		m, err := ampc.LoadONNX(path, ampc.ONNXOptions{})
		if err != nil {
			b.Fatal(err)
		}
		s, err := m.Infer(ampc.InferConfig{Policy: ampc.MixedBF16()}, m.Outputs()...)
		if err != nil {
			b.Fatal(err)
		}
		if s.Program() == nil {
			b.Fatal("no program")
		}
		m.Close()
	}
}
