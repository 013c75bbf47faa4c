package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/gpu"
)

// chosenRow is a matrix product of a model, or a graph of cuDNN, and the algorithm or the engine that a
// device selected for it.
type chosenRow struct {
	Problem   string    `json:"problem"`
	Steps     int       `json:"steps"`
	Algorithm [8]uint64 `json:"algorithm"`
	Engine    string    `json:"engine,omitempty"`
	Workspace int64     `json:"workspace_bytes"`
	Tried     int       `json:"tried"`
	Kept      bool      `json:"kept"`
	NS        int64     `json:"ns"`
}

// algorithms loads a model on a device and lists the algorithms of its products.
func algorithms(c *cobra.Command, spec, device string, f modelFlags) ([]chosenRow, error) {
	backend, err := openDevice(device)
	if err != nil {
		return nil, err
	}
	b, ok := backend.(*gpu.Backend)
	if !ok {
		return nil, usagef("--device %s: the CPU's products have one algorithm; give a GPU", device)
	}
	defer b.Close()
	o, err := open(c, spec)
	if err != nil {
		return nil, err
	}
	if err := o.apply(&f); err != nil {
		return nil, err
	}
	for again := true; again; {
		g := o.model.Graph()
		if !o.compiled {
			if g, err = o.compile(func(p *passes.Config) { p.Caps = b.Target().Caps() }); err != nil {
				return nil, err
			}
		}
		if again, err = load(g, b); err != nil {
			return nil, err
		}
	}
	var rows []chosenRow
	for _, x := range b.Chosen() {
		rows = append(rows, chosenRow{x.Problem, x.Steps, x.Algo.Words, x.Name, x.Algo.Workspace, x.Tried, x.Kept, int64(x.Time)})
	}
	return rows, nil
}

// load makes b select an algorithm for every product of g. It is to be called again, with the graph
// compiled for the target that b has then, if b refused what its library does not run.
func load(g *ir.Graph, b *gpu.Backend) (again bool, err error) {
	p, err := lower.Lower(g, b.Target())
	if err != nil {
		return false, err
	}
	store, err := b.NewStore(p.Vars)
	if err != nil {
		return false, err
	}
	defer store.Close()
	e, err := b.Load(p, store)
	if _, again := runtime.FallBack(b, err); again {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, e.Close()
}

func printAlgorithms(out io.Writer, rows []chosenRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "steps\tproduct\talgorithm\tworkspace\ttime\tchosen")
	for _, r := range rows {
		how, name := fmt.Sprintf("fastest of %d", r.Tried), fmt.Sprintf("%x", r.Algorithm[0])
		if r.Engine != "" {
			name = r.Engine
		}
		switch {
		case r.Kept:
			how += ", kept"
		case r.Tried == 0:
			how = "first guess"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%v\t%s\n", r.Steps, r.Problem, name, ir.Bytes(r.Workspace), time.Duration(r.NS), how)
	}
	return w.Flush()
}
