package ir

import (
	"slices"
	"strings"
)

// Einsum sums products of operands over the letters that the result does not
// name: "bij,bjk->bik" is a batched product. A letter stands once in an
// operand; without "->" the result has the letters that occur once, in
// alphabetical order. It lowers to transpose, reshape, reduce_sum and matmul,
// from left to right.
//
//   - Shapes: as spec says.
//   - DTypes: floats; the result has the widest.
//   - Errors: a spec that does not fit the operands.
//   - PyTorch: torch.einsum; no ellipsis, no diagonal.
func (b *Builder) Einsum(spec string, xs ...*Value) *Value {
	terms, result, ok := b.einsumTerms(spec, xs)
	if !ok {
		return nil
	}
	name := b.next
	u := b.unnamed()
	acc := u.sumLabels(labelled{xs[0], terms[0]}, func(l byte) bool { return wanted(l, result, terms[1:]) })
	for i, x := range xs[1:] {
		later := terms[i+2:]
		next := u.sumLabels(labelled{x, terms[i+1]}, func(l byte) bool { return wanted(l, result, later) || strings.IndexByte(acc.labels, l) >= 0 })
		acc = u.contract(acc, next, func(l byte) bool { return wanted(l, result, later) })
	}
	y := u.permute(acc, result).v
	if name != "" && y != nil && !slices.Contains(xs, y) {
		y = b.Rename(y, b.scope+name)
	}
	return y
}

// labelled is a value with a letter per axis.
type labelled struct {
	v      *Value
	labels string
}

func wanted(l byte, result string, later []string) bool {
	return strings.IndexByte(result, l) >= 0 || slices.ContainsFunc(later, func(t string) bool { return strings.IndexByte(t, l) >= 0 })
}

// einsumTerms splits the specification and checks it against the operands.
func (b *Builder) einsumTerms(spec string, xs []*Value) (terms []string, result string, ok bool) {
	if b.err != nil || slices.Contains(xs, nil) {
		return nil, "", false
	}
	left, result, arrow := strings.Cut(strings.ReplaceAll(spec, " ", ""), "->")
	terms = strings.Split(left, ",")
	if len(terms) != len(xs) || len(xs) == 0 {
		b.Fail("einsum %q: %d terms for %d operands", spec, len(terms), len(xs))
		return nil, "", false
	}
	times := map[rune]int{}
	for i, t := range terms {
		if !b.checkTerm(spec, t) {
			return nil, "", false
		}
		if xs[i].Type.Shape.Rank() != len(t) {
			b.Fail("einsum %q: term %s for %s, which has type %s", spec, t, xs[i], xs[i].Type)
			return nil, "", false
		}
		for _, l := range t {
			times[l]++
		}
	}
	if !arrow {
		var once []byte
		for l, n := range times {
			if n == 1 {
				once = append(once, byte(l))
			}
		}
		slices.Sort(once)
		result = string(once)
	}
	for _, l := range result {
		if times[l] == 0 {
			b.Fail("einsum %q: no operand has %c", spec, l)
			return nil, "", false
		}
	}
	return terms, result, b.checkTerm(spec, result)
}

func (b *Builder) checkTerm(spec, term string) bool {
	for i, l := range term {
		if !(l >= 'a' && l <= 'z' || l >= 'A' && l <= 'Z') || strings.IndexRune(term, l) != i {
			b.Fail("einsum %q: term %s: want letters, each once", spec, term)
			return false
		}
	}
	return true
}

// sumLabels sums the axes whose letter nothing keeps.
func (b *Builder) sumLabels(x labelled, keep func(byte) bool) labelled {
	var axes []int64
	kept := make([]byte, 0, len(x.labels))
	for i := range len(x.labels) {
		if keep(x.labels[i]) {
			kept = append(kept, x.labels[i])
		} else {
			axes = append(axes, int64(i))
		}
	}
	return labelled{b.sumAxes(x.v, axes), string(kept)}
}

func (b *Builder) permute(x labelled, to string) labelled {
	if x.labels == to {
		return x
	}
	perm := make([]int64, len(to))
	for i := range len(to) {
		perm[i] = int64(strings.IndexByte(x.labels, to[i]))
	}
	return labelled{b.Transpose(x.v, perm...), to}
}

// contract multiplies x and y: letters both have are batch axes where keep
// says so and are summed elsewhere.
func (b *Builder) contract(x, y labelled, keep func(byte) bool) labelled {
	var batch, summed, left, right []byte
	for i := range len(x.labels) {
		switch l := x.labels[i]; {
		case strings.IndexByte(y.labels, l) < 0:
			left = append(left, l)
		case keep(l):
			batch = append(batch, l)
		default:
			summed = append(summed, l)
		}
	}
	for i := range len(y.labels) {
		if strings.IndexByte(x.labels, y.labels[i]) < 0 {
			right = append(right, y.labels[i])
		}
	}
	lefts, rights := b.dimsOfLabels(x, left), b.dimsOfLabels(y, right)
	p, ta := b.asMatrix(x, string(batch), string(left), string(summed))
	q, tb := b.asMatrix(y, string(batch), string(right), string(summed))
	z := b.Matmul(p, q, ta, !tb)
	shape := append(b.dimsOfLabels(x, batch), append(lefts, rights...)...)
	return labelled{b.reshaped(z, shape...), string(batch) + string(left) + string(right)}
}

func (b *Builder) dimsOfLabels(x labelled, labels []byte) []Dim {
	if x.v == nil {
		return nil
	}
	d := x.v.Type.Shape.Dims()
	out := make([]Dim, len(labels))
	for i, l := range labels {
		out[i] = d[strings.IndexByte(x.labels, l)]
	}
	return out
}

// asMatrix lays x out as batch axes, then one axis for all free and one for
// all summed letters; transposed: the summed one comes first, as x has it already.
func (b *Builder) asMatrix(x labelled, batch, free, summed string) (v *Value, transposed bool) {
	transposed = free != "" && summed != "" && x.labels == batch+summed+free
	if transposed {
		free, summed = summed, free
	}
	x = b.permute(x, batch+free+summed)
	if x.v == nil || len(free) == 1 && len(summed) == 1 {
		return x.v, transposed
	}
	shape := b.dimsOfLabels(x, []byte(batch))
	for _, part := range [2]string{free, summed} {
		n := Dim(1)
		for _, d := range b.dimsOfLabels(x, []byte(part)) {
			n = mulDims(n, d)
		}
		shape = append(shape, n)
	}
	return b.reshaped(x.v, shape...), transposed
}
