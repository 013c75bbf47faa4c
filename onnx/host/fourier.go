package host

import (
	"errors"
	"fmt"
	"math"
	"math/cmplx"

	"ampc/ir/eval"
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
		return nil, fmt.Errorf("operand 0 is %s: the last axis has real and imaginary parts", x.Type)
	}
	along := c.int("axis", 1)
	if c.opset >= 20 {
		if along, err = c.integer(2, -2); err != nil {
			return nil, err
		}
	}
	axis, err := axis(along, rank)
	if err != nil || axis == rank-1 {
		return nil, errors.Join(err, fmt.Errorf("axis %d is none to transform along", along))
	}
	n, err := c.integer(1, d[axis])
	if err != nil {
		return nil, err
	}
	inverse, onesided := c.int("inverse", 0) != 0, c.int("onesided", 0) != 0
	if n < 1 || n > maxTransform || inverse && onesided {
		return nil, fmt.Errorf("a transform of length %d, inverse %t, one-sided %t", n, inverse, onesided)
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
		return nil, fmt.Errorf("operand 0 is %s, want a batch of signals", x.Type)
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
		return nil, fmt.Errorf("frames of %d, %d apart, of signals of %d", n, step, d[1])
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
