package onnx_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"ampc/internal/golden"
	"ampc/internal/ort"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/runtime/cpu"
)

// peerCase is one node, and what onnxruntime 1.30 computes of it
// (testdata/onnxruntime.txt; where it is installed, -update writes them anew).
type peerCase struct {
	name   string
	domain string
	op     string
	attrs  []msg
	in     []*eval.Tensor // nil: absent
	outs   int            // results, 0 is 1
	blank  []int          // results without a name
	judged int            // results that are compared, 0: all
	fixed  []int          // operands that are initializers
	limit  limit
	opset  int64 // 0: 21
}

// file is the model of the case. types are those of the results, nil while they are unknown.
func (p *peerCase) file(types []ir.Type) []byte {
	opset := p.opset
	if opset == 0 {
		opset = 21
	}
	n := msg(nil)
	g := msg(nil).str(2, p.name)
	for i, x := range p.in {
		name := ""
		if x != nil {
			name = fmt.Sprintf("x%d", i)
			if slices.Contains(p.fixed, i) {
				g = g.raw(5, constantOf(name, x))
			} else {
				g = g.raw(11, infoOf(name, onnxType(x.Type.DType), dimsOf(x.Type)...))
			}
		}
		n = n.str(1, name)
	}
	for i, k := 0, 0; i < max(p.outs, 1); i++ {
		y := fmt.Sprintf("y%d", i)
		if slices.Contains(p.blank, i) {
			n = n.str(2, "")
			continue
		}
		n = n.str(2, y)
		if types == nil {
			g = g.raw(12, msg(nil).str(1, y))
		} else {
			g = g.raw(12, infoOf(y, onnxType(types[k].DType), dimsOf(types[k])...))
			k++
		}
	}
	n = n.str(4, p.op)
	for _, a := range p.attrs {
		n = n.raw(5, a)
	}
	m := msg(nil).num(1, 10).raw(7, g.raw(1, n.str(7, p.domain))).raw(8, msg(nil).num(2, opset))
	if p.domain != "" {
		m = m.raw(8, msg(nil).str(1, p.domain).num(2, 1))
	}
	return m
}

func dimsOf(t ir.Type) (d []any) {
	for _, n := range ir.Sizes(t.Shape) {
		d = append(d, int(n))
	}
	return d
}

func onnxType(d ir.DType) int64 {
	return map[ir.DType]int64{ir.F32: 1, ir.U8: 2, ir.I8: 3, ir.U16: 4, ir.I16: 5, ir.I32: 6, ir.I64: 7, ir.Bool: 9, ir.F16: 10, ir.F64: 11, ir.U32: 12, ir.U64: 13, ir.BF16: 16}[d]
}

// constantOf is a TensorProto of any dtype.
func constantOf(name string, x *eval.Tensor) msg {
	m := msg(nil).num(2, onnxType(x.Type.DType)).str(8, name).raw(9, x.Bytes())
	for _, d := range ir.Sizes(x.Type.Shape) {
		m = m.num(1, d)
	}
	return m
}

func floatAttr(name string, x float32) msg {
	return protowire.AppendFixed32(protowire.AppendTag(msg(nil).str(1, name).num(20, 1), 2, protowire.Fixed32Type), math.Float32bits(x))
}

func strAttr(name, x string) msg { return msg(nil).str(1, name).num(20, 3).str(4, x) }

func intsAttr(name string, x ...int64) msg {
	m := msg(nil).str(1, name).num(20, 7)
	for _, v := range x {
		m = m.num(8, v)
	}
	return m
}

func floatsAttr(name string, x ...float32) msg {
	m := msg(nil).str(1, name).num(20, 6)
	for _, v := range x {
		m = protowire.AppendFixed32(protowire.AppendTag(m, 7, protowire.Fixed32Type), math.Float32bits(v))
	}
	return m
}

// waves are numbers below 1 in magnitude that f16 holds.
func waves(step float64, dims ...ir.Dim) *eval.Tensor {
	x := eval.New(ir.T(ir.F32, dims...))
	for i := range x.F {
		x.F[i] = math.Round(256*math.Sin(step*float64(i+1))) / 256
	}
	return x
}

// bytesOf are integers over the whole range of d, or below top.
func bytesOf(d ir.DType, top int64, dims ...ir.Dim) *eval.Tensor {
	x := eval.New(ir.T(d, dims...))
	lo, hi := d.Limits()
	if top > 0 {
		lo, hi = 0, top-1
	}
	for i := range x.I {
		x.I[i] = lo + (int64(i)*7919+int64(i*i)*31)%(hi-lo+1)
	}
	return x
}

func scalarOf(d ir.DType, x float64) *eval.Tensor {
	if d.Float() {
		return eval.Floats(d, nil, x)
	}
	return eval.Ints(d, nil, int64(x))
}

// open imports the case for all its operands, whose elements may be read.
func (p *peerCase) open(t *testing.T, types []ir.Type) (*example, string, error) {
	t.Helper()
	path := save(t, p.file(types))
	o := onnx.Options{Values: map[string]*eval.Tensor{}}
	for i, x := range p.in {
		if x != nil && !slices.Contains(p.fixed, i) {
			o.Values[fmt.Sprintf("x%d", i)] = x
		}
	}
	m, err := importFile(t, path, o)
	if err != nil {
		return nil, path, err
	}
	e := &example{g: m.Graph, in: map[string]*eval.Tensor{}}
	for _, port := range m.Inputs {
		e.in[port.Value.Name] = o.Values[port.Name]
	}
	return e, path, nil
}

