package ptx

import "fmt"

// PoolOf pools what elementwise code computes from images with channels last, such as a norm and a
// ReLU of them, which is not stored. Value X of Of, in f32, is the element of the images; Of has the
// shape {N·positions, C, 1} and stores nothing. The code must not read the index. A thread
// computes the maxima of adjacent channels, and loads what is the same for all positions of a channel
// once. Arguments: loads of Of, then y unless NoMax, index unless NoIndex, as in Pool.Max.
type PoolOf struct {
	Pool
	Of Elementwise
	X  int
}

// Max generates the largest element of each window and its index.
func (s PoolOf) Max(fl Flavour) (*Launch, error) {
	if err := s.checkMax(); err != nil {
		return nil, err
	}
	s.Of.Name = s.Name
	w, err := ChannelSum{Elementwise: s.Of, Split: 1, Sums: []int{s.X}}.generate(fl)
	if err == nil && (!s.NHWC || w.planes || len(s.Of.Stores) > 0 || w.channels != s.C || w.n != int64(s.inputs())) {
		err = fmt.Errorf("pools %d images of %v, the code computes %v", s.N, s.Size, s.Of.Shape)
	}
	if err != nil {
		return nil, fmt.Errorf("ptx: %s: %w", s.Name, err)
	}
	b := w.b
	for _, a := range w.Loads {
		w.bases = append(w.bases, w.param(a, false))
	}
	q := params{b: b, list: w.args}
	store := s.results(&q)
	grid := b.perElement(s.outputs()/w.vec, func(i Reg) {
		p := s.at(b, i, s.To, w.vec)
		c := b.Do("cvt.u64.u32", p.c)
		w.steady([]Reg{{}, c}, w.vec)
		store(i, w.vec, p, func(at [3]Reg) []Reg {
			w.coords = []Reg{b.Do("cvt.u64.u32", s.position(b, p.n, at, s.Size)), c}
			w.compute(Reg{}, w.vec)
			values := make([]Reg, w.vec)
			for l := range values {
				values[l] = w.lane(s.X, l)
			}
			return values
		})
	})
	return finish(b, grid, q.list)
}
