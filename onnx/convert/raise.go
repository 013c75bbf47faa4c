package convert

import (
	"cmp"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/onnx"
)

// adapt rewrites an operator of an older opset in the form of a newer one. It returns "" or the
// reason why that is not possible.
type adapt struct {
	since int64 // the opset that changed the form or the meaning
	write func(r *raising, i int, n *onnx.Node) string
}

// adapts are the operators of opsets 7 to 22 whose newer versions do not take the
// nodes of older ones as they are: Changelog.md of github.com/onnx/onnx.
var adapts = map[string][]adapt{
	"Softmax": {{13, flattened}}, "LogSoftmax": {{13, flattened}}, "Hardmax": {{13, flattened}},
	"Squeeze": {{13, axesOperand}}, "Unsqueeze": {{13, axesOperand}}, "ReduceSum": {{13, axesOperand}},
	"ReduceMean": {{18, axesOperand}}, "ReduceMax": {{18, axesOperand}}, "ReduceMin": {{18, axesOperand}}, "ReduceProd": {{18, axesOperand}}, "ReduceL1": {{18, axesOperand}},
	"ReduceL2": {{18, axesOperand}}, "ReduceLogSum": {{18, axesOperand}}, "ReduceLogSumExp": {{18, axesOperand}}, "ReduceSumSquare": {{18, axesOperand}},
	"Split": {{13, splitOperand}, {18, splitCount}}, "Clip": {{11, clipOperands}}, "Pad": {{11, padOperands}}, "Slice": {{10, sliceOperands}}, "TopK": {{10, topKOperand}},
	"Dropout": {{12, dropoutOperand}}, "Upsample": {{10, upsampled}}, "Resize": {{11, resized}, {13, resizeMode}}, "Scatter": {{11, scattered}},
	"BatchNormalization": {{9, refused("spatial")}, {14, inferenceOnly}}, "GroupNormalization": {{21, perChannel}},
	"RoiAlign": {{16, always}}, "GridSample": {{20, always}}, "DFT": {{20, always}},
}

// raising is the state while a model is raised to a later opset.
type raising struct {
	m    *onnx.Model
	x    *onnx.Imported
	edit *onnx.Edit
	made int
	seen map[string]bool
}

// unread are operators that are read by none of the importer's rows and mean the same
// in all opsets from the one that is given.
var unread = map[string]int64{
	"Loop": 1, "Scan": 9, "NonZero": 9, "Compress": 9, "Unique": 11, "NonMaxSuppression": 10, "SequenceEmpty": 11, "SequenceConstruct": 11, "SequenceAt": 11, "SequenceInsert": 11,
	"SequenceErase": 11, "SequenceLength": 11, "SequenceMap": 17, "SplitToSequence": 11, "ConcatFromSequence": 11, "Optional": 15, "OptionalHasElement": 15, "OptionalGetElement": 15,
	"GridSample": 16, "DFT": 17, "STFT": 17, "Col2Im": 18, "DeformConv": 19, "RoiAlign": 10, "MaxUnpool": 9, "Det": 11, "TfIdfVectorizer": 9,
}

// Raise gives the model m, imported as x, the operators of a later opset, and every
// node the form that it has there, in functions and graphs of nodes as well. The
// tensors of the result are those of m.
func Raise(m *onnx.Model, x *onnx.Imported, opset int64) (*onnx.Model, error) {
	from := m.Opsets[""]
	refuse := func(format string, args ...any) (*onnx.Model, error) {
		return nil, fmt.Errorf("the model cannot be raised from opset %d to %d: %s", from, opset, fmt.Sprintf(format, args...))
	}
	if from < 7 {
		return refuse("before opset 7 operands broadcast by attributes")
	}
	s := findUnits(m, x)
	seen, edits := map[string]bool{}, map[*unit]*onnx.Edit{}
	named(m.Graph.Nodes, seen)
	for _, f := range m.Functions {
		named(f.Nodes, seen)
	}
	for _, u := range s.all {
		r := newRaising(u.m, u.x, seen)
		edits[u] = r.edit
		for i, n := range u.m.Graph.Nodes {
			if u.calls[i] != nil || n.Domain != "" {
				continue
			}
			if why := r.node(i, n, from, opset); why != "" {
				return refuse("%snode %d (%s)%s", u.path, i, ir.Printable(n.Op), why)
			}
			for _, k := range u.subgraphs[i] {
				if k.unit != nil {
					continue
				}
				if why := r.untyped(k.g, from, opset); why != "" {
					return refuse("%snode %d: its branch: %s", u.path, i, why)
				}
			}
		}
	}
	main := edits[s.all[0]]
	for _, u := range slices.Backward(s.all) {
		for _, subgraphs := range u.subgraphs {
			for _, k := range subgraphs {
				if k.unit != nil && !edits[k.unit].Empty() {
					edits[u].Graphs[k.g] = edits[k.unit]
				}
			}
		}
	}
	for _, f := range m.Functions {
		known := s.functions[f]
		switch {
		case f.Opsets[""] == 0 || f.Opsets[""] >= opset:
		case known == nil:
			main.Functions[f] = &onnx.Edit{} // nothing calls it
		case known.unit == nil:
			return refuse("function %q has values without a type", f.Name)
		default:
			main.Functions[f] = edits[known.unit]
		}
		if e := main.Functions[f]; e != nil {
			e.Opset = opset
		}
	}
	main.Opset = opset
	return m.Edited(main)
}

