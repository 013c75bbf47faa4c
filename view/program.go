package view

import (
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// Program is a lowered step as the page draws it: where buffers lie and when they live,
// and the steps in order. Steps are numbered through all parts.
type Program struct {
	Name    string   `json:"name"`
	Arenas  []Arena  `json:"arenas"`
	Buffers []Buffer `json:"buffers"`
	Steps   []Step   `json:"steps"`
	MaxLive int64    `json:"max_live"`
	Timed   int      `json:"timed"` // number of steps over which times are averaged; 0: no times
}

// Arena is a region of memory, in bytes.
type Arena struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Buffer is a stretch of an arena, from its first write to its last read. Views are left out.
type Buffer struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	DType  string `json:"dtype"`
	Arena  int    `json:"arena"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	From   int32  `json:"from"`
	To     int32  `json:"to"`
}

// Step is one launch.
type Step struct {
	Part   string   `json:"part"`
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	Pos    string   `json:"pos,omitempty"`
	Bytes  int64    `json:"bytes"`
	Flops  int64    `json:"flops"`
	Stream uint8    `json:"stream,omitempty"`
	Out    []string `json:"out"`
	Nanos  int64    `json:"ns,omitempty"` // mean measured time of one run of the step
	Runs   int      `json:"runs,omitempty"`
}

// Times are what the steps of a program took, all runs together, by part and place.
type Times struct {
	Steps int // number of measured training or inference steps
	Took  map[[2]int]time.Duration
	Runs  map[[2]int]int
}

// Add counts what a step of a program took, as runtime.Profiled reports it.
func (t *Times) Add(part lower.Part, step int, timing runtime.Timing) {
	if t.Took == nil {
		t.Took, t.Runs = map[[2]int]time.Duration{}, map[[2]int]int{}
	}
	at := [2]int{int(part), step}
	t.Took[at] += timing.Took
	t.Runs[at]++
}

// DescribeProgram makes the picture of a program. The zero Times is none.
func DescribeProgram(g *ir.Graph, p *lower.Program, t Times) *Program {
	out := &Program{Name: p.Name, MaxLive: p.MaxLive, Timed: t.Steps, Buffers: []Buffer{}, Steps: []Step{}}
	for a := range lower.NumArenas {
		out.Arenas = append(out.Arenas, Arena{a.String(), p.Arenas[a]})
	}
	total := int32(0)
	for part := range lower.NumParts {
		total += int32(len(p.Parts[part]))
	}
	for id := range p.Buffers {
		b := &p.Buffers[id]
		if b.Root != lower.BufferID(id) {
			continue
		}
		x := Buffer{b.Name, g.TypeString(b.Type), b.Type.DType.String(), int(b.Arena), b.Offset, b.Size, b.Live.From, b.Live.To}
		if b.Arena != lower.WorkArena {
			x.From, x.To = 0, max(total-1, 0)
		}
		out.Buffers = append(out.Buffers, x)
	}
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			out.Steps = append(out.Steps, describeStep(p, part, i, t))
		}
	}
	return out
}

func describeStep(p *lower.Program, part lower.Part, i int, t Times) Step {
	s := &p.Parts[part][i]
	x := Step{Part: part.String(), Kind: s.Kind.String(), Name: s.Node.Name, Pos: s.Node.Pos.String(), Bytes: s.Bytes, Flops: s.Flops(), Stream: s.Stream, Out: []string{}}
	if s.Kernel != nil {
		x.Kind += " " + s.Kernel.Name
	}
	for _, id := range s.Out {
		if id != lower.None {
			x.Out = append(x.Out, p.Buffers[id].Name)
		}
	}
	at := [2]int{int(part), i}
	if n := t.Runs[at]; n > 0 {
		x.Nanos, x.Runs = int64(t.Took[at])/int64(n), n
	}
	return x
}
