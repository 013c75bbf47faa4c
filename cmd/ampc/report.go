package main

import (
	"fmt"
	"io"

	"ampc/ir"
	"ampc/lower"
)

// castReport counts what precision cost and saved in one compilation.
type castReport struct {
	counts   map[string]int
	low, f32 int // nodes that store a 16-bit and an f32 float
	left     int // casts that are still nodes at the end
	notes    []string

	castBytes, bytes int64    // a step moves, all parts once
	lowFlops, flops  int64    // of matrix products; low: both operands in 16 bits
	work, state      int64    // arenas of the program
	live             int64    // what lives at most at one step
	saved            int64    // bytes that forward keeps for backward
	copies           []string // variables with a low copy
	misaligned       []lower.Misaligned
}

// after collects the counters and notes of a pass.
func (r *castReport) after(counters map[string]int, notes []string) {
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	for name, n := range counters {
		r.counts[name] += n
	}
	r.notes = append(r.notes, notes...)
}

// program adds what only the compiled result shows.
func (r *castReport) program(g *ir.Graph, p *lower.Program) {
	for _, n := range g.Nodes {
		if n.Op == ir.OpCast {
			r.left++
			c := g.NodeCost(n)
			r.castBytes += c.Read + c.Write
			continue
		}
		for _, v := range n.Out {
			if v.Type.DType.Low() {
				r.low++
			} else if v.Type.DType == ir.F32 {
				r.f32++
			}
		}
	}
	r.saved = savedBytes(g)
	r.work, r.state, r.live = p.Arenas[lower.WorkArena], p.Arenas[lower.StateArena], p.MaxLive
	for _, part := range p.Parts {
		for i := range part {
			r.step(p, &part[i])
		}
	}
	r.misaligned = p.Misaligned()
	for _, c := range p.Copies {
		r.copies = append(r.copies, c.Var)
	}
}

func (r *castReport) step(p *lower.Program, s *lower.Step) {
	r.bytes += s.Bytes
	flops := s.Flops()
	r.flops += flops
	if flops == 0 {
		return
	}
	for _, id := range s.In[:2] {
		if !p.Buffers[id].Type.DType.Low() {
			return
		}
	}
	r.lowFlops += flops
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

// lowShare is the share of product work that reads 16-bit operands.
func (r *castReport) lowShare() float64 {
	if r.flops == 0 {
		return 0
	}
	return float64(r.lowFlops) / float64(r.flops)
}

func (r *castReport) print(w io.Writer) {
	c := r.counts
	fmt.Fprintf(w, "casts: %d inserted, %d shared, %d hoisted to prepare, %d removed, %d done by kernels, %d left\n",
		c["casts_inserted"], c["casts_reused"]+c["casts_merged"], c["casts_hoisted"],
		c["casts_removed"]+c["casts_chained"]+c["casts_dead"], c["casts_folded_load"]+c["casts_folded_store"], r.left)
	fmt.Fprintf(w, "stored: %d values in 16 bits, %d in f32; %.1f%% of product flops read 16 bits; %d weights keep a low copy\n",
		r.low, r.f32, 100*r.lowShare(), len(r.copies))
	fmt.Fprintf(w, "memory: %s of work, %s of state, %s saved for backward; a step moves %s, casts %s of it\n",
		size(r.work), size(r.state), size(r.saved), size(r.bytes), size(r.castBytes))
	for _, n := range r.notes {
		fmt.Fprintln(w, "note:", n)
	}
}

// size prints bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f kB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