// named collects the results of nodes, and of those in their graphs.
func named(nodes []*onnx.Node, seen map[string]bool) {
	for _, n := range nodes {
		for _, y := range n.Out {
			seen[y] = true
		}
		for _, a := range n.Attrs {
			if a.G != nil {
				named(a.G.Nodes, seen)
			}
		}
	}
}

func newRaising(m *onnx.Model, x *onnx.Imported, seen map[string]bool) *raising {
	return &raising{m: m, x: x, seen: seen, edit: &onnx.Edit{Nodes: map[int]onnx.NodeEdit{}, Before: map[int][]onnx.NewNode{}, After: map[int][]onnx.NewNode{}, Graphs: map[*onnx.Graph]*onnx.Edit{}, Functions: map[*onnx.Function]*onnx.Edit{}}}
}

// node gives a node the form of an opset. It returns "" or why that is
// not possible, to stand behind the node's name.
func (r *raising) node(i int, n *onnx.Node, from, to int64) string {
	if since, ok := unread[n.Op]; !onnx.Known(n.Op) && !(ok && since <= from) {
		return " may compute something else there"
	}
	for _, a := range adapts[n.Op] {
		if a.since <= from || a.since > to {
			continue
		}
		if why := a.write(r, i, n); why != "" {
			return ": " + why
		}
	}
	return ""
}

// untyped raises a graph the types of whose values are not known, such as a branch for other
// sizes than those that are given. Most forms need none.
func (r *raising) untyped(g *onnx.Graph, from, to int64) string {
	in := newRaising(r.m.Body(g, r.m.Opsets), &onnx.Imported{}, r.seen)
	for i, n := range g.Nodes {
		if n.Domain != "" {
			continue
		}
		if why := in.node(i, n, from, to); why != "" {
			return fmt.Sprintf("node %d (%s)%s", i, ir.Printable(n.Op), why)
		}
		for _, a := range n.Attrs {
			if a.G == nil {
				continue
			}
			if why := in.untyped(a.G, from, to); why != "" {
				return fmt.Sprintf("node %d: %s", i, why)
			}
		}
	}
	if !in.edit.Empty() {
		r.edit.Graphs[g] = in.edit
	}
	return ""
}

func attr(n *onnx.Node, name string) *onnx.Attribute {
	for _, a := range n.Attrs {
		if a.Name == name {
			return a
		}
	}
	return nil
}

func (r *raising) fresh(n *onnx.Node, what string) string {
	base := "raised"
	if len(n.Out) > 0 && n.Out[0] != "" {
		base = n.Out[0]
	}
	name := base + "." + what
	for r.seen[name] {
		r.made++
		name = fmt.Sprintf("%s.%s_%d", base, what, r.made)
	}
	r.seen[name] = true
	return name
}

// ints and float are new initializers; scalar is one of a value's dtype.
func (r *raising) ints(n *onnx.Node, what string, v ...int64) string {
	name := r.fresh(n, what)
	r.edit.Inits = append(r.edit.Inits, onnx.NewInit{Name: name, NewTensor: onnx.Ints(v...)})
	return name
}

func (r *raising) floats(n *onnx.Node, what string, d ir.DType, dims []int64, v ...float64) string {
	name := r.fresh(n, what)
	r.edit.Inits = append(r.edit.Inits, onnx.NewInit{Name: name, NewTensor: onnx.Floats(d, dims, v...)})
	return name
}

