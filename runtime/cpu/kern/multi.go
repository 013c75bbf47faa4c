package kern

import "math"

// Tensor is one item of a multi-tensor pass: Dst receives Src times the scale. They may be the same buffer.
type Tensor struct {
	Dst []float32
	Src Buf
}

// chunkLen is the number of elements of one task of a multi-tensor pass.
const chunkLen = 1 << 14

type vecTask struct {
	m     *Machine
	list  []Tensor
	first []int // index of the first chunk of each tensor
	scale float32
	norm  bool
	bad   []bool
	sumSq []float64
}

// Unscale multiplies every tensor by scale, reading it once, and reports whether all results are
// finite.
func (m *Machine) Unscale(list []Tensor, scale float32) (finite bool) {
	finite, _ = m.unscale(list, scale, false)
	return finite
}

// UnscaleNorm is Unscale that also returns the Euclidean norm of the results, in the same read. Chunks of 16384
// elements are summed in f32, the chunks in order in float64.
func (m *Machine) UnscaleNorm(list []Tensor, scale float32) (finite bool, norm float64) {
	return m.unscale(list, scale, true)
}

func (m *Machine) unscale(list []Tensor, scale float32, norm bool) (finite bool, total float64) {
	t := &m.vec
	t.m, t.list, t.scale, t.norm = m, list, scale, norm
	chunks, work := 0, 0
	t.first = t.first[:0]
	for _, x := range list {
		t.first = append(t.first, chunks)
		chunks += ceilDiv(len(x.Dst), chunkLen)
		work += 8 * len(x.Dst)
	}
	if cap(t.bad) < chunks {
		t.bad, t.sumSq = make([]bool, chunks), make([]float64, chunks)
	}
	t.bad, t.sumSq = t.bad[:chunks], t.sumSq[:chunks]
	m.run(work, chunks, t)
	finite = true
	for i := range chunks {
		finite = finite && !t.bad[i]
		total += t.sumSq[i]
	}
	t.list = nil
	return finite, math.Sqrt(total)
}

func (t *vecTask) Run(_, i int) {
	lo, hi := 0, len(t.first)-1 // the last tensor whose first chunk is not after i
	for lo < hi {
		if mid := (lo + hi + 1) / 2; t.first[mid] <= i {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	x, p := t.list[lo], t.m.Path
	at := (i - t.first[lo]) * chunkLen
	d := x.Dst[at:min(at+chunkLen, len(x.Dst))]
	t.bad[i] = p.scaleCheck[x.Src.Type](len(d), bytes(&d[0]), x.Src.at(at), t.scale) != 0
	t.sumSq[i] = 0
	if t.norm {
		t.sumSq[i] = float64(p.SumSq(d))
	}
}
