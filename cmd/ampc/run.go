package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/npy"
	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/runtime"
)

func runCommand() *cobra.Command {
	var f modelFlags
	var seed int64
	var steps int
	var out, device string
	var asJSON bool
	c := command("run MODEL", "Run a model on given or random inputs and print its results", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if steps < 1 {
			return usagef("--steps %d: want 1 or more", steps)
		}
		if err := checkWritable(out); err != nil {
			return err
		}
		o, err := opened(c, args[0], &f, "run takes a source graph")
		if dynamic(err) {
			return onDevice(device, func(b runtime.Backend) error { return runPieces(c, args[0], &f, seed, b, out, asJSON) })
		}
		if err != nil {
			return err
		}
		feed, err := readInputs(f.arrays)
		if err != nil {
			return err
		}
		return onDevice(device, func(b runtime.Backend) error {
			if err := o.model.Set(ampc.On(b), ampc.Seed(seed)); err != nil {
				return err
			}
			return runModel(c, o, feed, seed, steps, out, asJSON)
		})
	})
	addJSON(c, &asJSON)
	f.add(c)
	fl := c.Flags()
	fl.Lookup("input").Usage, f.fed = tensorsHelp, true
	fl.Int64Var(&seed, "seed", 1, seedHelp)
	fl.IntVar(&steps, "steps", 1, "number of training steps, all on the same inputs, for a model with a loss")
	fl.StringVar(&device, "device", "cpu", deviceHelp)
	fl.StringVar(&out, "out", "", "write the results to this safetensors `FILE`")
	return c
}

func runModel(c *cobra.Command, o *openedModel, feed ampc.Feed, seed int64, steps int, out string, asJSON bool) error {
	defer o.model.Close()
	step, results, err := o.runnable(o.model.Graph())
	if err != nil {
		return err
	}
	micro, err := o.fill(step, feed, seed, "--input")
	if err != nil {
		return err
	}
	var last *ampc.Result
	for range steps {
		if last, err = step.Run(c.Context(), micro...); err != nil {
			return err
		}
	}
	for _, note := range o.model.Notes() {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", o.spec, note)
	}
	r, err := collect(c.Context(), o, last, results)
	if err != nil {
		return err
	}
	return r.write(c, o.spec, out, asJSON)
}

// runPieces is runModel for an ONNX model that is not a single graph.
func runPieces(c *cobra.Command, path string, f *modelFlags, seed int64, b runtime.Backend, out string, asJSON bool) error {
	feed, err := readInputs(f.arrays)
	if err != nil {
		return err
	}
	r, _, err := runSession(c, path, f, feed, seed, b)
	if err != nil {
		return err
	}
	return r.write(c, path, out, asJSON)
}

// write prints the results. It also saves them if out is not "".
func (r *runResult) write(c *cobra.Command, spec, out string, asJSON bool) error {
	show := r.print
	if asJSON {
		show = func(w io.Writer) error { return writeJSON(w, r) }
	}
	if err := show(c.OutOrStdout()); err != nil || out == "" {
		return err
	}
	return safetensors.WriteFile(out, map[string]string{"model": spec}, r.tensors)
}

