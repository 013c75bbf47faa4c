package ir

import (
	"slices"
	"strings"
)

// Einsum sums products of operands over the letters that the result does not
// name: "bij,bjk->bik" is a batched product. A letter that stands twice in an
// operand takes the diagonal of these axes. "..." stands for all axes that have no
// letter, counted from the last. Without "->" the result has the axes of "...", then
// the letters that occur once, in alphabetical order. It lowers to transpose, reshape,
// slice, reduce_sum and matmul, from left to right.
//
//   - Shapes: as spec says.
//   - DTypes: floats; the result has the widest.
//   - Errors: a spec that does not fit the operands.
//   - PyTorch: torch.einsum; axes of "..." are not broadcast.
func (b *Builder) Einsum(spec string, xs ...*Value) *Value {
	terms, result, ok := b.einsumTerms(spec, xs)
	if !ok {
		return nil
	}
	name := b.next
	u := b.unnamed()
	xs = slices.Clone(xs)
	for i := range xs {
		x := u.diagonals(labelled{xs[i], terms[i]})
		xs[i], terms[i] = x.v, x.labels
	}
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
	rest, fits := b.expandTerms(spec, terms, xs)
	if !fits {
		return nil, "", false
	}
	result = strings.Replace(result, ellipsis, rest, 1)
	times := map[rune]int{}
	for i, t := range terms {
		if !b.checkLetters(spec, t) {
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
			if n == 1 && !strings.ContainsRune(rest, l) {
				once = append(once, byte(l))
			}
		}
		slices.Sort(once)
		result = rest + string(once)
	}
	for _, l := range result {
		if times[l] == 0 {
			b.Fail("einsum %q: no operand has %c", spec, l)
			return nil, "", false
		}
	}
	return terms, result, b.checkTerm(spec, result)
}

const ellipsis = "..."

// expandTerms puts letters that spec does not use in the place of each "..." of terms.
// It returns them all; a term with fewer axes has the last of them.
func (b *Builder) expandTerms(spec string, terms []string, xs []*Value) (rest string, ok bool) {
	most := 0
	for i, t := range terms {
		if strings.Contains(t, ellipsis) {
			most = max(most, xs[i].Type.Shape.Rank()-len(t)+len(ellipsis))
		}
	}
	for l := byte('A'); l <= 'z' && len(rest) < most; l++ {
		if (l <= 'Z' || l >= 'a') && strings.IndexByte(spec, l) < 0 {
			rest += string(l)
		}
	}
	for i, t := range terms {
		if !strings.Contains(t, ellipsis) {
			continue
		}
		n := xs[i].Type.Shape.Rank() - len(t) + len(ellipsis)
		if n < 0 || len(rest) < most {
			b.Fail("einsum %q: term %s for %s, which has type %s", spec, t, xs[i], xs[i].Type)
			return "", false
		}
		terms[i] = strings.Replace(t, ellipsis, rest[len(rest)-n:], 1)
	}
	return rest, true
}

func (b *Builder) checkLetters(spec, term string) bool {
	for _, l := range term {
		if !(l >= 'a' && l <= 'z' || l >= 'A' && l <= 'Z') {
			b.Fail("einsum %q: term %s: want letters", spec, term)
			return false
		}
	}
	return true
}

// checkTerm checks the result's letters.
func (b *Builder) checkTerm(spec, term string) bool {
	for i, l := range term {
		if strings.IndexRune(term, l) != i {
			b.Fail("einsum %q: the result has %c twice", spec, l)
			return false
		}
	}
	return b.checkLetters(spec, term)
}

// diagonals replaces two axes with one letter by their diagonal: both axes become one,
// of which every (n+1)-th element is taken.
func (b *Builder) diagonals(x labelled) labelled {
	for i := 0; i < len(x.labels); i++ {
		l := x.labels[i]
		k := strings.IndexByte(x.labels[i+1:], l) + i + 1
		if k == i || x.v == nil {
			continue
		}
		d := x.v.Type.Shape.Dims()
		if d[i] != d[k] || d[i] < 0 {
			b.Fail("einsum: axes %d and %d of %s, which has type %s, have one letter", i, k, x.v, x.v.Type)
			return labelled{nil, x.labels}
		}
		var perm []int64
		var shape []Dim
		labels := ""
		for a := range d {
			if a != i && a != k {
				perm, shape, labels = append(perm, int64(a)), append(shape, d[a]), labels+string(x.labels[a])
			}
		}
		n, last := int64(d[i]), int64(len(shape))
		v := b.reshaped(b.Transpose(x.v, append(perm, int64(i), int64(k))...), append(shape, mulDims(d[i], d[k]))...)
		x = labelled{b.SliceStep(v, []int64{last}, []int64{0}, []int64{n * n}, []int64{n + 1}), labels + string(l)}
		i = -1
	}
	return x
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
