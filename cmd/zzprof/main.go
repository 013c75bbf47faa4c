package main

import (
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

func main() {
	z, err := models.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	th, _ := strconv.Atoi(os.Args[3])
	b, _ := cpu.Open(th)
	cfg := z.Steps[0].Config
	pol, err := passes.PolicyNamed(os.Args[2])
	if err != nil {
		panic(err)
	}
	cfg.Policy = pol
	g := z.Model.Graph().Clone()
	p := cfg.Passes(z.Steps[0].Losses...)
	if err := passes.Run(g, p); err != nil {
		panic(err)
	}
	prog, err := lower.Lower(g, lower.CPU)
	if err != nil {
		panic(err)
	}
	if err := lower.Verify(prog); err != nil {
		panic(err)
	}
	if len(os.Args) > 4 {
		fmt.Println(prog)
	}
	vars, _ := runtime.Variables(prog)
	s, _ := b.NewStore(vars)
	if err := runtime.Initialise(s, vars, 1); err != nil {
		panic(err)
	}
	e, err := b.Load(prog, s)
	if err != nil {
		panic(err)
	}
	feed := runtime.Feed{}
	for _, v := range prog.Vars {
		if v.Kind == ir.Input && v.Role() != "micro" {
			data := make([]byte, v.Type.Bytes())
			if v.Type.DType == ir.F32 {
				for i := 0; i+3 < len(data); i += 4 {
					data[i+2] = byte(rand.Intn(256))
					data[i+3] = 0x3e
				}
			} else {
				for i := 0; i < len(data); i += 4 {
					data[i] = byte(rand.Intn(2))
				}
			}
			feed[v.Name] = runtime.Tensor{Type: v.Type, Data: data}
		}
	}
	feeds := []runtime.Feed{feed}
	for range 3 {
		if _, err := e.Step(feeds); err != nil {
			panic(err)
		}
	}
	const N = 10
	type key struct{ part, step int }
	times := map[key]time.Duration{}
	e.(runtime.Profiled).Profile(func(part lower.Part, step int, took time.Duration) { times[key{int(part), step}] += took })
	t0 := time.Now()
	for range N {
		e.Step(feeds)
	}
	total := time.Since(t0)
	fmt.Println("step", total/N, "MaxLive", prog.MaxLive, "work", prog.Arenas[lower.WorkArena], "sep", prog.Separate)
	kinds := map[string]time.Duration{}
	type row struct {
		k key
		d time.Duration
	}
	var rows []row
	for k, d := range times {
		st := &prog.Parts[k.part][k.step]
		name := st.Kind.String()
		if st.Kernel != nil {
			name += " " + st.Kernel.Name
		}
		if st.Conv != nil {
			name += " " + st.Conv.Dir.String()
		}
		kinds[name] += d
		rows = append(rows, row{k, d})
	}
	var names []string
	for n := range kinds {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool { return kinds[names[i]] > kinds[names[j]] })
	for _, n := range names {
		fmt.Printf("%-28s %8v %5.1f%%\n", n, kinds[n]/N, 100*float64(kinds[n])/float64(total))
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].d > rows[j].d })
	for _, r := range rows[:min(20, len(rows))] {
		st := &prog.Parts[r.k.part][r.k.step]
		fmt.Printf("%v %s %8v %5.2f GB/s ", lower.Part(r.k.part), st.Node.Name, r.d/N, float64(st.Bytes)/float64(r.d/N))
		fmt.Println(st.Kind, prog.Buffers[st.Out[0]].Type, prog.Describe(st))
	}
}
