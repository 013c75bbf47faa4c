package ampc

import (
	"context"
	"fmt"
	"io"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/passes"
	"ampc/passes/prove"
	"ampc/passes/ranges"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// Reason is why one value is stored as it is.
type Reason struct {
	Value string   `json:"value"` // its name in dumps: "%fc1"
	Type  string   `json:"type"`
	Op    string   `json:"op,omitempty"`    // "" for variables
	Class string   `json:"class,omitempty"` // of the op in this policy
	Cause string   `json:"cause"`           // class, pin, pattern, op, neighbour, forward, cut, guard, contract or declared
	Rule  string   `json:"rule,omitempty"`  // the pattern that matched, or why the guard speaks against 16 bits
	Marks []string `json:"marks,omitempty"`
	Text  string   `json:"text"`          // the same as a sentence
	Pos   string   `json:"pos,omitempty"` // file and line that built the value
}

// Reasons is a chain of causes: each value was decided by the next.
type Reasons []Reason

// String writes a line for each reason, as `ampc why` does.
func (r Reasons) String() string {
	links := make([]passes.Link, len(r))
	for i, x := range r {
		links[i] = passes.Link(x)
	}
	var b strings.Builder
	passes.PrintChain(&b, links)
	return b.String()
}

// Why explains why this step stores t in its dtype: a chain from t to the rule, the
// pin, the cut or the declaration that decided. It is an error if the step does not
// compute t, because another op replaced it or no result depends on it.
func (s *Step) Why(t Tensor) (Reasons, error) {
	if err := s.model.own("why", t); err != nil {
		return nil, err
	}
	links, err := passes.Why(s.graph, t.v.Name)
	if err != nil {
		return nil, fmt.Errorf("why: %w", err)
	}
	out := make(Reasons, len(links))
	for i, l := range links {
		out[i] = Reason(l)
	}
	return out, nil
}

// Report writes what precision costs and saves in this step: casts by what became
// of them, values in 16 bits and in f32, memory, bytes moved, and the compiler's
// notes.
func (s *Step) Report(w io.Writer) error {
	r := s.report
	r.Program(s.graph, s.program)
	var b strings.Builder
	r.Print(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteIR writes the compiled step as text: every value with its dtype, its
// reason, and the file and line that built it. `ampc dump`, `ampc why` and `ampc
// prove` read it.
func (s *Step) WriteIR(w io.Writer) error { return s.graph.Print(w, ir.Reasons|ir.Positions) }

// Finding is a rule that a compiled step breaks.
type Finding struct {
	Check string // the rule, as `ampc prove --help` lists it
	Node  string // the node at fault, or a variable
	Pos   string // file and line that built it, "" where unknown
	Text  string
	User  bool // the model breaks the rule, at a place that the user wrote; else the compiler does
}

// String returns the finding in one line that begins with its position.
func (f Finding) String() string {
	s := f.Check + ": " + f.Node + ": " + f.Text
	if f.Pos != "" {
		s = f.Pos + ": " + s
	}
	return s
}

// Prove compiles the step once more and compares the result with the model by an
// independent checker, as `ampc prove` does. It returns the violations of the
// checker's rules; if there are none, the step is proved. Train and Infer check
// every step that they compile, without the gradients, which Prove checks, too.
func (s *Step) Prove() ([]Finding, error) {
	g, p, err := s.model.bound(s.config, s.request.sizes)
	if err != nil {
		return nil, err
	}
	defer s.model.gate.hold()()
	if s.exec == nil {
		return nil, errClosed
	}
	if len(s.losses) == 0 {
		k, err := s.model.session.known(s.request)
		if err != nil {
			return nil, err
		}
		k.read(g)
	}
	newSlots(s.model.tensors(s.model.Graph().Return), &p, s.request)
	var source *ir.Graph
	p.Source = func(t *ir.Graph) { source = t }
	target := s.model.session.backend.Target()
	p.Prove, p.After, p.Caps, p.Peak = false, nil, target.Caps(), lower.Peak(target)
	if err := passes.Run(g, p); err != nil {
		return nil, err
	}
	var out []Finding
	for _, f := range append(prove.Prove(source, g, p.Rules(source)), prove.Gradients(source)...) {
		out = append(out, Finding{Check: f.Check, Node: f.Node, Pos: f.Pos.String(), Text: f.Text, User: f.User})
	}
	g.DropUnused()
	program, err := lower.Unverified(g, target)
	if err != nil {
		return nil, sized(err)
	}
	if err := lower.Verify(program); err != nil {
		out = append(out, Finding{Check: "program", Node: "@" + g.Name, Text: err.Error()})
	}
	return out, nil
}

// Calibrate evaluates the step that c and losses describe once per feed, in f32
// and without changing a variable, and returns the ranges that its values had:
// what CompileOptions.Ranges takes for a policy with a guard. Weights are the model's
// own where a step was compiled before, else their initial values. The end of ctx
// ends it between two nodes.
func (m *Model) Calibrate(ctx context.Context, c TrainConfig, feeds []Feed, losses ...Loss) (Ranges, error) {
	if err := m.Err(); err != nil {
		return Ranges{}, err
	}
	defer m.gate.hold()()
	if m.ended {
		return Ranges{}, fmt.Errorf("calibrate: %w", errModelClosed)
	}
	g, p, err := m.Source(c, losses...)
	if err != nil {
		return Ranges{}, err
	}
	p.Widen()
	if err := passes.Run(g, p); err != nil {
		return Ranges{}, err
	}
	g.DropUnused()
	rec := ranges.NewRecorder(g)
	for _, f := range feeds {
		env, err := m.environment(g, f, m.seed)
		if err != nil {
			return Ranges{}, err
		}
		if err := rec.Run(ctx, env); err != nil {
			return Ranges{}, err
		}
	}
	seen := Ranges{Recorded: map[string]Recorded{}}
	for name, r := range rec.Ranges() {
		seen.Recorded[name] = Recorded(r)
	}
	return seen, nil
}

// environment is what the evaluator needs to run g once.
func (m *Model) environment(g *ir.Graph, f Feed, seed int64) (map[string]*eval.Tensor, error) {
	env := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		var err error
		if env[v.Name], err = m.held(v, f, seed); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// held is what v holds: what is fed, what the model's variable has, or what it
// starts with.
func (m *Model) held(v *ir.Value, f Feed, seed int64) (*eval.Tensor, error) {
	if v.Kind == ir.Input && v.Attr.Get("role") == nil {
		x, ok := f[v.Name]
		if !ok {
			return nil, fmt.Errorf("feed: input %q is missing", v.Name)
		}
		data, err := encode(x, v.Type)
		if err != nil {
			return nil, fmt.Errorf("feed %q %w", v.Name, err)
		}
		return eval.FromBytes(v.Type, data)
	}
	if h, err := m.now(v.Name); err == nil && h.Type.t == v.Type {
		return eval.FromBytes(v.Type, h.Bytes)
	}
	return eval.InitVar(v, seed)
}

// StoredRange is what a 16-bit value held when a step stored it.
type StoredRange struct {
	Value  string  // its name in the compiled graph
	DType  DType   // F16 or BF16
	AbsMax float64 // the largest finite magnitude
	Finite bool    // all elements are
	High   float64 // AbsMax over the largest number of the dtype
	Low    float64 // AbsMax over the smallest number of the dtype
}

// Watch makes later steps call f with the range of each 16-bit value that is computed, as soon as it
// is stored; values that stay in registers of a cluster are not. Such a step runs alone and reads
// once more what it writes. nil ends it. Watch returns false where the backend cannot: on GPUs.
func (s *Step) Watch(f func(StoredRange)) bool {
	defer s.model.gate.hold()()
	exec, ok := s.exec.(runtime.Traceable)
	b, counts := s.model.session.backend.(counter)
	if !ok || !counts {
		return false
	}
	if f == nil {
		exec.Trace(runtime.Tracer{})
		return true
	}
	exec.Trace(runtime.Tracer{Step: func(part lower.Part, i int) bool {
		for _, id := range s.program.Parts[part][i].Out {
			if id == lower.None || !s.program.Buffers[id].Type.DType.Low() {
				continue
			}
			buf := &s.program.Buffers[id]
			shown := exec.Buffer(id)
			f(storedRange(b, buf.Name, buf.Type.DType, shown.Bytes()))
			shown.Release()
		}
		return true
	}})
	return true
}

// counter is a backend whose values are in this process's memory, and that finds their range.
type counter interface {
	Count(d ir.DType, data []byte) cpu.Counts
}

func storedRange(b counter, name string, d ir.DType, data []byte) StoredRange {
	c := b.Count(d, data)
	most := max(float64(c.Hi), -float64(c.Lo), 0)
	return StoredRange{name, DType(d), most, c.NaN+c.Inf == 0, most / d.Max(), most / d.SmallestSubnormal()}
}
