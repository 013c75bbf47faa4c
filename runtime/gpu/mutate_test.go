package gpu_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/runtime"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// mutant is a Program with one fault.
type mutant struct {
	what  string
	apply func(p *lower.Program)
	edge  int // this wait, of those that the runtime issues, is left out: no fault of the Program itself
	// harmless says why the mutant p, whose steps gave got, does what the
	// Program does, where that can be checked; else "". nil: it cannot.
	harmless func(s *subject, p *lower.Program, got trace) string
}

// mutation lists every mutant of one kind that a Program has.
type mutation struct {
	name string
	list func(p *lower.Program) []mutant
	more int // how many to take for each that other kinds have: few Programs have any
}

// mutations are the kinds of faults: what lowering, planning, streams, launches,
// library calls and bindings could get wrong.
var mutations = []mutation{
	{"wait dropped", droppedWaits, 1},
	{"event record dropped or moved", movedRecords, 1},
	{"step on the other stream", movedStreams, 1},
	{"offset shifted, past the end", shiftedOffsets, 1},
	{"offset of another live buffer", sharedOffsets, 1},
	{"short buffer or arena", shortBuffers, 1},
	{"dtype of a buffer", wrongDTypes, 1},
	{"edge of the graph missing", missingEdges, 1},
	{"step missing", missingSteps, 1},
	{"dependent steps swapped", swappedSteps, 1},
	{"product: sizes, rows, batch", wrongProducts, 1},
	{"product: transposed, epilogue, operands", wrongEpilogues, 1},
	{"convolution", wrongConvolutions, 3},
	{"attention", wrongAttention, 6},
	{"parts that attention walks", wrongParts, 3},
	{"kernel arguments", wrongArguments, 1},
	{"operands and results of kernels", wrongOperands, 1},
	{"kernel tables", wrongTables, 1},
	{"tensors of kernel tables", wrongRows, 1},
	{"grid and block", wrongGrids, 1},
	{"shared memory", wrongShared, 1},
	{"16-bit copies and casts", wrongCopies, 1},
	{"results and written variables", wrongBindings, 1},
}

// mutated are the Programs that faults are put into, by how they are reached:
// library calls, kernels in their place, tables, streams, an overflow that skips.
var mutantsEach = flag.Int("mutants-each", 3, "mutants of each kind and Program that TestMutants tries")

var mutated = []struct {
	spec, policy string
	target       string
}{
	{"mlp?batch=2&in=16&hidden=16", "mixed-f16", "sm_90"},
	{"lenet?batch=2&size=8&conv1=2&conv2=3&fc1=8&fc2=6&pad=2", "mixed-f16", "sm_90"},
	{"lenet?batch=2&size=8&conv1=2&conv2=3&fc1=8&fc2=6&pad=2", "f32", "sm_80/nodnn"},
	{"gpt?layers=1&batch=1&seq=6&dim=8&heads=2&vocab=12&dropout=0.1", "mixed-f16", "sm_80"},
	{"gpt?layers=1&batch=1&seq=128&dim=16&heads=2&tanh=1", "mixed-bf16", "sm_90"},
	{"lstm?batch=2&seq=3&vocab=10&dim=8", "mixed-f16", "sm_90"},
	{"bert?batch=1&seq=6&vocab=12&layers=1&heads=2&dim=8", "mixed-bf16", "sm_90/nodnn"},
	{"gan?batch=4&noise=4&in=8&hidden=8", "mixed-f16", "sm_80"},
	{"resnet8?batch=2&size=8&width=4", "mixed-f16", "sm_90"},
}

// fate is what became of a mutant.
type fate int

const (
	byVerify fate = iota
	bySimulator
	byNumbers
	equivalent // proven to do what the Program does
	survived
	numFates
)

var fateNames = [numFates]string{"verify", "simulator", "numbers", "equivalent", "survived"}