var peerNames = map[ir.DType]string{ir.F32: "float32", ir.F64: "float64", ir.F16: "float16", ir.I8: "int8", ir.U8: "uint8", ir.I16: "int16", ir.U16: "uint16", ir.I32: "int32", ir.U32: "uint32", ir.I64: "int64", ir.U64: "uint64", ir.Bool: "bool"}

// asked runs the case in onnxruntime.
func (p *peerCase) asked(r *ort.Runtime, path string) ([]*eval.Tensor, error) {
	in := map[string]ort.Tensor{}
	for i, x := range p.in {
		if x != nil && !slices.Contains(p.fixed, i) {
			in[fmt.Sprintf("x%d", i)] = ort.Tensor{Type: peerNames[x.Type.DType], Dims: append([]int64{}, ir.Sizes(x.Type.Shape)...), Data: x.Bytes()}
		}
	}
	got, err := r.Run(path, in)
	if err != nil {
		return nil, err
	}
	var out []*eval.Tensor
	for _, y := range got {
		for d, name := range peerNames {
			if name == y.Type {
				dims := make([]ir.Dim, len(y.Dims))
				for i, n := range y.Dims {
					dims[i] = ir.Dim(n)
				}
				x, err := eval.FromBytes(ir.T(d, dims...), y.Data)
				if err != nil {
					return nil, err
				}
				out = append(out, x)
			}
		}
	}
	return out, nil
}

// lines are results as testdata/onnxruntime.txt holds them.
func peerLines(name string, list []*eval.Tensor) string {
	var b strings.Builder
	for i, x := range list {
		fmt.Fprintf(&b, "%s %d %s", name, i, x.Type)
		for k := range x.Len() {
			fmt.Fprintf(&b, " %s", strconv.FormatFloat(x.At(k), 'g', 9, 64))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// peerResults reads testdata/onnxruntime.txt.
func peerResults(t *testing.T) map[string][]*eval.Tensor {
	t.Helper()
	raw, err := os.ReadFile("testdata/onnxruntime.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]*eval.Tensor{}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		d, shape, _ := strings.Cut(strings.TrimSuffix(f[2], "]"), "[")
		dtype, _ := ir.DTypeOf(d)
		var dims []ir.Dim
		for _, n := range strings.FieldsFunc(shape, func(r rune) bool { return r == ',' }) {
			k, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			dims = append(dims, ir.Dim(k))
		}
		x := eval.New(ir.T(dtype, dims...))
		for i, word := range f[3:] {
			v, err := strconv.ParseFloat(word, 64)
			if err != nil {
				t.Fatal(err)
			}
			if x.F != nil {
				x.F[i] = eval.Round(v, dtype)
			} else {
				x.I[i] = int64(v)
			}
		}
		out[f[0]] = append(out[f[0]], x)
	}
	return out
}

// Single nodes give what onnxruntime gives, in the evaluator and on the CPU.
func TestPeer(t *testing.T) {
	all := slices.Concat(quantCases(), contribCases(), trapCases())
	slices.SortFunc(all, func(a, b peerCase) int { return strings.Compare(a.name, b.name) })
	peer, absent := ort.Start()
	if absent != nil {
		t.Logf("the recorded numbers are not compared with onnxruntime's: %v", absent)
	} else {
		defer peer.Close()
	}
	b, err := cpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := map[string][]*eval.Tensor{}
	if !golden.Updating() {
		want = peerResults(t)
	}
	var page strings.Builder
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			e, _, err := p.open(t, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.evaluate()
			if err != nil {
				t.Fatal(err)
			}
			if peer != nil {
				var types []ir.Type
				for _, x := range got {
					types = append(types, x.Type)
				}
				_, path, err := p.open(t, types)
				if err != nil {
					t.Fatal(err)
				}
				theirs, err := p.asked(peer, path)
				if err != nil {
					t.Fatal(err)
				}
				if p.judged > 0 {
					theirs = theirs[:p.judged]
				}
				page.WriteString(peerLines(p.name, theirs))
				if golden.Updating() {
					want[p.name] = theirs
				} else if peerLines(p.name, theirs) != peerLines(p.name, want[p.name]) {
					t.Errorf("onnxruntime gives %s", peerLines(p.name, theirs))
				}
			}
			if want[p.name] == nil {
				t.Fatal("not in testdata/onnxruntime.txt: run with -update where onnxruntime is")
			}
			if err := p.limit.differ(got, want[p.name]); err != nil {
				t.Errorf("evaluator: %v", err)
			}
			if got, err = e.run(b); err != nil {
				t.Fatal(err)
			}
			if err := p.limit.differ(got, want[p.name]); err != nil {
				t.Errorf("CPU: %v", err)
			}
		})
	}
	if golden.Updating() && peer != nil {
		if err := os.WriteFile("testdata/onnxruntime.txt", []byte(page.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
