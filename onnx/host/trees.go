package host

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir/eval"
)

// How a node of a tree decides, as nodes_modes numbers it.
const (
	modeLessEqual = iota
	modeLess
	modeGreaterEqual
	modeGreater
	modeEqual
	modeNotEqual
	modeMember // of a set
	numModes
)

// ensemble is a list of decision trees in the form of ai.onnx.ml's TreeEnsemble.
type ensemble struct {
	modes, splits           *eval.Tensor
	features                []int64
	next, leaf              [2][]int64 // by node, where its condition is false and true: a node, or a leaf
	missing                 []int64    // whether NaN fulfils the condition; nil: it does not
	members                 map[int][]float64
	targets, roots          []int64
	weights                 *eval.Tensor
	outputs, aggregate, end int64
}

// treeEnsemble sums, averages or bounds by target what the leaves say that each row of
// its operand reaches.
func treeEnsemble(c *call) ([]*Value, error) {
	x, d, err := c.floats(0, 2)
	if err != nil {
		return nil, err
	}
	e, err := c.ensemble(d[1])
	if err != nil {
		return nil, err
	}
	y, err := newResult(x.Type.DType, d[0], e.outputs)
	if err != nil {
		return nil, err
	}
	for r := range d[0] {
		if err := e.predict(y.F[r*e.outputs:(r+1)*e.outputs], x.F[r*d[1]:(r+1)*d[1]]); err != nil {
			return nil, err
		}
	}
	return rounded(y), nil
}

// ensemble reads the attributes, of trees over rows of so many features.
func (c *call) ensemble(features int64) (*ensemble, error) {
	e := &ensemble{features: c.ints("nodes_featureids"), missing: c.ints("nodes_missing_value_tracks_true"), targets: c.ints("leaf_targetids"), roots: c.ints("tree_roots"),
		outputs: c.int("n_targets", 0), aggregate: c.int("aggregate_function", 1), end: c.int("post_transform", 0)}
	e.next = [2][]int64{c.ints("nodes_falsenodeids"), c.ints("nodes_truenodeids")}
	e.leaf = [2][]int64{c.ints("nodes_falseleafs"), c.ints("nodes_trueleafs")}
	var members *eval.Tensor
	for name, to := range map[string]**eval.Tensor{"nodes_modes": &e.modes, "nodes_splits": &e.splits, "leaf_weights": &e.weights, "membership_values": &members} {
		t, err := c.constant(name)
		if err != nil {
			return nil, err
		}
		if *to = t; t == nil && name != "membership_values" {
			return nil, fmt.Errorf("attribute %s is missing", name)
		}
	}
	n := len(e.features)
	for _, k := range []int{e.modes.Len(), e.splits.Len(), len(e.next[0]), len(e.next[1]), len(e.leaf[0]), len(e.leaf[1])} {
		if k != n {
			return nil, fmt.Errorf("nodes_featureids lists %d nodes, but another attribute lists %d", n, k)
		}
	}
	if e.missing != nil && len(e.missing) != n || e.modes.I == nil || e.splits.F == nil || e.weights.F == nil || e.weights.Len() != len(e.targets) || e.outputs < 1 {
		return nil, fmt.Errorf("the attributes do not fit together: %d leaves, %d weights, %d targets, %d nodes, %d flags for NaN", len(e.targets), e.weights.Len(), e.outputs, n, len(e.missing))
	}
	for i, f := range e.features {
		if m := e.modes.I[i]; f < 0 || f >= features || m < 0 || m >= numModes {
			return nil, fmt.Errorf("tree node %d has feature %d of %d and mode %d, which is out of range", i, f, features, m)
		}
	}
	for _, t := range e.targets {
		if t < 0 || t >= e.outputs {
			return nil, fmt.Errorf("target %d is out of range for %d targets", t, e.outputs)
		}
	}
	return e, e.sets(members)
}

// constant is the tensor of an attribute, nil where it is absent.
func (c *call) constant(name string) (*eval.Tensor, error) {
	a := c.n.Attr(name)
	if a == nil || a.T == nil {
		return nil, nil
	}
	t, err := c.run.s.model.Elements(a.T)
	if err != nil {
		return nil, fmt.Errorf("attribute %s: %w", name, err)
	}
	return t, nil
}

// sets divides the members of all sets, each of which ends in NaN, among the nodes that
// test membership.
func (e *ensemble) sets(members *eval.Tensor) error {
	e.members = map[int][]float64{}
	var rest []float64
	if members != nil {
		rest = members.F
	}
	for i, m := range e.modes.I {
		if m != modeMember {
			continue
		}
		end := slices.IndexFunc(rest, math.IsNaN)
		if end < 0 {
			return fmt.Errorf("tree node %d tests membership of a set that membership_values does not have", i)
		}
		e.members[i], rest = rest[:end], rest[end+1:]
	}
	return nil
}

// Aggregates of what the trees say.
const (
	aggregateAverage = iota
	aggregateSum
	aggregateMin
	aggregateMax
)

