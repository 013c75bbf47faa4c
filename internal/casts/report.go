// Package casts reports what precision cost and saved in one compilation.
package casts

import (
	"fmt"
	"io"

	"ampc/ir"
	"ampc/lower"
)

// Report counts what precision cost and saved in one compilation. After takes in
// each pass, Program the result.
type Report struct {
	Counts   map[string]int
	Low, F32 int // nodes that store a 16-bit and an f32 float
	Left     int // casts that are still nodes at the end
	Notes    []string

	CastBytes, Bytes int64    // a step moves, all parts once
	LowFlops, Flops  int64    // of matrix products; low: both operands in 16 bits
	Work, State      int64    // arenas of the program
	Live             int64    // what lives at most at one step
	Saved            int64    // bytes that forward keeps for backward
	Copies           []string // variables with a 16-bit copy
	Misaligned       []lower.Misaligned
}

// After collects the counters and notes of a pass.
func (r *Report) After(counters map[string]int, notes []string) {
	if r.Counts == nil {
		r.Counts = map[string]int{}
	}
	for name, n := range counters {
		r.Counts[name] += n
	}
	r.Notes = append(r.Notes, notes...)
}

// Program adds what only the compiled result shows.
func (r *Report) Program(g *ir.Graph, p *lower.Program) {
	for _, n := range g.Nodes {
		if n.Op == ir.OpCast {
			r.Left++
			c := g.NodeCost(n)
			r.CastBytes += c.Read + c.Write
			continue
		}
		for _, v := range n.Out {
			if v.Type.DType.Low() {
				r.Low++
			} else if v.Type.DType == ir.F32 {
				r.F32++
			}
		}
	}
	r.Saved = savedBytes(g)
	r.Work, r.State, r.Live = p.Arenas[lower.WorkArena], p.Arenas[lower.StateArena], p.MaxLive
	for _, part := range p.Parts {
		for i := range part {
			r.step(p, &part[i])
		}
	}
	r.Misaligned = p.Misaligned()
	for _, c := range p.WeightCopies {
		r.Copies = append(r.Copies, c.Var)
	}
}

func (r *Report) step(p *lower.Program, s *lower.Step) {
	r.Bytes += s.Bytes
	flops := s.Flops()
	r.Flops += flops
	if flops == 0 {
		return
	}
	for _, id := range s.In[:2] {
		if !p.Buffers[id].Type.DType.Low() {
			return
		}
	}
	r.LowFlops += flops
}

// savedBytes sums what forward computes and backward reads.
func savedBytes(g *ir.Graph) (n int64) {
	uses := g.Uses()
	for _, f := range g.Body[ir.Forward] {
		for _, v := range f.Out {
			for _, u := range uses.Of(v) {
				if u.Section == ir.Backward {
					n += g.Elements(v.Type) * v.Type.DType.Size()
					break
				}
			}
		}
	}
	return n
}

// LowShare is the share of product work that reads 16-bit operands.
func (r *Report) LowShare() float64 {
	if r.Flops == 0 {
		return 0
	}
	return float64(r.LowFlops) / float64(r.Flops)
}

// Print writes the report in a few lines.
func (r *Report) Print(w io.Writer) {
	c := r.Counts
	fmt.Fprintf(w, "casts: %d inserted, %d shared, %d hoisted to prepare, %d removed, %d done by kernels, %d left\n",
		c["casts_inserted"], c["casts_reused"]+c["casts_merged"], c["casts_hoisted"],
		c["casts_removed"]+c["casts_chained"]+c["casts_dead"], c["casts_folded_load"]+c["casts_folded_store"], r.Left)
	fmt.Fprintf(w, "stored: %d values in 16 bits, %d in f32; %.1f%% of product flops read 16 bits; %d weights keep a 16-bit copy\n",
		r.Low, r.F32, 100*r.LowShare(), len(r.Copies))
	fmt.Fprintf(w, "memory: %s of work, %s of state, %s saved for backward; a step moves %s, casts %s of it\n",
		ir.Bytes(r.Work), ir.Bytes(r.State), ir.Bytes(r.Saved), ir.Bytes(r.Bytes), ir.Bytes(r.CastBytes))
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
}
