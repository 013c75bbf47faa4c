package lower

import (
	"fmt"
	"strings"
)

// Misaligned is a matrix product or convolution with sizes that tensor cores do not read at full
// speed in its dtype. A convolution counts as a product for each tap of its window: M are the
// positions of all images, N the output channels, and K, which is summed over, the input channels.
// Its gradients count alike.
type Misaligned struct {
	Node     string `json:"value"`
	Pos      string `json:"pos,omitempty"`
	DType    string `json:"dtype"` // of the operands
	Multiple int64  `json:"multiple"`
	Sizes    []Size `json:"sizes"` // sizes that are no multiple
}

// Size is one of M, N and K.
type Size struct {
	Name   string `json:"name"`
	Now    int64  `json:"now"`
	Padded int64  `json:"padded"`
}

func (m Misaligned) String() string {
	var s []string
	for _, d := range m.Sizes {
		s = append(s, fmt.Sprintf("%s %d, padded %d", d.Name, d.Now, d.Padded))
	}
	return fmt.Sprintf("%s: %s wants multiples of %d: %s", m.Node, m.DType, m.Multiple, strings.Join(s, "; "))
}

// Misaligned lists the products and convolutions of the program, forward and backward, with a size
// that is no multiple of what tensor cores want for their dtype.
func (p *Program) Misaligned() []Misaligned {
	var out []Misaligned
	for _, part := range p.Parts {
		for i := range part {
			s := &part[i]
			sizes, tf32 := s.product()
			if sizes == nil {
				continue
			}
			d := p.Buffers[s.In[0]].Type.DType
			m := Misaligned{Node: s.Node.Name, Pos: s.Node.Pos.String(), DType: d.String(), Multiple: d.Multiple(tf32)}
			if tf32 {
				m.DType = "tf32"
			}
			for k, n := range sizes {
				if r := n % m.Multiple; r > 0 {
					m.Sizes = append(m.Sizes, Size{[]string{"M", "N", "K"}[k], n, n - r + m.Multiple})
				}
			}
			if m.Sizes != nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// product returns M, N and K of a step's product, or nil.
func (s *Step) product() (sizes []int64, tf32 bool) {
	switch {
	case s.Gemm != nil:
		return []int64{s.Gemm.M, s.Gemm.N, s.Gemm.K}, s.Gemm.TF32
	case s.Conv == nil:
		return nil, false
	}
	w := s.Conv.Window
	in, out := w.N, w.N
	for i := range w.In {
		in *= w.In[i]
		out *= w.Out[i]
	}
	x, y := w.C/w.Groups, w.O/w.Groups
	switch s.Conv.Dir {
	case ConvGradX:
		return []int64{in, x, y}, s.Conv.TF32
	case ConvGradW:
		return []int64{y, x, out}, s.Conv.TF32
	}
	return []int64{out, y, x}, s.Conv.TF32
}