// flattened: before opset 13 all axes from axis on were normalized together.
func flattened(r *raising, i int, n *onnx.Node) string {
	t, known := r.x.Types[n.In[0]]
	if !known || !t.Shape.Known() {
		return "the rank of its operand is not known"
	}
	axis, rank := int64(1), int64(t.Shape.Rank())
	if a := attr(n, "axis"); a != nil {
		axis = a.I
	}
	if axis < 0 {
		axis += rank
	}
	e := onnx.NodeEdit{Drop: []string{"axis"}, Attrs: []onnx.NewAttr{{Name: "axis", Value: int64(-1)}}}
	if axis != rank-1 {
		flat, y, shape := r.fresh(n, "flat"), r.fresh(n, "rows"), r.fresh(n, "shape")
		r.edit.Before[i] = append(r.edit.Before[i], onnx.NewNode{Name: flat, Op: "Flatten", In: n.In[:1], Out: []string{flat}, Attrs: []onnx.NewAttr{{Name: "axis", Value: axis}}},
			onnx.NewNode{Name: shape, Op: "Shape", In: n.In[:1], Out: []string{shape}})
		e.In, e.Out = []string{flat}, []string{y}
		r.edit.After[i] = append(r.edit.After[i], onnx.NewNode{Name: n.Out[0] + ".back", Op: "Reshape", In: []string{y, shape}, Out: n.Out[:1]})
	}
	r.edit.Nodes[i] = e
	return ""
}

// operand makes an attribute of integers an operand.
func (r *raising) operand(i int, n *onnx.Node, name string) {
	if a := attr(n, name); a != nil {
		list := a.Ints
		if a.Type == onnx.AttrInt {
			list = []int64{a.I}
		}
		r.edit.Nodes[i] = onnx.NodeEdit{Drop: []string{name}, In: []string{n.In[0], r.ints(n, name, list...)}}
	}
}

func axesOperand(r *raising, i int, n *onnx.Node) string {
	r.operand(i, n, "axes")
	return ""
}

func splitOperand(r *raising, i int, n *onnx.Node) string {
	r.operand(i, n, "split")
	return ""
}

func topKOperand(r *raising, i int, n *onnx.Node) string {
	r.operand(i, n, "k")
	return ""
}

// splitCount: from opset 18 on equal parts are counted.
func splitCount(r *raising, i int, n *onnx.Node) string {
	if _, sized := r.edit.Nodes[i]; !sized && len(n.In) < 2 {
		r.edit.Nodes[i] = onnx.NodeEdit{Attrs: []onnx.NewAttr{{Name: "num_outputs", Value: int64(len(n.Out))}}}
	}
	return ""
}

// noType is why a constant beside an operand cannot be written.
const noType = "the type of its operand is not known"

func clipOperands(r *raising, i int, n *onnx.Node) string {
	in := []string{n.In[0], "", ""}
	d := r.x.Types[n.In[0]].DType
	for k, name := range []string{"min", "max"} {
		a := attr(n, name)
		if a != nil && d == ir.Invalid {
			return noType
		}
		if a != nil {
			in[k+1] = r.floats(n, name, d, nil, float64(a.F))
		}
	}
	r.edit.Nodes[i] = onnx.NodeEdit{Drop: []string{"min", "max"}, In: in}
	return ""
}

func padOperands(r *raising, i int, n *onnx.Node) string {
	pads := attr(n, "pads")
	if pads == nil {
		return "it has no pads"
	}
	in := []string{n.In[0], r.ints(n, "pads", pads.Ints...)}
	if a := attr(n, "value"); a != nil && a.F != 0 {
		d := r.x.Types[n.In[0]].DType
		if d == ir.Invalid {
			return noType
		}
		in = append(in, r.floats(n, "value", d, nil, float64(a.F)))
	}
	r.edit.Nodes[i] = onnx.NodeEdit{Drop: []string{"pads", "value"}, In: in}
	return ""
}

func sliceOperands(r *raising, i int, n *onnx.Node) string {
	starts, ends, axes := attr(n, "starts"), attr(n, "ends"), attr(n, "axes")
	if starts == nil || ends == nil {
		return "it has no starts or ends"
	}
	in := []string{n.In[0], r.ints(n, "starts", starts.Ints...), r.ints(n, "ends", ends.Ints...)}
	if axes != nil {
		in = append(in, r.ints(n, "axes", axes.Ints...))
	}
	r.edit.Nodes[i] = onnx.NodeEdit{Drop: []string{"starts", "ends", "axes"}, In: in}
	return ""
}

// dropoutOperand leaves the ratio out: outside training nothing reads it. The mask has another type
// there; one that is only named is left out, too.
func dropoutOperand(r *raising, i int, n *onnx.Node) string {
	e := onnx.NodeEdit{Drop: []string{"ratio"}}
	if len(n.Out) > 1 {
		if r.read(n.Out[1]) {
			return "its mask is read"
		}
		e.Out = n.Out[:1]
	}
	r.edit.Nodes[i] = e
	return ""
}

// read reports whether a value is an output, or a node reads it.
func (r *raising) read(name string) bool {
	g := r.m.Graph
	return slices.ContainsFunc(g.Outputs, func(y *onnx.Info) bool { return y.Name == name }) ||
		slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool { return slices.Contains(n.Reads(), name) })
}