// TestMutants puts faults into lowered Programs, one at a time. lower.Verify,
// the simulated device or a difference in any bit of results or variables
// must notice 99 of 100; what is left is printed.
func TestMutants(t *testing.T) {
	t.Parallel()
	each := *mutantsEach
	if testing.Short() {
		each = 1
	}
	r := rand.New(rand.NewPCG(5, 77))
	table := make([][numFates]int, len(mutations))
	for i, m := range mutated {
		if testing.Short() && i > 0 {
			break
		}
		s := newSubject(t, m.spec, m.policy, m.target)
		for k, kind := range mutations {
			all := kind.list(s.p)
			for _, at := range r.Perm(len(all))[:min(each*kind.more, len(all))] {
				f, why := s.judge(all[at])
				table[k][f]++
				if f >= equivalent {
					t.Logf("%s: %s, %s %s: %s: %s", fateNames[f], m.spec, m.policy, m.target, all[at].what, why)
				}
			}
		}
	}
	report(t, table)
}

// report prints the table and holds it to its limit.
func report(t *testing.T, table [][numFates]int) {
	t.Helper()
	var total [numFates]int
	var b strings.Builder
	fmt.Fprintf(&b, "%-42s", "fault")
	for _, n := range fateNames {
		fmt.Fprintf(&b, "%11s", n)
	}
	line := func(name string, row [numFates]int) {
		fmt.Fprintf(&b, "\n%-42s", name)
		for _, n := range row {
			fmt.Fprintf(&b, "%11d", n)
		}
	}
	for k, row := range table {
		line(mutations[k].name, row)
		for f, n := range row {
			total[f] += n
		}
	}
	line("all", total)
	t.Log("\n" + b.String())
	caught := total[byVerify] + total[bySimulator] + total[byNumbers]
	if faults := caught + total[survived]; caught*100 < faults*99 {
		t.Errorf("%d of %d faults noticed", caught, faults)
	}
	if !testing.Short() && caught < 500 {
		t.Errorf("only %d mutants", caught)
	}
}

// subject is a Program with what it computes.
type subject struct {
	p     *lower.Program
	vars  []lower.Var
	feeds []runtime.Feed
	want  trace
}

// trace is every bit that some steps leave, and what their kernels moved.
type trace struct {
	bits  []byte
	stats sim.Stats
}

// steps that a subject takes: issued, captured, one whose gradients overflow, replayed.
const mutatedSteps = 4

func newSubject(t *testing.T, spec, policy string, target string) *subject {
	t.Helper()
	g := ready(t, spec, policy, target)[0]
	p, err := lower.Lower(g, sm.Must(target))
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{p: p}
	if s.vars, err = runtime.Variables(p); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(2, 3))
	for range mutatedSteps {
		s.feeds = append(s.feeds, runtimetest.Feeds(someRows(g, feed(g, r), r))...)
	}
	if s.want, err = s.run(p, 0); err != nil {
		t.Fatal(err)
	}
	s.awake(t)
	again, err := s.run(clone(p), 0)
	if err := lower.Verify(clone(p)); err != nil {
		t.Fatal(err)
	}
	if err != nil || string(again.bits) != string(s.want.bits) {
		t.Fatalf("%s: two runs differ (%v)", spec, err)
	}
	return s
}

// someRows draws ids of embeddings from all rows of their tables.
func someRows(g *ir.Graph, f map[string]*eval.Tensor, r *rand.Rand) map[string]*eval.Tensor {
	for _, n := range g.Nodes {
		if n.Op != ir.OpEmbedding || f[n.In[1].Name] == nil {
			continue
		}
		for i := range f[n.In[1].Name].I {
			f[n.In[1].Name].I[i] = r.Int64N(ir.Sizes(n.In[0].Type.Shape)[0])
		}
	}
	return f
}

