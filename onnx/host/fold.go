package host

import (
	"encoding/binary"
	"math"
	"slices"

	"ampc/onnx"
)

// foldNorms replaces a convolution whose result only a batch norm reads, with running
// statistics, by one with other weights: W·g and (b−mean)·g + beta, where g is
// gamma/√(var+ε). They are computed when they are loaded.
func (s *scope) foldNorms(m *onnx.Model) {
	if s.opsets[""] < 7 {
		return
	}
	readers, from := map[string]int{}, map[string]int{}
	for _, i := range s.order {
		for _, x := range s.reads[i] {
			readers[x]++
		}
		for _, y := range s.nodes[i].Out {
			from[y] = i
		}
	}
	for _, y := range s.outputs {
		readers[y.Name]++
	}
	s.nodes = slices.Clone(s.nodes)
	gone := map[int]bool{}
	for _, i := range s.order {
		norm := s.nodes[i]
		if norm.Op != "BatchNormalization" || norm.Domain != "" || len(norm.In) != 5 || len(norm.Out) != 1 || readers[norm.In[0]] != 1 {
			continue
		}
		at, ok := from[norm.In[0]]
		if !ok {
			continue
		}
		if conv := s.folded(m, s.nodes[at], norm); conv != nil {
			s.nodes[i], s.reads[i], gone[at] = conv, conv.Reads(), true
		}
	}
	s.order = slices.DeleteFunc(s.order, func(i int) bool { return gone[i] })
	s.link()
}

// folded is the convolution that conv and norm become, nil where they do not.
func (s *scope) folded(m *onnx.Model, conv, norm *onnx.Node) *onnx.Node {
	if conv.Op != "Conv" || conv.Domain != "" || len(conv.In) < 2 {
		return nil
	}
	for _, flag := range []string{"training_mode", "spatial"} {
		if a := norm.Attr(flag); a != nil && (a.I != 0) != (flag == "spatial") {
			return nil
		}
	}
	f := &foldedConv{m: m, eps: 1e-5}
	if a := norm.Attr("epsilon"); a != nil {
		f.eps = float64(a.F)
	}
	f.weight = s.frozen(conv.In[1])
	if len(conv.In) > 2 && conv.In[2] != "" {
		if f.bias = s.frozen(conv.In[2]); f.bias == nil {
			return nil
		}
	}
	for k := range f.norm {
		f.norm[k] = s.frozen(norm.In[k+1])
	}
	if f.weight == nil || len(f.weight.Dims) < 3 || slices.Contains(f.norm[:], nil) {
		return nil
	}
	out := f.weight.Dims[0]
	for _, t := range append(f.norm[:], f.bias) {
		if t != nil && !slices.Equal(t.Dims, []int64{out}) {
			return nil
		}
	}
	name := norm.Out[0]
	w, b := onnx.MakeTensor(name+".weight", f.weight.Dims, f.weights), onnx.MakeTensor(name+".bias", []int64{out}, f.biases)
	s.inits[w.Name], s.inits[b.Name] = w, b
	s.fixed[w.Name], s.fixed[b.Name] = true, true
	c := *conv
	c.In, c.Out = []string{conv.In[0], w.Name, b.Name}, norm.Out
	return &c
}

// frozen is an initializer of f32 that no caller replaces, nil where the name is none.
func (s *scope) frozen(name string) *onnx.Tensor {
	t := s.inits[name]
	if t == nil || t.DType != 1 || slices.Contains(s.inputs, name) {
		return nil
	}
	return t
}

// foldedConv computes the weights of a convolution with a norm.
type foldedConv struct {
	m      *onnx.Model
	weight *onnx.Tensor
	bias   *onnx.Tensor    // nil: none
	norm   [4]*onnx.Tensor // gamma, beta, mean, variance
	eps    float64
}

// scales are g, and what is added.
func (f *foldedConv) scales() (g, shift []float64, err error) {
	var of [4][]float64
	for k, t := range f.norm {
		if of[k], err = f.read(t); err != nil {
			return nil, nil, err
		}
	}
	bias := make([]float64, len(of[0]))
	if f.bias != nil {
		if bias, err = f.read(f.bias); err != nil {
			return nil, nil, err
		}
	}
	for i, gamma := range of[0] {
		g = append(g, gamma/math.Sqrt(of[3][i]+f.eps))
		shift = append(shift, (bias[i]-of[2][i])*g[i]+of[1][i])
	}
	return g, shift, nil
}

func (f *foldedConv) read(t *onnx.Tensor) ([]float64, error) {
	b, err := f.m.Bytes(t)
	if err != nil {
		return nil, err
	}
	x := make([]float64, len(b)/4)
	for i := range x {
		x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return x, nil
}

func (f *foldedConv) weights() ([]byte, error) {
	g, _, err := f.scales()
	if err != nil {
		return nil, err
	}
	w, err := f.m.Bytes(f.weight)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(w))
	if err := f.m.Copy(out, f.weight); err != nil {
		return nil, err
	}
	each := len(out) / 4 / max(len(g), 1)
	for i := range len(out) / 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:])))
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(x*g[i/each])))
	}
	return out, nil
}

func (f *foldedConv) biases() ([]byte, error) {
	_, shift, err := f.scales()
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, x := range shift {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
	}
	return out, nil
}
