package main

import (
	"encoding/json"
	"io"
	"math"

	"github.com/spf13/cobra"

	"ampc/ir"
)

// JSON forms of a graph, for scripts.
type graphJSON struct {
	Name   string     `json:"name"`
	Vars   []varJSON  `json:"vars"`
	Nodes  []nodeJSON `json:"nodes"`
	Return []string   `json:"return"`
}

type varJSON struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Type string `json:"type"`
	Init string `json:"init,omitempty"`
}

type nodeJSON struct {
	Section string         `json:"section"`
	Op      string         `json:"op"`
	In      []string       `json:"in"`
	Out     []string       `json:"out"`
	Types   []string       `json:"types"`
	Attrs   map[string]any `json:"attrs,omitempty"`
	Pin     string         `json:"pin,omitempty"`
	Cluster int32          `json:"cluster,omitempty"`
	Launch  int32          `json:"launch,omitempty"`
	Class   string         `json:"class,omitempty"`
	Cause   string         `json:"cause,omitempty"`
	From    string         `json:"from,omitempty"`
	Rule    string         `json:"rule,omitempty"`
	Pos     string         `json:"pos,omitempty"`
	Flops   int64          `json:"flops"`
	Bytes   int64          `json:"bytes"`
}

func describe(g *ir.Graph) graphJSON {
	out := graphJSON{Name: g.Name, Vars: []varJSON{}, Nodes: []nodeJSON{}, Return: names(g.Return)}
	for _, v := range g.Vars {
		d := varJSON{Name: v.Name, Kind: v.Kind.String(), Type: g.TypeString(v.Type)}
		if v.Init != nil {
			d.Init = v.Init.String()
		}
		out.Vars = append(out.Vars, d)
	}
	for s, n := range g.Nodes {
		out.Nodes = append(out.Nodes, describeNode(g, s, n))
	}
	return out
}

func describeNode(g *ir.Graph, s ir.Section, n *ir.Node) nodeJSON {
	cost := g.NodeCost(n)
	d := nodeJSON{
		Section: s.String(), Op: n.Def().Name, In: names(n.In), Out: names(n.Out), Types: []string{},
		Pin: n.Pin.String(), Cluster: n.Why.Cluster, Launch: n.Why.Launch, Cause: n.Why.Cause.String(), Rule: n.Why.Rule, Pos: n.Pos.String(),
		Flops: cost.Flops, Bytes: cost.Read + cost.Write,
	}
	if n.Why.Class != ir.NoClass {
		d.Class = n.Why.Class.String()
	}
	if n.Why.From != nil {
		d.From = n.Why.From.String()
	}
	for _, v := range n.Out {
		d.Types = append(d.Types, g.TypeString(v.Type))
	}
	for _, a := range n.Attrs {
		if d.Attrs == nil {
			d.Attrs = map[string]any{}
		}
		if t, ok := a.Value.(ir.DType); ok {
			d.Attrs[a.Name] = t.String()
		} else if sub, ok := a.Value.(*ir.Graph); ok {
			d.Attrs[a.Name] = describe(sub)
		} else {
			d.Attrs[a.Name] = a.Value
		}
	}
	return d
}

func names(vs []*ir.Value) []string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = v.String()
	}
	return out
}

// jsonFloat is a float in JSON; a value that is not finite is null.
type jsonFloat float64

func (x jsonFloat) MarshalJSON() ([]byte, error) {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

// addJSON adds the flag --json to a command that prints a table.
func addJSON(c *cobra.Command, asJSON *bool) {
	c.Flags().BoolVar(asJSON, "json", false, "print the result as JSON")
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
