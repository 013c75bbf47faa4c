// Package onnxmodel writes ONNX models with random weights, for tests and
// benchmarks: single graphs, and networks as exporters write them.
package onnxmodel

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
)

// The types of elements, as ONNX numbers them.
const (
	F32  = 1
	I64  = 7
	Bool = 9
	F64  = 11
)

// Graph is a graph being built. Values are known by their names.
type Graph struct {
	Format int64 // the version of the file's format, IR_VERSION; 0 means 8

	name    string
	opset   int64
	body    message
	tensors []tensor
	made    *int
	rand    *rand.Rand
}

// New starts a model of an opset.
func New(name string, opset int64) *Graph {
	return &Graph{name: name, opset: opset, made: new(int), rand: rand.New(rand.NewPCG(1, 2))}
}

// Sub starts a graph for an attribute of a node of g.
func (g *Graph) Sub(name string) *Graph {
	return &Graph{name: name, made: g.made, rand: g.rand}
}

// tensor is an initializer; its elements are made when it is written.
type tensor struct {
	head message // all but raw_data
	size int64
	fill func(w io.Writer) error
}

// message is a protocol buffer being written.
type message []byte

func (m message) tag(num, typ int) message {
	return binary.AppendUvarint(m, uint64(num)<<3|uint64(typ))
}
func (m message) num(n int, x int64) message { return binary.AppendUvarint(m.tag(n, 0), uint64(x)) }
func (m message) raw(n int, b []byte) message {
	return append(binary.AppendUvarint(m.tag(n, 2), uint64(len(b))), b...)
}
func (m message) str(n int, s string) message { return m.raw(n, []byte(s)) }

// Attr is an attribute of a node.
type Attr message

// Int is an attribute that holds an integer.
func Int(name string, x int64) Attr { return Attr(message(nil).str(1, name).num(3, x).num(20, 2)) }

// Ints is an attribute that holds integers.
func Ints(name string, x ...int64) Attr {
	m := message(nil).str(1, name)
	for _, v := range x {
		m = m.num(8, v)
	}
	return Attr(m.num(20, 7))
}

// Float is an attribute that holds a number.
func Float(name string, x float32) Attr {
	m := message(nil).str(1, name).tag(2, 5)
	return Attr(message(binary.LittleEndian.AppendUint32(m, math.Float32bits(x))).num(20, 1))
}

// Str is an attribute that holds a text.
func Str(name, x string) Attr { return Attr(message(nil).str(1, name).str(4, x).num(20, 3)) }

// Body is an attribute that holds a graph.
func Body(name string, g *Graph) Attr {
	return Attr(message(nil).str(1, name).raw(6, g.bytes()).num(20, 5))
}

// dim is a size (int), a name for one (string), or neither (nil).
func info(name string, dtype int64, dims []any) message {
	var shape message
	for _, d := range dims {
		var m message
		switch d := d.(type) {
		case int:
			m = m.num(1, int64(d))
		case string:
			m = m.str(2, d)
		}
		shape = shape.raw(1, m)
	}
	return message(nil).str(1, name).raw(2, message(nil).raw(1, message(nil).num(1, dtype).raw(2, shape)))
}

// Input declares an input: sizes are integers, names, or nil.
func (g *Graph) Input(name string, dtype int64, dims ...any) string {
	g.body = g.body.raw(11, info(name, dtype, dims))
	return name
}

// Output declares an output of the name that a value has.
func (g *Graph) Output(name string, dtype int64, dims ...any) {
	g.body = g.body.raw(12, info(name, dtype, dims))
}

// sequence declares an input (field 11) or output (12) that is a sequence.
func (g *Graph) sequence(field int, name string, dtype int64) string {
	elem := message(nil).raw(1, message(nil).num(1, dtype))
	g.body = g.body.raw(field, message(nil).str(1, name).raw(2, message(nil).raw(4, message(nil).raw(1, elem))))
	return name
}

// InputSequence declares an input that is a sequence of tensors.
func (g *Graph) InputSequence(name string, dtype int64) string { return g.sequence(11, name, dtype) }

// OutputSequence declares an output that is one.
func (g *Graph) OutputSequence(name string, dtype int64) { g.sequence(12, name, dtype) }

func (g *Graph) fresh(op string) string {
	*g.made++
	return fmt.Sprintf("%s_%d", op, *g.made)
}