// predict adds up what the leaves say that a row reaches.
func (e *ensemble) predict(y, row []float64) error {
	switch e.aggregate {
	case aggregateAverage, aggregateSum:
	case aggregateMin:
		fill(y, math.MaxFloat32)
	case aggregateMax:
		fill(y, -math.MaxFloat32)
	default:
		return fmt.Errorf("aggregate_function is %d, want 0 to 3", e.aggregate)
	}
	for _, root := range e.roots {
		leaf, err := e.find(root, row)
		if err != nil {
			return err
		}
		to, w := &y[e.targets[leaf]], e.weights.F[leaf]
		switch e.aggregate {
		case aggregateAverage:
			*to += w / float64(len(e.roots))
		case aggregateSum:
			*to += w
		case aggregateMin:
			*to = min(*to, w)
		case aggregateMax:
			*to = max(*to, w)
		}
	}
	return e.transform(y)
}

func fill(y []float64, x float64) {
	for i := range y {
		y[i] = x
	}
}

// find is the leaf that a row reaches from a root. A root both of whose ways lead to one
// leaf is that leaf.
func (e *ensemble) find(at int64, row []float64) (int64, error) {
	for range len(e.features) {
		if at < 0 || at >= int64(len(e.features)) {
			return 0, fmt.Errorf("a tree refers to node %d, which does not exist", at)
		}
		way := 0
		if e.holds(int(at), row[e.features[at]]) {
			way = 1
		}
		next := e.next[way][at]
		if e.leaf[way][at] == 0 {
			at = next
			continue
		}
		if next < 0 || next >= int64(len(e.targets)) {
			return 0, fmt.Errorf("a tree refers to leaf %d, which does not exist", next)
		}
		return next, nil
	}
	return 0, fmt.Errorf("the nodes of a tree form a cycle")
}

// holds reports whether a feature fulfils the condition of a node.
func (e *ensemble) holds(node int, x float64) bool {
	if e.missing != nil && e.missing[node] != 0 && math.IsNaN(x) {
		return true
	}
	split := e.splits.F[node]
	switch e.modes.I[node] {
	case modeLessEqual:
		return x <= split
	case modeLess:
		return x < split
	case modeGreaterEqual:
		return x >= split
	case modeGreater:
		return x > split
	case modeEqual:
		return x == split
	case modeNotEqual:
		return x != split
	}
	return slices.Contains(e.members[node], x)
}

// transform is the function of a row of results that post_transform names.
func (e *ensemble) transform(y []float64) error {
	switch e.end {
	case 0: // none
	case 1: // softmax
		softmax(y, false)
	case 2: // logistic
		for i, x := range y {
			y[i] = 1 / (1 + math.Exp(-x))
		}
	case 3: // softmax of what is not zero
		softmax(y, true)
	case 4: // probit
		for i, x := range y {
			y[i] = math.Sqrt2 * math.Erfinv(2*x-1)
		}
	default:
		return fmt.Errorf("post_transform is %d, want 0 to 4", e.end)
	}
	return nil
}

// softmax normalizes a row; zeros stay zeros where spare says so.
func softmax(y []float64, spare bool) {
	most, sum := slices.Max(y), 0.0
	for i, x := range y {
		if spare && x == 0 {
			continue
		}
		y[i] = math.Exp(x - most)
		sum += y[i]
	}
	if sum == 0 {
		return
	}
	for i := range y {
		y[i] /= sum
	}
}

// binarizer says which elements are above a threshold, as 0 and 1.
func binarizer(c *call) ([]*Value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	y := eval.New(x.Type)
	for i := range x.Len() {
		if x.At(i) <= c.float("threshold", 0) || math.IsNaN(x.At(i)) {
			continue
		}
		if y.F != nil {
			y.F[i] = 1
		} else {
			y.I[i] = 1
		}
	}
	return []*Value{decoded(y)}, nil
}

// arrayFeatureExtractor picks elements of the last axis. A vector becomes a matrix of one row.
func arrayFeatureExtractor(c *call) ([]*Value, error) {
	at, err := c.tensor(1)
	if err != nil {
		return nil, err
	}
	if !c.has(0) || c.in[0].Kind != Tensor || at.I == nil {
		return nil, fmt.Errorf("operand 0 must be a tensor, and operand 1, which is %s, a tensor of integers", at.Type)
	}
	x := c.in[0]
	last := x.Type.Shape.Rank() - 1
	if last == 0 {
		x = x.reshaped(shapeOf(1, x.Type.Shape.Elements()))
		last = 1
	}
	if last < 0 || at.Len() == 0 {
		return nil, fmt.Errorf("operand 0 is %s and operand 1 %s, want an axis and at least one index", x.Type, at.Type)
	}
	n := int64(x.Type.Shape.Dim(last))
	var list []*Value
	for _, i := range at.I {
		if i < 0 || i >= n {
			return nil, fmt.Errorf("index %d is out of range for %d features", i, n)
		}
		list = append(list, x.slice(last, i, i+1))
	}
	return one(concat(list, last))
}
