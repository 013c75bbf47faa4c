package host

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// place is a position in a sequence of n, counted from the end where it is below zero.
func place(at int64, n int) (int, error) {
	if at < 0 {
		at += int64(n)
	}
	if at < 0 || at >= int64(n) {
		return 0, fmt.Errorf("position %d is out of range for a sequence of %d elements", at, n)
	}
	return int(at), nil
}

func sequenceAt(c *call) ([]*Value, error) {
	s, err := c.sequence(0)
	if err != nil {
		return nil, err
	}
	at, err := c.integer(1, 0)
	if err != nil {
		return nil, err
	}
	i, err := place(at, len(s))
	if err != nil {
		return nil, err
	}
	return []*Value{s[i]}, nil
}

func sequenceInsert(c *call) ([]*Value, error) {
	s, err := c.sequence(0)
	if err != nil {
		return nil, err
	}
	if !c.has(1) || c.in[1].Kind != Tensor {
		return nil, fmt.Errorf("operand 1 is missing or not a tensor")
	}
	at, err := c.integer(2, int64(len(s)))
	if err != nil {
		return nil, err
	}
	i, err := place(at, len(s)+1)
	if at < 0 { // counted from the end of the sequence as it is
		i, err = place(at, len(s))
	}
	if err != nil {
		return nil, err
	}
	return []*Value{NewSequence(slices.Insert(slices.Clone(s), i, c.in[1])...)}, nil
}

func sequenceErase(c *call) ([]*Value, error) {
	s, err := c.sequence(0)
	if err != nil {
		return nil, err
	}
	at, err := c.integer(1, int64(len(s)-1))
	if err != nil {
		return nil, err
	}
	i, err := place(at, len(s))
	if err != nil {
		return nil, err
	}
	return []*Value{NewSequence(slices.Delete(slices.Clone(s), i, i+1)...)}, nil
}

func sequenceConstruct(c *call) ([]*Value, error) {
	for i, v := range c.in {
		if v == nil || v.Kind != Tensor {
			return nil, fmt.Errorf("operand %d is missing or not a tensor", i)
		}
	}
	return []*Value{NewSequence(c.in...)}, nil
}

func sequenceEmpty(*call) ([]*Value, error) { return []*Value{NewSequence()}, nil }

func sequenceLength(c *call) ([]*Value, error) {
	s, err := c.sequence(0)
	return one(scalar(int64(len(s))), err)
}

// splitToSequence cuts a tensor: into equal pieces, pieces of given sizes, or single slices.
func splitToSequence(c *call) ([]*Value, error) {
	if !c.has(0) || c.in[0].Kind != Tensor {
		return nil, fmt.Errorf("operand 0 is missing or not a tensor")
	}
	x := c.in[0]
	a, err := axis(c.int("axis", 0), x.Type.Shape.Rank())
	if err != nil {
		return nil, err
	}
	n := int64(x.Type.Shape.Dim(a))
	var sizes []int64
	each := int64(1)
	if c.has(1) {
		t, err := c.tensor(1)
		if err != nil {
			return nil, err
		}
		if t.Type.Shape.Rank() > 0 {
			sizes = t.I
		} else if each = t.I[0]; each < 1 {
			return nil, fmt.Errorf("the size of a piece is %d, want 1 or more", each)
		}
	}
	if sizes == nil {
		for at := int64(0); at < n; at += each {
			sizes = append(sizes, min(each, n-at))
		}
	}
	var list []*Value
	at := int64(0)
	for _, k := range sizes {
		if k < 0 || at+k > n {
			return nil, fmt.Errorf("pieces of sizes %v do not fit an axis of size %d", sizes, n)
		}
		v := x.slice(a, at, at+k)
		if !c.has(1) && c.int("keepdims", 1) == 0 {
			v = v.reshaped(shapeOf(slices.Delete(ir.Sizes(v.Type.Shape), a, a+1)...))
		}
		list, at = append(list, v), at+k
	}
	if at != n {
		return nil, fmt.Errorf("pieces of sizes %v do not fit an axis of size %d", sizes, n)
	}
	return []*Value{NewSequence(list...)}, nil
}

func concatFromSequence(c *call) ([]*Value, error) {
	s, err := c.sequence(0)
	if err != nil {
		return nil, err
	}
	if len(s) == 0 {
		return nil, fmt.Errorf("the sequence is empty, want at least one element to concatenate")
	}
	rank, join := s[0].Type.Shape.Rank(), concat
	if c.int("new_axis", 0) != 0 {
		rank, join = rank+1, stack
	}
	a, err := axis(c.int("axis", 0), rank)
	if err != nil {
		return nil, err
	}
	return one(join(s, a))
}

// sequenceMap runs its body for each element of the first operand. Further operands
// are sequences as long, or tensors, the same for each.
func sequenceMap(c *call) ([]*Value, error) {
	s, err := c.sequence(0)
	if err != nil {
		return nil, err
	}
	results := make([][]*Value, len(c.n.Out))
	for i := range s {
		if err := c.run.iterate(); err != nil {
			return nil, err
		}
		in := []*Value{s[i]}
		for k, v := range c.in[1:] {
			if v != nil && v.Kind == Sequence {
				if len(v.Seq) != len(s) {
					return nil, fmt.Errorf("operand %d has %d elements, operand 0 has %d", k+1, len(v.Seq), len(s))
				}
				v = v.Seq[i]
			}
			in = append(in, v)
		}
		out, err := c.inner("body", in)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		for k := range results {
			results[k] = append(results[k], out[k])
		}
	}
	list := make([]*Value, len(results))
	for k := range results {
		list[k] = NewSequence(results[k]...)
	}
	return list, nil
}

func optional(c *call) ([]*Value, error) {
	if c.has(0) {
		return []*Value{c.in[0]}, nil
	}
	return []*Value{{Kind: Nothing}}, nil
}

func optionalHasElement(c *call) ([]*Value, error) {
	return []*Value{truth(c.has(0) && c.in[0].Kind != Nothing)}, nil
}

func optionalGetElement(c *call) ([]*Value, error) {
	if !c.has(0) || c.in[0].Kind == Nothing {
		return nil, fmt.Errorf("the optional has no element")
	}
	return []*Value{c.in[0]}, nil
}

func identity(c *call) ([]*Value, error) {
	if !c.has(0) {
		return nil, fmt.Errorf("operand 0 is missing, and the operator requires it")
	}
	return []*Value{c.in[0]}, nil
}
