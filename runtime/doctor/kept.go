package doctor

import (
	"slices"
	"sync"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// Kept is what diagnoses of one step leave for later ones: its replays, compiled and
// loaded with their memory. Replays that take more than smallReplays lose their memory
// when the garbage collector has run twice. The zero value is empty. One diagnosis at a
// time may use it.
type Kept struct {
	subject *subject
	small   *loaded        // nil: there is none
	large   sync.Pool      // *loaded
	ahead   sync.WaitGroup // see Prepare
	one     sync.Mutex     // one of those that ahead waits for works
}

// smallReplays is how many bytes the replays of a step may take to stay loaded.
const smallReplays = 64 << 20

// of returns the subject of a case, from an earlier diagnosis if it was the same graph.
func (k *Kept) of(c *Case) (*subject, error) {
	if k.subject != nil && k.subject.from == c.Graph {
		return k.subject, nil
	}
	s, err := newSubject(c.Graph)
	if err != nil {
		return nil, err
	}
	k.subject, k.small, k.large = s, nil, sync.Pool{}
	return s, nil
}

// take returns the machines that earlier diagnoses loaded on b, or an empty set.
func (k *Kept) take(b *cpu.Backend) *loaded {
	l := k.small
	if l == nil {
		l, _ = k.large.Get().(*loaded)
	}
	if k.small = nil; l == nil || l.b != b {
		l = &loaded{b: b, spares: new(cpu.Spares)}
	}
	l.used = map[*compiled]*machine{}
	return l
}

// give keeps the machines that a diagnosis has used, and drops others.
func (k *Kept) give(l *loaded) {
	if len(l.machines) > 0 {
		l.spares = new(cpu.Spares)
	}
	l.machines, l.used = l.used, nil
	if l.bytes() <= smallReplays {
		k.small = l
		return
	}
	k.large.Put(l)
}

// bytes is the memory of the machines and of the free blocks.
func (l *loaded) bytes() int64 {
	n := l.spares.Bytes()
	for c := range l.machines {
		n += c.bytes()
	}
	return n
}

// bytes is the memory that a replay takes, without variables that are read in place.
func (c *compiled) bytes() int64 {
	n := c.p.Arenas[lower.WorkArena] + c.p.Arenas[lower.InputArena]
	for _, low := range c.p.WeightCopies {
		n += c.p.Buffers[low.Buffer].Size
	}
	for i := range c.p.Vars {
		if slices.Contains(c.p.Written, c.p.Vars[i].Name) {
			n += c.p.Vars[i].Type.Bytes()
		}
	}
	return n
}

// subject is what all diagnoses of a step share.
type subject struct {
	from      *ir.Graph
	g         *ir.Graph         // a copy of it, with units
	order     map[*ir.Value]int // place in the program; variables come first
	section   map[*ir.Node]ir.Section
	chosen16  ir.DType           // 16-bit dtype that the policy chooses; Invalid if only casts of the source ask for 16 bits
	scales    []*ir.Value        // loss scales
	large     map[string]bool    // scopes that hold more than half of the forward pass
	starts    map[draw]float64   // see start
	policy    *compiled          // its replay under the policy
	gradients *compiled          // the same without update, nil: it is not needed
	forward   *compiled          // the forward pass alone, node by node; likewise
	late      bool               // replays contain the update: one without it found no fault
	others    map[kind]*variant  // in another precision
	hidden    map[*ir.Value]bool // faults that need a full replay in f32
	compared  map[*ir.Value]bool // faults that need all results in f32, although a scale seemed to help
}

func newSubject(from *ir.Graph) (*subject, error) {
	s := &subject{from: from, g: from.Clone(), order: map[*ir.Value]int{}, section: map[*ir.Node]ir.Section{}, large: map[string]bool{},
		starts: map[draw]float64{}, others: map[kind]*variant{}, hidden: map[*ir.Value]bool{}, compared: map[*ir.Value]bool{}}
	if err := ir.InferUnits(s.g); err != nil {
		return nil, err
	}
	for _, v := range s.g.Vars {
		if v.Attr.Get("role") == ir.RoleScale {
			s.scales = append(s.scales, v)
		}
	}
	for at, n := range s.g.Nodes {
		s.section[n] = at
		for _, v := range n.Out {
			s.order[v] = len(s.order) + 1
			if v.Type.DType.Low() && len(n.Why.Casts) == 0 {
				s.chosen16 = v.Type.DType
			}
		}
	}
	return s, nil
}

// compiled is the program of a replay, without memory and variables.
type compiled struct {
	g         *ir.Graph
	p         *lower.Program
	buffer    map[string]lower.BufferID
	source    map[lower.BufferID]moment // of each root: the step that makes it
	streamed  bool                      // see replay
	fragments map[string]*fragment      // by the nodes that they compute
	without   map[*ir.Node]bool         // nodes of the step that the program leaves out
	general   *compiled                 // of a variant for one fault: that for others, which the diagnosis does not need
}

// compile lowers g. If its values take more than memory bytes when all of them are kept, the
// replay is streamed.
func compile(g *ir.Graph, how lower.Replay, memory int64) (*compiled, error) {
	p, err := lower.LowerReplay(g, how)
	if err != nil {
		return nil, err
	}
	c := &compiled{g: g, p: p, fragments: map[string]*fragment{}, streamed: how.Spread && p.Separate > memory}
	if c.streamed {
		how.Nodes = true
		if c.p, err = lower.LowerReplay(g, how); err != nil {
			return nil, err
		}
		c.p.Apart()
	}
	c.buffer = make(map[string]lower.BufferID, len(c.p.Buffers))
	for i := range c.p.Buffers {
		c.buffer[c.p.Buffers[i].Name] = lower.BufferID(i)
	}
	c.places()
	return c, nil
}

// machine is a compiled replay with its memory, bound to variables.
type machine struct {
	store     cpu.Replayed
	exec      runtime.Exec
	converted map[string][]byte // variables in the dtype of a variant
}

func (m *machine) close() {
	m.exec.Close()
	m.store.Close()
}

// loaded is the machines of a subject, and memory for more.
type loaded struct {
	b        *cpu.Backend
	machines map[*compiled]*machine // of earlier diagnoses
	used     map[*compiled]*machine // by this one, and free again
	spares   *cpu.Spares
}

// take returns a machine for c, loaded earlier or now on b. state returns its variables;
// those in another dtype it writes to the memory in converted, which it may replace.
func (l *loaded) take(c *compiled, b *cpu.Backend, state func(converted map[string][]byte) map[string][]byte) (*machine, error) {
	m := l.machines[c]
	if m == nil {
		m = l.used[c]
	}
	delete(l.machines, c)
	delete(l.used, c)
	if m == nil {
		m = &machine{converted: map[string][]byte{}}
		if unused := l.machines[c.general]; unused != nil { // its memory fits
			unused.close()
			delete(l.machines, c.general)
		}
	}
	vars := state(m.converted)
	if m.exec != nil {
		if m.store.Rewind(vars) {
			return m, nil
		}
		m.close()
	}
	var err error
	if m.store, err = b.ReplayStore(c.p, vars, l.spares); err != nil {
		return nil, err
	}
	if m.exec, err = b.Load(c.p, m.store); err != nil {
		m.store.Close()
		return nil, err
	}
	return m, nil
}