// awake wants numbers that can tell one Program from another: finite results,
// and every step but the one that overflows taken.
func (s *subject) awake(t *testing.T) {
	t.Helper()
	at := 0
	next := func(typ ir.Type) []byte { at += int(typ.Bytes()); return s.want.bits[at-int(typ.Bytes()) : at] }
	for i := range mutatedSteps {
		for _, o := range s.p.Outputs {
			if b := next(o.Type); o.Type == ir.T(ir.F32) && math.IsNaN(float64(float(b))) {
				t.Fatalf("%s: step %d: %s is NaN", s.p.Name, i, o.Name)
			}
		}
	}
	if len(s.p.Outputs) == 0 {
		t.Fatalf("%s returns nothing", s.p.Name)
	}
	for _, v := range s.vars {
		if b := next(v.Type); v.Name == "amp.step" && int(b[0]) != mutatedSteps-s.overflows() {
			t.Fatalf("%s: %d steps reached the weights", s.p.Name, b[0])
		}
	}
}

// overflows is how many steps are skipped: one where there is a scale to raise.
func (s *subject) overflows() int {
	if slices.ContainsFunc(s.vars, scales) {
		return 1
	}
	return 0
}

func scales(v lower.Var) bool { return v.Name == "amp.scale" && v.Type == ir.T(ir.F32) }

// open is a simulated device of the subject's target.
func (s *subject) open(dropWait int) (*sim.Device, *gpu.Backend, error) {
	cc := 90
	fmt.Sscanf(s.p.Target.String(), "sm_%d", &cc) //nolint:errcheck // targets begin so
	d, err := sim.Open(sim.Options{Major: cc / 10, Minor: cc % 10, NoDnn: s.p.Target.Caps().NoGraphs, DropWait: dropWait})
	if err != nil {
		return nil, nil, err
	}
	b, err := gpu.OpenOn(d, 0)
	return d, b, err
}

// run takes the steps on a device of its own. The loss scale goes up before the
// third, so that its gradients overflow and it is skipped.
func (s *subject) run(p *lower.Program, dropWait int) (tr trace, err error) {
	d, b, err := s.open(dropWait)
	if err != nil {
		return tr, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	store, err := b.NewStore(s.vars)
	if err != nil {
		return tr, err
	}
	if err := runtimetest.Initialize(store, s.vars, 3); err != nil {
		return tr, err
	}
	e, err := b.Load(p, store)
	if err != nil {
		return tr, err
	}
	for i, f := range s.feeds {
		if err := s.rescale(store, map[int]float32{0: 0x1p10, 2: 0x1p120, 3: 0x1p10}[i]); err != nil {
			return tr, err
		}
		future, err := e.Step(context.Background(), []runtime.Feed{f})
		if err != nil {
			return tr, err
		}
		for k, o := range p.Outputs {
			buf := make([]byte, o.Type.Bytes())
			if err := future.Read(k, buf); err != nil {
				return tr, err
			}
			tr.bits = append(tr.bits, buf...)
		}
	}
	for _, v := range s.vars {
		buf := make([]byte, v.Type.Bytes())
		if err := store.Read(v.Name, buf); err != nil {
			return tr, err
		}
		tr.bits = append(tr.bits, buf...)
	}
	tr.stats = d.Stats
	return tr, errors.Join(e.Close(), store.Close())
}

func (s *subject) rescale(store runtime.Store, scale float32) error {
	if scale == 0 || s.overflows() == 0 {
		return nil
	}
	return store.Write("amp.scale", binary.LittleEndian.AppendUint32(nil, math.Float32bits(scale)))
}

// judge says who notices a mutant, or why it is none.
func (s *subject) judge(m mutant) (fate, string) {
	p := clone(s.p)
	m.apply(p)
	if m.edge == 0 && lower.Verify(p) != nil {
		return byVerify, ""
	}
	got, err := s.run(p, m.edge)
	switch {
	case err != nil:
		return bySimulator, ""
	case string(got.bits) != string(s.want.bits):
		return byNumbers, ""
	}
	if m.harmless != nil {
		if why := m.harmless(s, p, got); why != "" {
			return equivalent, why
		}
	}
	return survived, "nothing noticed"
}
