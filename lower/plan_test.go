package lower

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ampc/ir"
)

// randomProgram builds a Program of kernels from bytes: four a buffer, saying
// when it is written, how long it lives, how large it is, and whether a step
// may overwrite an operand.
func randomProgram(data []byte) *Program {
	p := &Program{Name: "fuzz", Target: CPU}
	steps := make([]Step, 3*16)
	inPlace := false
	for i := 0; i+3 < len(data) && i < 4*64; i += 4 {
		from := int(data[i]) % len(steps)
		to := min(from+int(data[i+1])%20, len(steps)-1)
		id := BufferID(len(p.Buffers))
		t := ir.T(ir.F32, ir.Dim(int64(data[i+2])*16))
		p.Buffers = append(p.Buffers, Buffer{Name: fmt.Sprint("b", id), Type: t, Arena: WorkArena, Root: id, Size: t.Bytes(), Live: Span{-1, -1}})
		steps[from].Out = append(steps[from].Out, id)
		if to > from {
			steps[to].In = append(steps[to].In, id)
		}
		inPlace = data[i+3]&1 == 1
	}
	for i := range steps {
		s := &steps[i]
		s.Kind, s.Kernel, s.Node.Name = KindKernel, &Kernel{Name: "k", Node: &ir.Node{}, InPlace: inPlace}, fmt.Sprint("s", i)
		p.Parts[i/16] = append(p.Parts[i/16], *s)
	}
	return p
}

// overlapping is the brute force: two buffers that live at one step in one
// place, other than an operand overwritten where it dies.
func overlapping(p *Program) string {
	for i := range p.Buffers {
		for j := range i {
			a, b := &p.Buffers[i], &p.Buffers[j]
			if a.Live.From > b.Live.From {
				a, b = b, a
			}
			inPlace := a.Live.To == b.Live.From && a.Live.From < b.Live.From && a.Offset == b.Offset && a.Size == b.Size
			if a.Size > 0 && b.Size > 0 && a.Live.To >= b.Live.From && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size && !inPlace {
				return fmt.Sprintf("%s %+v at %d and %s %+v at %d", a.Name, a.Live, a.Offset, b.Name, b.Live, b.Offset)
			}
		}
	}
	return ""
}

func FuzzPlan(f *testing.F) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 40 {
		b := make([]byte, 4*(1+r.IntN(60)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := randomProgram(data)
		(&Lowerer{p: p}).plan()
		if err := Verify(p); err != nil {
			t.Fatalf("%v\n%s", err, p)
		}
		if s := overlapping(p); s != "" {
			t.Fatal(s)
		}
		if p.Arenas[WorkArena] < p.MaxLive || p.Arenas[WorkArena] > max(p.Separate, Align) {
			t.Fatalf("work arena of %d bytes, %d live at most, %d in all", p.Arenas[WorkArena], p.MaxLive, p.Separate)
		}
	})
}

// Activations that are freed in the order opposite to their making, with
// temporaries between, are what training makes: those must pack tightly.
func TestPeakIsNearTheBound(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for round := range 20 {
		p := &Program{Name: "layers", Target: CPU}
		const layers = 60
		steps := make([]Step, 4*layers)
		buffer := func(from, to int, elements int64) {
			id := BufferID(len(p.Buffers))
			t := ir.T(ir.F32, ir.Dim(elements))
			p.Buffers = append(p.Buffers, Buffer{Name: fmt.Sprint("b", id), Type: t, Arena: WorkArena, Root: id, Size: t.Bytes(), Live: Span{-1, -1}})
			steps[from].Out = append(steps[from].Out, id)
			steps[to].In = append(steps[to].In, id)
		}
		for k := range layers {
			size := int64(1+r.IntN(8)) * 1024
			buffer(2*k, len(steps)-1-2*k, size)                               // saved for backward
			buffer(2*k, 2*k+1, size*int64(1+r.IntN(4)))                       // forward temporary
			buffer(len(steps)-2-2*k, len(steps)-1-2*k, size)                  // gradient
			buffer(len(steps)-2-2*k, min(len(steps)-1, len(steps)-2*k), size) // passed on
		}
		for i := range steps {
			steps[i].Kind, steps[i].Kernel = KindKernel, &Kernel{Name: "k", Node: &ir.Node{}}
		}
		p.Parts[Micro] = steps
		(&Lowerer{p: p}).plan()
		if err := Verify(p); err != nil {
			t.Fatal(err)
		}
		if got := p.Arenas[WorkArena]; got*100 > p.MaxLive*105 {
			t.Errorf("round %d: work arena %d, %d live at most: %.1f%% above", round, got, p.MaxLive, 100*float64(got)/float64(p.MaxLive)-100)
		}
	}
}