// Op adds a node with one result, and returns its name.
func (g *Graph) Op(op string, in []string, attrs ...Attr) string {
	return g.Ops(op, 1, in, attrs...)[0]
}

// Ops adds a node with n results.
func (g *Graph) Ops(op string, n int, in []string, attrs ...Attr) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = g.fresh(op)
	}
	g.Node(op, in, out, attrs...)
	return out
}

// Node adds a node whose results have the given names.
func (g *Graph) Node(op string, in, out []string, attrs ...Attr) {
	var m message
	for _, x := range in {
		m = m.str(1, x)
	}
	for _, y := range out {
		m = m.str(2, y)
	}
	m = m.str(3, out[0]).str(4, op)
	for _, a := range attrs {
		m = m.raw(5, a)
	}
	g.body = g.body.raw(1, m)
}

// Const is an initializer of integers; no sizes make a scalar.
func (g *Graph) Const(dims []int64, x ...int64) string {
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return g.add(g.fresh("const"), I64, dims, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// List is a list of integers.
func (g *Graph) List(x ...int64) string { return g.Const([]int64{int64(len(x))}, x...) }

// Number is a scalar of f32.
func (g *Graph) Number(x float32) string {
	return g.add(g.fresh("number"), F32, nil, func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, x) })
}

// Weight is an initializer of numbers from a normal distribution.
func (g *Graph) Weight(name string, mean, std float64, dims ...int64) string {
	seed := g.rand.Uint64()
	n := elements(dims)
	return g.add(name, F32, dims, func(w io.Writer) error {
		r := rand.New(rand.NewPCG(seed, 1))
		var b [4096]byte
		for at := int64(0); at < n; at += 1024 {
			k := min(n-at, 1024)
			for i := range k {
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(mean+std*r.NormFloat64())))
			}
			if _, err := w.Write(b[:4*k]); err != nil {
				return err
			}
		}
		return nil
	})
}

func elements(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

func (g *Graph) add(name string, dtype int64, dims []int64, fill func(w io.Writer) error) string {
	var head message
	for _, d := range dims {
		head = head.num(1, d)
	}
	size := map[int64]int64{F32: 4, I64: 8, Bool: 1}[dtype] * elements(dims)
	g.tensors = append(g.tensors, tensor{head.num(2, dtype).str(8, name), size, fill})
	return name
}

// Triangle is an initializer of bools [1, 1, n, n] that holds on and below the diagonal.
func (g *Graph) Triangle(name string, n int64) string {
	return g.add(name, Bool, []int64{1, 1, n, n}, func(w io.Writer) error {
		row := make([]byte, n)
		for i := range n {
			row[i] = 1
			if _, err := w.Write(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// bytes is a graph for an attribute.
func (g *Graph) bytes() []byte {
	m := g.body.str(2, g.name)
	for i := range g.tensors {
		var b sliceWriter
		if err := g.tensors[i].fill(&b); err != nil {
			panic(err) // memory takes everything
		}
		m = m.raw(5, g.tensors[i].head.raw(9, b))
	}
	return m
}

type sliceWriter []byte

func (s *sliceWriter) Write(b []byte) (int, error) {
	*s = append(*s, b...)
	return len(b), nil
}

// WriteFile writes the model.
func (g *Graph) WriteFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := g.write(w); err != nil {
		f.Close()
		return err
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (g *Graph) write(w io.Writer) error {
	body := g.body.str(2, g.name)
	heads := make([]message, len(g.tensors))
	size := int64(len(body))
	for i, t := range g.tensors {
		inner := binary.AppendUvarint(t.head.tag(9, 2), uint64(t.size))
		heads[i] = append(binary.AppendUvarint(message(nil).tag(5, 2), uint64(int64(len(inner))+t.size)), inner...)
		size += int64(len(heads[i])) + t.size
	}
	model := message(nil).num(1, cmp.Or(g.Format, 8)).raw(8, message(nil).str(1, "").num(2, g.opset)).str(2, "ampc").tag(7, 2)
	model = binary.AppendUvarint(model, uint64(size))
	for _, b := range [][]byte{model, body} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	for i, t := range g.tensors {
		if _, err := w.Write(heads[i]); err != nil {
			return err
		}
		if err := t.fill(w); err != nil {
			return err
		}
	}
	return nil
}
