package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ampc/cuda"
	"ampc/ir"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime/cpu"
)

func opsCommand() *cobra.Command {
	var asJSON bool
	c := command("ops [NAME...]", "List all ops with their classes and the reasons", cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
		ops := ir.Ops()
		if len(args) > 0 {
			ops = nil
			for _, name := range args {
				op, ok := ir.OpNamed(name)
				if !ok {
					return usagef("no op %q; ampc ops lists them", name)
				}
				ops = append(ops, op)
			}
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), opRows(ops))
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "OP\tFAMILY\tCLASS\tWHY\tDOES")
		for _, r := range opRows(ops) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Name, r.Family, r.Class, r.Why, r.Doc)
		}
		return w.Flush()
	})
	addJSON(c, &asJSON)
	return c
}

type opRow struct {
	Name   string `json:"name"`
	Family string `json:"family"`
	Class  string `json:"class"`
	Why    string `json:"why"`
	Doc    string `json:"doc"`
}

func opRows(ops []ir.Op) []opRow {
	rows := make([]opRow, len(ops))
	for i, op := range ops {
		d := op.Def()
		rows[i] = opRow{d.Name, d.Family, d.Class.String(), d.Why, d.Doc}
	}
	return rows
}

type passRow struct {
	Name   string `json:"name"`
	Leaves string `json:"leaves"` // the stage of the graph after the pass
	Doc    string `json:"doc"`
}

func passesCommand() *cobra.Command {
	var asJSON bool
	c := command("passes", "List the passes in the order in which they run", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		if asJSON {
			var rows []passRow
			for _, p := range passes.Pipeline() {
				rows = append(rows, passRow{p.Name, p.Stage.String(), p.Doc})
			}
			return writeJSON(c.OutOrStdout(), rows)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "PASS\tLEAVES\tDOES")
		for _, p := range passes.Pipeline() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.Stage, p.Doc)
		}
		return w.Flush()
	})
	addJSON(c, &asJSON)
	return c
}

// machine is the JSON form of devices.
type machine struct {
	CPU struct {
		Kernels  string   `json:"kernels"`
		Sets     []string `json:"kernel_sets"`       // values of AMPC_CPU, the default first
		Refused  string   `json:"refused,omitempty"` // a kernel set that the operating system disables for this process
		Composed bool     `json:"kernels_composed_at_load"`
		NoCode   string   `json:"composing_refused,omitempty"` // why kernels cannot be composed, where the processor has them
		Platform string   `json:"platform"`
		Threads  int      `json:"threads"`
		Nodes    int      `json:"numa_nodes"` // on which workers run; 1 also where the system shows none
		Pinned   bool     `json:"workers_pinned"`
		Caches   caches   `json:"caches"`
	} `json:"cpu"`
	CUDA struct {
		Libraries []libraryRow `json:"libraries"`
		Devices   []gpuRow     `json:"devices"`
		Problem   string       `json:"problem,omitempty"` // why no device is usable
		Advice    string       `json:"advice,omitempty"`
	} `json:"cuda"`
}

// caches is what one processor has of its caches, in bytes; 0: the system does not say.
type caches struct {
	Second int `json:"second_level_bytes"`
	Last   int `json:"last_level_bytes"`
}

type libraryRow struct {
	Name    string   `json:"name"`
	Path    string   `json:"path,omitempty"` // empty: not found
	Version string   `json:"version,omitempty"`
	Missing []string `json:"missing,omitempty"` // functions
}

type gpuRow struct {
	Device string `json:"device"` // value for --device
	Name   string `json:"name"`
	Target string `json:"target"`
	SMs    int    `json:"sms"`
	Memory int64  `json:"memory_bytes"`
}

func describeMachine(b *cpu.Backend, found *cuda.Report) machine {
	var m machine
	m.CPU.Kernels, m.CPU.Platform, m.CPU.Threads = b.Name(), runtime.GOOS+"/"+runtime.GOARCH, b.Threads()
	m.CPU.Nodes, m.CPU.Pinned = b.Nodes(), b.Nodes() > 1
	m.CPU.Caches = caches(b.Caches())
	m.CPU.Sets, m.CPU.Refused = cpu.KernelSets()
	m.CPU.Composed, m.CPU.NoCode = b.ComposesKernels()
	m.CUDA.Libraries, m.CUDA.Devices = []libraryRow{}, []gpuRow{}
	m.CUDA.Problem, m.CUDA.Advice = found.Problem, found.Advice
	for _, l := range found.Libraries {
		m.CUDA.Libraries = append(m.CUDA.Libraries, libraryRow{l.Library, l.Path, l.Version, l.Missing})
	}
	for _, d := range found.Devices {
		m.CUDA.Devices = append(m.CUDA.Devices, gpuRow{fmt.Sprintf("cuda:%d", d.Ordinal), d.Name, fmt.Sprintf("sm_%d%d", d.Major, d.Minor), int(d.SMs), int64(d.Memory)})
	}
	return m
}

func devicesCommand() *cobra.Command {
	var asJSON bool
	c := command("devices", "List what this machine can run on", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		b, err := cpu.Open(0)
		if err != nil {
			return err
		}
		defer b.Close()
		out := c.OutOrStdout()
		if asJSON {
			return writeJSON(out, describeMachine(b, cuda.Discover()))
		}
		fmt.Fprintf(out, "cpu: %s, %s/%s, %d threads\n", b.Name(), runtime.GOOS, runtime.GOARCH, b.Threads())
		if n := b.Nodes(); n > 1 {
			fmt.Fprintf(out, "cpu memory: %d NUMA nodes, each worker is pinned to one\n", n)
		} else {
			fmt.Fprintln(out, "cpu memory: one NUMA node to this process, workers are not pinned")
		}
		if c := b.Caches(); c.Second > 0 {
			fmt.Fprintf(out, "cpu caches, per processor: second level %d KB, last level %d KB\n", c.Second>>10, c.Last>>10)
		} else {
			fmt.Fprintln(out, "cpu caches: unknown, blocks are sized for a second level of 1 MB")
		}
		sets, refused := cpu.KernelSets()
		fmt.Fprintf(out, "cpu kernels: %s\n", strings.Join(sets, ", "))
		if refused != "" {
			fmt.Fprintln(out, "no "+refused)
		}
		composes, refused := b.ComposesKernels()
		switch {
		case composes:
			fmt.Fprintln(out, "cpu kernels composed at load: yes")
		case refused != "":
			fmt.Fprintln(out, "cpu kernels composed at load: no, "+refused)
		default:
			fmt.Fprintln(out, "cpu kernels composed at load: no")
		}
		_, err = io.WriteString(out, cuda.Discover().String())
		return err
	})
	addJSON(c, &asJSON)
	c.Long = `List what this machine can run on: the CPU's kernel set, threads and NUMA nodes, and the CUDA devices and libraries
found.

Environment: AMPC_CPU=go|avx2|avx512|avx512bf16|amx|neon picks a set of kernels that the processor has, GOMAXPROCS
the threads; AMPC_WINOGRAD=off keeps convolutions to their definition; AMPC_COMPOSE=off composes no kernels at load.`
	return c
}

// inZoo reports whether the zoo has a model of that name.
func inZoo(name string) bool {
	return slices.ContainsFunc(models.Names(), func(m [2]string) bool { return m[0] == name })
}

// zooList lists the zoo for help texts.
func zooList() string {
	s := "Models of the zoo:\n"
	for _, m := range models.Names() {
		s += fmt.Sprintf("  zoo:%-8s %s\n", m[0], m[1])
	}
	return s
}
