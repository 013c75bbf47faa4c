package main

import (
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

func main() {
	for _, spec := range os.Args[1:] {
		z, err := models.Open(spec)
		if err != nil {
			panic(err)
		}
		cfg := z.Steps[0].Config
		cfg.Policy, _ = passes.PolicyNamed("mixed-f16")
		g := z.Model.Graph().Clone()
		p := cfg.Passes(z.Steps[0].Losses...)
		p.NoVerify = true
		t0 := time.Now()
		if err := passes.Run(g, p); err != nil {
			panic(err)
		}
		t1 := time.Now()
		f, _ := os.Create("/tmp/lw/low.prof")
		pprof.StartCPUProfile(f)
		for range 50 { lower.Lower(g, lower.CPU) }
		prog, err := lower.Lower(g, lower.CPU)
		if err != nil {
			panic(err)
		}
		t2 := time.Now()
		pprof.StopCPUProfile()
		if err := lower.Verify(prog); err != nil {
			panic(err)
		}
		fmt.Println(spec, "nodes", g.NumNodes(), "passes", t1.Sub(t0), "lower", t2.Sub(t1), "verify", time.Since(t2), "work", prog.Arenas[lower.WorkArena], "live", prog.MaxLive)
	}
}