// fill completes feed with random inputs, the same for every micro-batch. flag is the name of the
// flag that gave the inputs in feed.
func (o *openedModel) fill(step *ampc.Step, feed ampc.Feed, seed int64, flag string) ([]ampc.Feed, error) {
	g, full := o.model.Graph(), make(ampc.Feed)
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	for _, v := range step.Program().Vars {
		if v.Kind != ir.Input || v.Role() != "" {
			continue
		}
		if x, ok := feed[v.Name]; ok {
			full[v.Name] = x
		} else {
			full[v.Name] = randomInput(r, g, v.Name, v.Type)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(feed)) {
		if v := g.Var(name); v == nil || v.Kind != ir.Input {
			return nil, fmt.Errorf("%s %s: %s has no such input", flag, name, o.spec)
		}
	}
	micro := make([]ampc.Feed, max(o.config.Micro, 1))
	for i := range micro {
		micro[i] = full
	}
	return micro, nil
}

// runnable compiles a training step if there is a loss, otherwise inference of the graph's results.
func (o *openedModel) runnable(g *ir.Graph) (*ampc.Step, []ampc.Tensor, error) {
	if err := cmp.Or(o.kernels(), o.checkHasOutput(), o.bound()); err != nil {
		return nil, nil, err
	}
	var results []ampc.Tensor
	for _, v := range g.Return {
		results = append(results, o.model.FromIR(v))
	}
	if len(o.losses) == 0 {
		if o.zoo != nil {
			results = []ampc.Tensor{o.zoo.Output}
		}
		step, err := o.model.Infer(ampc.InferConfig{Policy: o.config.Policy, Sizes: o.config.Sizes, Compile: o.config.Compile}, results...)
		return step, results, err
	}
	for _, l := range o.losses {
		results = append(results, l.Value)
	}
	step, err := o.model.Train(o.config, o.losses...)
	limitHeap()
	return step, results, err
}

// runResult is the JSON form of a run.
type runResult struct {
	Results []resultRow `json:"results"`
	Loss    *jsonFloat  `json:"loss,omitempty"` // training steps only, like the next two
	Scale   *jsonFloat  `json:"scale,omitempty"`
	Skipped *bool       `json:"skipped,omitempty"`
	tensors []safetensors.Tensor
}

// resultRow summarizes the finite elements of a tensor; a statistic is null if there are none.
type resultRow struct {
	Name      string    `json:"name"`
	Type      string    `json:"type"`
	Elements  int       `json:"elements"`
	Min       jsonFloat `json:"min"`
	Max       jsonFloat `json:"max"`
	Mean      jsonFloat `json:"mean"`
	NotFinite int       `json:"not_finite"`
	first     float64
}

func collect(ctx context.Context, o *openedModel, r *ampc.Result, results []ampc.Tensor) (*runResult, error) {
	out := &runResult{}
	seen := map[string]bool{}
	for _, t := range results {
		if seen[t.Name()] {
			continue
		}
		seen[t.Name()] = true
		h, err := r.Value(t)
		if err != nil {
			return nil, err
		}
		out.Results = append(out.Results, describeHost(t.Name(), h))
		shape := []int64{}
		for _, d := range h.Type.Shape() {
			shape = append(shape, int64(d))
		}
		out.tensors = append(out.tensors, safetensors.Tensor{Name: t.Name(), DType: safetensors.Named(h.Type.DType().String()), Shape: shape, Write: safetensors.Bytes(h.Bytes)})
	}
	if len(o.losses) > 0 {
		got, err := r.Wait(ctx)
		if err != nil {
			return nil, err
		}
		loss, scale, skipped := jsonFloat(got.Loss), jsonFloat(got.Scale), got.Skipped
		out.Loss, out.Scale, out.Skipped = &loss, &scale, &skipped
	}
	return out, nil
}

// describeHost summarizes one tensor.
func describeHost(name string, h ampc.HostTensor) resultRow {
	n := h.Len()
	lo, hi, sum, bad := math.Inf(1), math.Inf(-1), 0.0, 0
	for i := range n {
		x := h.At(i)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			bad++
			continue
		}
		lo, hi, sum = min(lo, x), max(hi, x), sum+x
	}
	r := resultRow{Name: name, Type: h.Type.String(), Elements: n, Min: jsonFloat(lo), Max: jsonFloat(hi), Mean: jsonFloat(sum / float64(n-bad)), NotFinite: bad}
	if n > 0 {
		r.first = h.At(0)
	}
	return r
}

func (r *runResult) print(w io.Writer) error {
	for _, x := range r.Results {
		fmt.Fprintln(w, x)
	}
	if r.Loss == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "loss %g, scale %g, skipped %t\n", float64(*r.Loss), float64(*r.Scale), *r.Skipped)
	return err
}

func (r resultRow) String() string {
	switch {
	case r.Elements == 1:
		return fmt.Sprintf("%s : %s = %g", ir.Printable(r.Name), r.Type, r.first)
	case r.NotFinite == r.Elements:
		return fmt.Sprintf("%s : %s  %d not finite", ir.Printable(r.Name), r.Type, r.NotFinite)
	}
	s := fmt.Sprintf("%s : %s  min %.6g  max %.6g  mean %.6g", ir.Printable(r.Name), r.Type, float64(r.Min), float64(r.Max), float64(r.Mean))
	if r.NotFinite > 0 {
		s += fmt.Sprintf("  %d not finite", r.NotFinite)
	}
	return s
}