// sampled are the attributes of a Resize that reads as Upsample and Resize did before opset 11, or
// why there are none.
func (r *raising) sampled(n *onnx.Node, scales []float64) (attrs []onnx.NewAttr, why string) {
	attrs = []onnx.NewAttr{{Name: "coordinate_transformation_mode", Value: "asymmetric"}}
	if a := attr(n, "mode"); a != nil && a.S != "nearest" {
		return attrs, ""
	}
	if len(scales) == 0 {
		return nil, "its scales are not known, on which the nearest element depends"
	}
	mode := ""
	for _, s := range scales {
		m := onnx.NearestBefore11(s)
		if s != 1 && mode != "" && m != mode {
			return nil, "it enlarges one axis and shrinks another, for which no nearest_mode takes the same elements there"
		}
		if s != 1 {
			mode = m
		}
	}
	return append(attrs, onnx.NewAttr{Name: "nearest_mode", Value: cmp.Or(mode, "floor")}), ""
}

func upsampled(r *raising, i int, n *onnx.Node) string {
	e := onnx.NodeEdit{Op: "Resize", Drop: []string{"scales"}}
	var scales []float64
	switch a := attr(n, "scales"); {
	case len(n.In) > 1:
		scales = r.known(n.In[1])
		e.In = []string{n.In[0], "", n.In[1]}
	case a != nil:
		for _, f := range a.Floats {
			scales = append(scales, float64(f))
		}
		e.In = []string{n.In[0], "", r.floats(n, "scales", ir.F32, []int64{int64(len(scales))}, scales...)}
	default:
		return "it has no scales"
	}
	attrs, why := r.sampled(n, scales)
	e.Attrs = attrs
	r.edit.Nodes[i] = e
	return why
}

func resized(r *raising, i int, n *onnx.Node) string {
	attrs, why := r.sampled(n, r.known(n.In[1]))
	r.edit.Nodes[i] = onnx.NodeEdit{In: []string{n.In[0], "", n.In[1]}, Attrs: attrs}
	return why
}

// known are the elements of a value of the main graph, nil if they are not known.
func (r *raising) known(name string) []float64 {
	if k := r.x.Known[name]; k != nil {
		return k.F
	}
	return nil
}

func resizeMode(_ *raising, _ int, n *onnx.Node) string {
	if a := attr(n, "coordinate_transformation_mode"); a != nil && a.S == "tf_half_pixel_for_nn" {
		return "there is no mode tf_half_pixel_for_nn there"
	}
	return ""
}

func scattered(r *raising, i int, _ *onnx.Node) string {
	r.edit.Nodes[i] = onnx.NodeEdit{Op: "ScatterElements"}
	return ""
}

// perChannel: from opset 21 on scale and bias are given per channel, not per group.
func perChannel(r *raising, i int, n *onnx.Node) string {
	t, groups := r.x.Types[n.In[0]], attr(n, "num_groups")
	if !t.Shape.Known() || t.Shape.Rank() < 2 || t.Shape.Dims()[1] < 0 || groups == nil || groups.I < 1 {
		return "the number of its channels is not known"
	}
	c := int64(t.Shape.Dims()[1])
	in := slices.Clone(n.In)
	for k := 1; k < 3; k++ {
		up, wide, flat := r.fresh(n, "group"), r.fresh(n, "groups"), r.fresh(n, "channels")
		r.edit.Before[i] = append(r.edit.Before[i],
			onnx.NewNode{Name: up, Op: "Reshape", In: []string{in[k], r.ints(n, "column", groups.I, 1)}, Out: []string{up}},
			onnx.NewNode{Name: wide, Op: "Expand", In: []string{up, r.ints(n, "sizes", groups.I, c/groups.I)}, Out: []string{wide}},
			onnx.NewNode{Name: flat, Op: "Reshape", In: []string{wide, r.ints(n, "row", c)}, Out: []string{flat}})
		in[k] = flat
	}
	r.edit.Nodes[i] = onnx.NodeEdit{In: in}
	return ""
}

// inferenceOnly leaves out statistics that are only named.
func inferenceOnly(r *raising, i int, n *onnx.Node) string {
	if len(n.Out) < 2 {
		return ""
	}
	if slices.ContainsFunc(n.Out[1:], r.read) {
		return "its statistics are read"
	}
	e := r.edit.Nodes[i]
	e.Out = n.Out[:1]
	r.edit.Nodes[i] = e
	return ""
}

// refused is an operator that cannot be said with an attribute.
func refused(name string) func(*raising, int, *onnx.Node) string {
	return func(r *raising, i int, n *onnx.Node) string {
		if a := attr(n, name); a != nil && a.I == 0 {
			return name + " is 0"
		}
		r.edit.Nodes[i] = onnx.NodeEdit{Drop: []string{name}}
		return ""
	}
}

func always(*raising, int, *onnx.Node) string { return "it has other defaults there" }
