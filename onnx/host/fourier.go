package host

import (
	"fmt"
	"math"
	"math/cmplx"

	"ampc/ir/eval"
	"ampc/onnx"
)

// transform is the discrete Fourier transform of x, of any length: by halves where that
// is even, else by its definition.
func transform(x []complex128, sign float64) []complex128 {
	n := len(x)
	y := make([]complex128, n)
	if n > 2 && n%2 == 0 {
		even, odd := make([]complex128, n/2), make([]complex128, n/2)
		for i := range even {
			even[i], odd[i] = x[2*i], x[2*i+1]
		}
		even, odd = transform(even, sign), transform(odd, sign)
		for k := range even {
			w := odd[k] * cmplx.Rect(1, sign*2*math.Pi*float64(k)/float64(n))
			y[k], y[k+n/2] = even[k]+w, even[k]-w
		}
		return y
	}
	for k := range y {
		for i, v := range x {
			y[k] += v * cmplx.Rect(1, sign*2*math.Pi*float64(i*k%n)/float64(n))
		}
	}
	return y
}

// maxTransform bounds the length of a transform.
const maxTransform = 1 << 20

// dft transforms along one axis; the last one holds real and imaginary parts.
func dft(c *call) ([]*Value, error) {
	x, d, err := c.floats(0, -1)
	if err != nil {
		return nil, err
	}
	rank := len(d)
	if rank < 2 || d[rank-1] < 1 || d[rank-1] > 2 {
		return nil, fmt.Errorf("operand 0 is %s, want a last axis of size 1 (real) or 2 (real and imaginary parts)", x.Type)
	}
	along := c.int("axis", 1)
	if c.opset >= 20 {
		if along, err = c.integer(2, -2); err != nil {
			return nil, err
		}
	}
	axis, err := axis(along, rank)
	if err != nil {
		return nil, err
	}
	if axis == rank-1 {
		return nil, fmt.Errorf("axis %d is the last one, which holds real and imaginary parts: it cannot be transformed", along)
	}
	n, err := c.integer(1, d[axis])
	if err != nil {
		return nil, err
	}
	inverse, onesided := c.int("inverse", 0) != 0, c.int("onesided", 0) != 0
	if n < 1 || n > maxTransform || inverse && onesided {
		return nil, fmt.Errorf("a transform of length %d, inverse %t, one-sided %t is not supported", n, inverse, onesided)
	}
	bins := n
	if onesided {
		bins = n/2 + 1
	}
	out := append([]int64{}, d...)
	out[axis], out[rank-1] = bins, 2
	y, err := newResult(x.Type.DType, out...)
	if err != nil {
		return nil, err
	}
	inner := volume(d[axis+1 : rank-1])
	sign, scale := -1.0, 1.0
	if inverse {
		sign, scale = 1, 1/float64(n)
	}
	line := make([]complex128, n)
	for o := range volume(d[:axis]) {
		for i := range inner {
			clear(line)
			for k := range min(n, d[axis]) {
				line[k] = part(x, (o*d[axis]+k)*inner+i, d[rank-1])
			}
			for k, v := range transform(line, sign)[:bins] {
				at := 2 * ((o*bins+int64(k))*inner + i)
				y.F[at], y.F[at+1] = real(v)*scale, imag(v)*scale
			}
		}
	}
	return rounded(y), nil
}

// part is a number of one part, or of two.
func part(x *eval.Tensor, i, parts int64) complex128 {
	if parts == 1 {
		return complex(x.F[i], 0)
	}
	return complex(x.F[2*i], x.F[2*i+1])
}

// stft transforms frames of a signal.
func stft(c *call) ([]*Value, error) {
	x, d, err := c.floats(0, -1)
	if err != nil {
		return nil, err
	}
	if len(d) == 2 {
		d = append(d, 1)
	}
	if len(d) != 3 || d[2] < 1 || d[2] > 2 {
		return nil, fmt.Errorf("operand 0 is %s, want a batch of real or complex signals", x.Type)
	}
	step, err := c.integer(1, 0)
	if err != nil {
		return nil, err
	}
	var window *eval.Tensor
	n := int64(0)
	if c.has(2) {
		if window, _, err = c.floats(2, 1); err != nil {
			return nil, err
		}
		n = int64(window.Len())
	}
	if n, err = c.integer(3, n); err != nil {
		return nil, err
	}
	if step < 1 || n < 1 || n > maxTransform || n > d[1] || window != nil && int64(window.Len()) != n {
		return nil, fmt.Errorf("frames of length %d at steps of %d do not fit signals of length %d", n, step, d[1])
	}
	bins := n
	if c.int("onesided", 1) != 0 {
		bins = n/2 + 1
	}
	frames := (d[1]-n)/step + 1
	y, err := newResult(x.Type.DType, d[0], frames, bins, 2)
	if err != nil {
		return nil, err
	}
	line := make([]complex128, n)
	for b := range d[0] {
		for f := range frames {
			for k := range n {
				line[k] = part(x, b*d[1]+f*step+k, d[2])
				if window != nil {
					line[k] *= complex(window.F[k], 0)
				}
			}
			for k, v := range transform(line, -1)[:bins] {
				at := 2 * ((b*frames+f)*bins + int64(k))
				y.F[at], y.F[at+1] = real(v), imag(v)
			}
		}
	}
	return rounded(y), nil
}

// mel is a frequency in hertz as the mel scale has it, and hertz the way back.
func mel(hz float64) float64    { return 2595 * math.Log10(1+hz/700) }
func hertz(mel float64) float64 { return 700 * (math.Pow(10, mel/2595) - 1) }

// melWeights is a matrix of triangles: how much each bin of a spectrum adds to each band
// of the mel scale.
func melWeights(c *call) ([]*Value, error) {
	var x [5]float64 // bands, length of the transform, rate, lowest and highest frequency
	for i := range x {
		var err error
		if x[i], err = c.number(i); err != nil {
			return nil, err
		}
	}
	bands, length, rate := int64(x[0]), int64(x[1]), x[2]
	d, err := onnx.DataType(c.int("output_datatype", 1)).DType()
	if err != nil {
		return nil, err
	}
	if bands < 1 || length < 1 || length > maxTransform || !(rate > 0) || !(x[3] >= 0) || !(x[4] >= x[3]) {
		return nil, fmt.Errorf("%d bands, transform length %d, sample rate %g and frequencies from %g to %g do not fit together", bands, length, rate, x[3], x[4])
	}
	bins := length/2 + 1
	y, err := newResult(d, bins, bands)
	if err != nil {
		return nil, err
	}
	low, step := mel(x[3]), (mel(x[4])-mel(x[3]))/float64(bands+2)
	edge := func(i int64) int64 { return int64(math.Floor(float64(length+1) * hertz(low+float64(i)*step) / rate)) }
	if last := edge(bands + 1); last < 0 || last > bins || edge(bands) == bins {
		return nil, fmt.Errorf("the upper frequency is %g, but at sample rate %g it is at most %g", x[4], rate, rate/2)
	}
	set := func(bin, band int64, w float64) {
		if i := bin*bands + band; y.F != nil {
			y.F[i] = w
		} else {
			y.I[i] = d.Wrap(int64(w))
		}
	}
	for b := range bands {
		left, centre, right := edge(b), edge(b+1), edge(b+2)
		if left == centre {
			set(centre, b, 1)
		}
		for k := left; k <= centre && left < centre; k++ {
			set(k, b, float64(k-left)/float64(centre-left))
		}
		for k := centre; k < right; k++ {
			set(k, b, float64(right-k)/float64(right-centre))
		}
	}
	return rounded(y), nil
}