// randomInput draws floats from a normal distribution, and integers from the range that their
// readers accept.
func randomInput(r *rand.Rand, g *ir.Graph, name string, t ir.Type) any {
	return randomElements(r, t, indexBound(g, name))
}

// randomElements draws elements of t. Integers are below bound, as far as the type can hold them.
func randomElements(r *rand.Rand, t ir.Type, bound int64) any {
	n := int(t.Shape.Elements())
	switch d := t.DType; {
	case d == ir.F32:
		return randomValues(n, func() float32 { return float32(r.NormFloat64()) })
	case d.Float():
		return randomValues(n, r.NormFloat64)
	case d == ir.Bool:
		return randomValues(n, func() bool { return r.IntN(2) == 1 })
	}
	if _, most := t.DType.Limits(); most > 0 {
		bound = min(bound, most)
	}
	if t.DType == ir.I32 {
		return randomValues(n, func() int32 { return int32(r.Int64N(bound)) })
	}
	return randomValues(n, func() int64 { return r.Int64N(bound) })
}

// randomValues returns n values of next.
func randomValues[T any](n int, next func() T) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = next()
	}
	return x
}

// indexBound returns how many values an integer input may take: the rows of a table that it
// indexes, or the classes that it labels.
func indexBound(g *ir.Graph, name string) int64 {
	bound := int64(256)
	ids := map[*ir.Value]bool{g.Var(name): true} // negative indices, converted to positive ones by an import, count, too
	for _, n := range g.Nodes {
		if n.Op == ir.OpWhere && len(n.In) > 2 && ids[n.In[2]] {
			ids[n.Out[0]] = true
		}
		for i, x := range n.In {
			if x == nil || !ids[x] || !n.OperandDef(i).Selects || !n.In[0].Type.Shape.Known() {
				continue
			}
			s := n.In[0].Type.Shape
			if size := int64(s.Dim(n.Axis())); size > 0 { // other dimensions may be symbolic
				bound = min(bound, size)
			}
		}
	}
	return max(bound, 1)
}

// readInputs reads the arrays that --input names.
func readInputs(specs []string) (ampc.Feed, error) {
	feed := ampc.Feed{}
	for _, spec := range specs {
		name, path, named := strings.Cut(spec, "=")
		if !named {
			name, path = "", spec
		}
		arrays, err := readArrays(path)
		if err != nil {
			return nil, err
		}
		for key, h := range arrays {
			if key == "" || named && strings.HasSuffix(path, ".pb") {
				key = name
			}
			if key == "" {
				return nil, fmt.Errorf("%s: holds one array without a name: give NAME=%s", path, path)
			}
			if _, twice := feed[key]; twice {
				return nil, fmt.Errorf("%s: input %s was given before", path, key)
			}
			feed[key] = h
		}
	}
	return feed, nil
}

func readArrays(path string) (map[string]ampc.HostTensor, error) {
	out := map[string]ampc.HostTensor{}
	if strings.HasSuffix(path, ".pb") {
		return readTensor(path)
	}
	if !strings.HasSuffix(path, ".safetensors") {
		arrays, err := npy.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for name, a := range arrays {
			out[name] = host(a.DType, a.Shape, a.Data)
		}
		return out, nil
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, t := range f.Tensors {
		data := make([]byte, t.Bytes())
		if err := f.Read(t.Name, data); err != nil {
			return nil, err
		}
		out[t.Name] = host(strings.ToLower(string(t.DType)), t.Shape, data)
	}
	return out, nil
}

// host makes a tensor of a file's array. An unsupported element type gives an invalid tensor, which
// the step rejects.
func host(dtype string, shape []int64, data []byte) ampc.HostTensor {
	d, _ := ir.DTypeOf(dtype)
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		dims[i] = ir.Dim(n)
	}
	return ampc.HostTensor{Type: ampc.TypeFromIR(ir.T(d, dims...)), Bytes: data}
}
