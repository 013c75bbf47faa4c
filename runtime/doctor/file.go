package doctor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/runtime"
)

// Keys of a replay file's metadata. The names of its tensors are statePrefix and a variable, or
// feedPrefix, the number of a micro-batch and an input.
const (
	metaFormat    = "ampc.replay"
	metaGraph     = "ampc.graph"
	metaPositions = "ampc.positions"
	metaPolicy    = "ampc.policy"
	metaSkips     = "ampc.skips"
	metaSeed      = "ampc.seed"
	metaNotes     = "ampc.notes"
	metaLosses    = "ampc.losses"
	metaF32       = "ampc.f32" // names of nodes with ir.MarkAlwaysF32
	format        = "1"
	statePrefix   = "state/"
	feedPrefix    = "feed/"
)

// position is the file and line that built a value, which the text form does not have.
type position struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// Save writes the case in the safetensors layout: the graph in text form,
// variables and feeds. The file is complete or does not appear.
func (c *Case) Save(path string) error {
	at := map[string]position{}
	note := func(name string, p ir.Pos) {
		if p.File != "" {
			at[name] = position(p)
		}
	}
	var tensors []safetensors.Tensor
	var wide []string
	for _, v := range c.Graph.Vars {
		note(v.Name, v.Pos)
		if data, ok := c.State[v.Name]; ok {
			tensors = append(tensors, tensor(statePrefix+v.Name, v.Type, data))
		}
	}
	for _, n := range c.Graph.Nodes {
		note(n.Name(), n.Pos)
		if n.Why.Has(ir.MarkAlwaysF32) {
			wide = append(wide, n.Name())
		}
		for _, c := range n.Why.Casts {
			note(c.Name, c.Pos)
		}
	}
	for i, f := range c.Feeds {
		for _, name := range slices.Sorted(maps.Keys(f)) {
			tensors = append(tensors, tensor(fmt.Sprintf("%s%d/%s", feedPrefix, i, name), f[name].Type, f[name].Data))
		}
	}
	positions, err := json.Marshal(at)
	if err != nil {
		return err
	}
	losses, err := json.Marshal(c.Losses)
	if err != nil {
		return err
	}
	meta := map[string]string{metaLosses: string(losses), metaFormat: format, metaGraph: c.Graph.String(), metaPositions: string(positions), metaPolicy: c.Policy,
		metaSkips: strconv.Itoa(c.Skips), metaSeed: strconv.FormatInt(c.Seed, 10), metaNotes: strings.Join(c.Notes, "\n"), metaF32: strings.Join(wide, "\n")}
	return safetensors.WriteFile(path, meta, tensors)
}

func tensor(name string, t ir.Type, data []byte) safetensors.Tensor {
	shape := []int64{}
	for _, d := range t.Shape.Dims() {
		shape = append(shape, int64(d))
	}
	return safetensors.Tensor{Name: name, DType: safetensors.Named(t.DType.String()), Shape: shape, Write: safetensors.Bytes(data)}
}

// Load reads what Save wrote. Custom ops of the graph must be given.
func Load(path string, custom ...*ir.Def) (*Case, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Meta[metaFormat] != format {
		return nil, fmt.Errorf("%s: not a replay of a step: metadata %s is %q, want %q", path, metaFormat, f.Meta[metaFormat], format)
	}
	if !f.Summed { // Save's files have one: its name was damaged
		return nil, fmt.Errorf("%s: damaged: the checksum is missing", path)
	}
	g, err := ir.Parse(path, []byte(f.Meta[metaGraph]), custom...)
	if err == nil {
		err = ir.Verify(g, ir.Ready)
	}
	if err != nil {
		return nil, cmp.Or(undefined(path, f.Meta[metaGraph], custom), err)
	}
	c := &Case{Graph: g, State: map[string][]byte{}, Policy: f.Meta[metaPolicy]}
	if c.Skips, err = strconv.Atoi(f.Meta[metaSkips]); err == nil {
		c.Seed, err = strconv.ParseInt(f.Meta[metaSeed], 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: damaged: skips %q and seed %q must be integers", path, f.Meta[metaSkips], f.Meta[metaSeed])
	}
	if l := f.Meta[metaLosses]; l != "" { // older files have none
		if err := json.Unmarshal([]byte(l), &c.Losses); err != nil {
			return nil, fmt.Errorf("%s: metadata %s: %w", path, metaLosses, err)
		}
	}
	if n := f.Meta[metaNotes]; n != "" {
		c.Notes = strings.Split(n, "\n")
	}
	if err := place(g, f.Meta[metaPositions]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	wide := map[string]bool{}
	for name := range strings.SplitSeq(f.Meta[metaF32], "\n") {
		wide[name] = true
	}
	for _, n := range g.Nodes {
		if wide[n.Name()] {
			n.Why.Marks |= ir.MarkAlwaysF32
		}
	}
	for _, info := range f.Tensors {
		data := make([]byte, info.Bytes())
		if err := f.Read(info.Name, data); err != nil {
			return nil, err
		}
		if err := c.take(info, data); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return c, nil
}

// undefined is the error of a custom op in a graph that is not among those given, nil where there is none.
func undefined(path, graph string, custom []*ir.Def) error {
	g, err := ir.ParseOpaque(path, []byte(graph))
	if err != nil {
		return nil
	}
	for _, n := range g.Nodes {
		given := func(d *ir.Def) bool { return d.Name == n.Custom.Name }
		if n.Op == ir.OpCustom && !slices.ContainsFunc(custom, given) {
			return fmt.Errorf("%s: @%s is a custom op, whose definition is in a Go program: diagnose the step there, by Step.Diagnose or by ampc.DiagnoseFile with that op", path, n.Custom.Name)
		}
	}
	return nil
}

// place replaces the positions of the text by those of the user's source.
func place(g *ir.Graph, positions string) error {
	at := map[string]position{}
	if err := json.Unmarshal([]byte(positions), &at); err != nil {
		return errors.New("damaged: the positions are not JSON")
	}
	for _, v := range g.Vars {
		v.Pos = ir.Pos(at[v.Name])
	}
	for _, n := range g.Nodes {
		n.Pos = ir.Pos(at[n.Name()])
		for i := range n.Why.Casts {
			n.Why.Casts[i].Pos = ir.Pos(at[n.Why.Casts[i].Name])
		}
	}
	return nil
}

// take adds a tensor to the variables or feeds by its name.
func (c *Case) take(info safetensors.Info, data []byte) error {
	if name, ok := strings.CutPrefix(info.Name, statePrefix); ok {
		c.State[name] = data
		return nil
	}
	rest, _ := strings.CutPrefix(info.Name, feedPrefix)
	number, name, _ := strings.Cut(rest, "/")
	i, err := strconv.Atoi(number)
	v := c.Graph.Var(name)
	if err != nil || i < 0 || i > 1<<16 || v == nil || v.Kind != ir.Input {
		return fmt.Errorf("tensor %s is neither a variable nor a feed of the graph", info)
	}
	for len(c.Feeds) <= i {
		c.Feeds = append(c.Feeds, runtime.Feed{})
	}
	c.Feeds[i][name] = runtime.Tensor{Type: v.Type, Data: data}
	return nil
}
