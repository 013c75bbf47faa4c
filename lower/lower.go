package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// Lower turns a Ready graph, all of whose dimensions are known, into a Program for t. Errors name
// the node and its position. Lower renumbers the graph and changes nothing else in it. A variable
// that is returned under its own name is returned with its value after the step. The Program is
// verified.
func Lower(g *ir.Graph, t Target) (*Program, error) { return verified(Unverified(g, t)) }

// Unverified is Lower without Verify.
func Unverified(g *ir.Graph, t Target) (*Program, error) { return lower(g, t, form{joins: true}) }

// verified returns p, unless it was not made or Verify finds a fault.
func verified(p *Program, err error) (*Program, error) {
	if err != nil {
		return nil, err
	}
	if err := Verify(p); err != nil {
		return nil, fmt.Errorf("the program of @%s does not do what the compiled step says: this is a fault of the compiler, please report it with the model (NoProof compiles without this check): %w", p.Name, err)
	}
	return p, nil
}

// Peak returns a function that computes how many bytes the Program of a graph takes on t.
func Peak(t Target) func(g *ir.Graph) (int64, error) {
	return func(g *ir.Graph) (int64, error) {
		p, err := Unverified(g, t)
		if err != nil {
			return 0, err
		}
		return p.Total(), nil
	}
}

// Replay are the options of LowerReplay.
type Replay struct {
	// Nodes makes every node a step of its own, so that no value stays in registers. Fusion changes no
	// bits: these steps store what the fused steps compute.
	Nodes bool
	// Spread gives every work buffer its own memory. Without it buffers share memory, as in Lower,
	// but no time is spent on the search for the best placement.
	Spread bool
	// Update is Nodes for part update alone. Where an update is skipped, its fused steps do not
	// store what they computed.
	Update bool
	// Show names values that are stored although no other step reads them.
	Show []string
}

// LowerReplay lowers for the CPU, for a program that runs once and is traced. The next value of a
// variable has its own memory, so the variable keeps its old value. The Program is verified.
func LowerReplay(g *ir.Graph, r Replay) (*Program, error) {
	return verified(lower(g, CPU, form{joins: !r.Nodes, update: r.Update, apart: true, spread: r.Spread, brief: !r.Spread, show: r.Show}))
}

// form says how a graph becomes steps.
type form struct {
	joins  bool // fuse clusters, norms and updates
	update bool // with joins: do not fuse those of part update
	apart  bool // next values that part update computes do not overwrite their variables
	spread bool // work buffers have their own memory
	brief  bool // buffers are placed without a search for the best order
	show   []string
}

func lower(g *ir.Graph, t Target, f form) (*Program, error) {
	g, err := expand(g, t)
	if err != nil {
		return nil, err
	}
	if err := check(g, t); err != nil {
		return nil, err
	}
	l := newLowerer(g, t, f)
	l.show()
	l.joins = f.joins && t.Fuses()
	l.findViews()
	l.findUnstored()
	if err := l.declare(); err != nil {
		return nil, err
	}
	for part := range NumParts {
		if err := l.part(part); err != nil {
			return nil, err
		}
	}
	l.finish()
	if f.joins && !f.update {
		if err := t.Finish(l.p); err != nil {
			return nil, err
		}
	}
	l.p.messages()
	l.plan()
	t.Order(l.p)
	return l.p, nil
}

// Check checks that t can run every op of g, or its expansion, and that every dimension is known. The
// error names the first node or declaration for which this is false.
func Check(g *ir.Graph, t Target) error {
	g, err := expand(g, t)
	if err != nil {
		return err
	}
	return check(g, t)
}

// check is Check for a graph that is expanded.
func check(g *ir.Graph, t Target) error {
	for _, v := range g.Vars {
		if !v.Type.Shape.Static() {
			return g.SizesError(v.Pos, v.Type, fmt.Sprintf("%s has type %s", v, g.TypeString(v.Type)))
		}
	}
	for _, n := range g.Nodes {
		if t.Rule(n) == nil {
			return &ir.Error{Pos: n.Pos, Msg: refusal(n, t)}
		}
		for _, v := range n.Out {
			if !v.Type.Shape.Static() {
				return g.SizesError(n.Pos, v.Type, fmt.Sprintf("%s: %s has type %s", n.Def().Name, v, g.TypeString(v.Type)))
			}
		}
	}
	return nil
}

// refusal is the message that t does not run n.
func refusal(n *ir.Node, t Target) string {
	if n.Op == ir.OpForeign {
		return fmt.Sprintf("%s of operator set %s is not known here: it is kept, and cannot be computed", ir.Printable(n.Str("op")), ir.Printable(n.Str("domain")))
	}
	if why := t.Refusal(n); why != "" {
		return n.Def().Name + ": " + why
	}
	return fmt.Sprintf("%s: no rule lowers it for %s", n.Def().Name, t)
}

// Lowerer is the state of one Lower call. A Rule adds steps to it.
type Lowerer struct {
	g *ir.Graph
	p *Program
	*readers

	buf      []BufferID // by Value.ID; None where there is no buffer yet
	written  []bool     // by Value.ID of a variable: a step writes its next value there
	lastRead []int32    // by Value.ID of a variable: position of its last read under its old name
	seq      []int32    // by Node.ID: position in emission order
	steps    *[]Step    // of the part being lowered
	at       Part       // that part
	late     []lateWrite
	views    ir.StridedViews                // values without their own memory
	signs    map[*ir.Value]BufferID         // the bits that a norm's kernel stores of a ReLU's result (ir.Caps.Signs)
	images   map[*ir.Value]*ir.SumOfWindows // images that no step stores (ir.Caps.Spreads)
	pools    map[*ir.Node]*ir.Node          // by max pool: the norm whose ReLU it computes again (ir.Caps.PooledNorm)
	pooled   map[*ir.Node]bool              // these norms
	instead  map[*ir.Value]instead          // values in place of which something else is stored
	form
	opened  map[int32]bool // clusters that are lowered node by node
	current *scheduled     // being lowered
	running int32          // its index in Program.Planned
	now     []*ir.Node     // nodes of the step being built
}

// lateWrite is the next value of a variable that later steps still read. The next value is computed
// in its own buffer and copied to the variable at the end of its part.
type lateWrite struct{ from, to BufferID }

func newLowerer(g *ir.Graph, t Target, f form) *Lowerer {
	l := &Lowerer{g: g, p: &Program{Name: g.Name, Target: t}, readers: newReaders(g), form: f, signs: map[*ir.Value]BufferID{}, images: map[*ir.Value]*ir.SumOfWindows{}, pools: map[*ir.Node]*ir.Node{}, pooled: map[*ir.Node]bool{}, instead: map[*ir.Value]instead{}}
	values, nodes := g.Number()
	l.buf = slices.Repeat([]BufferID{None}, values)
	l.seq = make([]int32, nodes)
	l.written = make([]bool, values)
	for section, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next != nil && !(f.apart && section == ir.Update) {
				l.written[v.Next.ID] = true
			}
		}
	}
	return l
}

// show makes steps store the values that a replay shows. The kernel of a norm does not store the
// values inside its cluster; such a cluster is lowered node by node instead.
func (l *Lowerer) show() {
	if len(l.form.show) == 0 {
		return
	}
	l.opened = map[int32]bool{}
	chains := map[int32]bool{}
	for _, n := range l.g.Nodes {
		if n.Why.Cluster > 0 && l.p.Target.Caps().Chains(n) {
			chains[n.Why.Cluster] = true
		}
	}
	wanted := make(map[string]bool, len(l.form.show))
	for _, name := range l.form.show {
		wanted[name] = true
	}
	for _, n := range l.g.Nodes {
		for _, v := range n.Out {
			if wanted[v.Name] && v.Next == nil {
				l.returned[v.ID] = true
				if k := n.Why.Cluster; chains[k] && slices.ContainsFunc(l.uses.Of(v), func(u ir.Use) bool { return u.Node.Why.Cluster == k }) {
					l.opened[k] = true
				}
			}
		}
	}
}

// NewBuffer adds a buffer that is not a view.
func (p *Program) NewBuffer(name string, t ir.Type, a Arena) BufferID {
	id := BufferID(len(p.Buffers))
	p.Buffers = append(p.Buffers, Buffer{Name: name, Type: t, Arena: a, Root: id, Size: t.Bytes(), Live: Span{-1, -1}})
	return id
}

// view adds a view of another type over all bytes of buffer of, or of its root.
func (l *Lowerer) view(name string, t ir.Type, of BufferID) BufferID {
	id := l.p.NewBuffer(name, t, l.p.Buffers[of].Arena)
	l.p.Buffers[id].Root = l.p.Buffers[of].Root
	return id
}

var kindArenas = [...]Arena{ir.Input: InputArena, ir.Param: StateArena, ir.State: StateArena, ir.Const: ConstArena}

func (l *Lowerer) declare() error {
	for _, v := range l.g.Vars {
		id := l.p.NewBuffer(v.Name, v.Type, kindArenas[v.Kind])
		l.buf[v.ID] = id
		l.p.Vars = append(l.p.Vars, Var{Name: v.Name, Type: v.Type, Kind: v.Kind, Init: v.Init, Attr: v.Attr, Buffer: id})
	}
	return nil
}

// part lowers one part: its schedule nodes in an order that keeps every cluster together.
func (l *Lowerer) part(part Part) error {
	l.steps, l.at = &l.p.Parts[part], part
	l.late = nil
	if part == Prepare && l.p.Target.Refreshes() {
		l.refreshWritten()
	}
	nodes, err := l.schedule(part)
	if err != nil {
		return err
	}
	l.number(nodes)
	first := int32(len(l.p.Planned))
	for i := range nodes {
		l.current, l.running = &nodes[i], first+int32(i)
		if err := l.lowerScheduled(l.current); err != nil {
			return err
		}
	}
	l.planned(nodes)
	for _, w := range l.late {
		b := &l.p.Buffers[w.to]
		l.runs(PlannedCluster{Name: "%" + b.Name + "'", Part: part, Ports: []Port{{Root: w.from, DType: b.Type.DType}, {Root: w.to, DType: b.Type.DType, Write: true}}})
		l.emit(Step{Kind: KindCopy, In: []BufferID{w.from}, Out: []BufferID{w.to}, Node: NodeRef{Name: "%" + b.Name + "'"},
			Moves: wholeMove(b.Type)})
	}
	return nil
}

// number gives nodes the positions of their schedule nodes. It notes where each variable is last
// read under its old name: until then its next value may not overwrite it.
func (l *Lowerer) number(nodes []scheduled) {
	l.lastRead = slices.Repeat([]int32{-1}, len(l.buf))
	pos := int32(0)
	for _, u := range nodes {
		for _, n := range u.nodes {
			l.seq[n.ID] = pos
			for _, v := range n.In {
				if v != nil {
					l.lastRead[l.rootVar(v).ID] = pos
				}
			}
		}
		pos++
	}
}

// rootVar follows views to the value that they view.
func (l *Lowerer) rootVar(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Def().Is(ir.View) && v.Next == nil {
		v = v.Def.In[0]
	}
	return v
}

// result returns the buffer of value v. The next value of a variable takes the variable's own
// buffer where it may overwrite it. Other values get a new one.
func (l *Lowerer) result(v *ir.Value) BufferID {
	if l.buf[v.ID] != None {
		return l.buf[v.ID]
	}
	if p, ok := l.views.At[v]; ok {
		return l.strided(v, p)
	}
	id := None
	switch variable := v.Next; {
	case variable == nil:
		t := l.storedAs(v)
		id = l.p.NewBuffer(t.name, t.typ, WorkArena)
	case l.apart && l.at == Update:
		id = l.p.NewBuffer(v.Name+"'", v.Type, WorkArena)
	case l.lastRead[variable.ID] <= l.seq[v.Def.ID] && l.overwrites(v):
		id = l.buf[variable.ID]
	default:
		id = l.p.NewBuffer(v.Name+"'", v.Type, WorkArena)
		l.late = append(l.late, lateWrite{id, l.buf[variable.ID]})
	}
	l.buf[v.ID] = id
	return id
}

// overwrites reports whether v's node may store to the variable while it still reads it: an
// elementwise node where the types agree, another node where its row says so.
func (l *Lowerer) overwrites(v *ir.Value) bool {
	n, variable := v.Def, v.Next
	for i, x := range n.In {
		if x == nil || l.rootVar(x) != variable {
			continue
		}
		switch d := n.Def(); {
		case d.Elem != nil:
			if x.Type != v.Type {
				return false
			}
		case !d.Is(ir.InPlace) || i != 0 || v.Idx != 0:
			return false
		}
	}
	// All nodes of a cluster store at the same time. A node of it may read the variable only in the
	// same step and at the same points.
	for _, m := range l.current.nodes {
		if m == n && n.Def().Elem == nil {
			continue // checked above
		}
		for _, x := range m.In {
			if x != nil && l.rootVar(x) == variable && (x.Type != v.Type || m.Def().Elem == nil || !contains(l.now, m)) {
				return false
			}
		}
	}
	return true
}

// outlives reports whether view v of a variable is needed after the part that computes it. By then
// the variable may have its next value.
func (l *Lowerer) outlives(v *ir.Value) bool {
	if l.returned[v.ID] {
		return true
	}
	for _, u := range l.uses.Of(v) {
		if partOf[u.Section] != l.at || u.Node.Def().Is(ir.View) && u.Arg() == 0 && l.outlives(u.Node.Out[0]) {
			return true
		}
	}
	return false
}

func (l *Lowerer) in(v *ir.Value) BufferID {
	if v == nil {
		return None
	}
	if p, ok := l.views.At[v]; ok {
		return l.strided(v, p)
	}
	return l.buf[v.ID]
}

func (l *Lowerer) ins(n *ir.Node) []BufferID {
	ids := make([]BufferID, len(n.In))
	for i, v := range n.In {
		ids[i] = l.in(v)
	}
	return ids
}

func (l *Lowerer) outs(n *ir.Node) []BufferID {
	ids := make([]BufferID, len(n.Out))
	for i, v := range n.Out {
		ids[i] = l.result(v)
	}
	return ids
}

// step returns the step of one node.
func (l *Lowerer) step(k StepKind, n *ir.Node) Step {
	return Step{Kind: k, In: l.ins(n), Out: l.outs(n), Node: NodeRef{n.Name(), n.Pos}}
}

func (l *Lowerer) emit(s Step) {
	if s.Bytes == 0 {
		s.Bytes = l.p.Traffic(&s)
	}
	s.Runs = []int32{l.running}
	*l.steps = append(*l.steps, s)
}

// runs adds a cluster to Planned. The next step runs it.
func (l *Lowerer) runs(c PlannedCluster) {
	l.running = int32(len(l.p.Planned))
	l.p.Planned = append(l.p.Planned, c)
}

// Traffic is the number of bytes that a step moves. Each tensor that it reads or writes counts
// once, under however many names. Of a tensor that is read in parts, only these parts count.
func (p *Program) Traffic(s *Step) (sum int64) {
	for _, list := range [2][]BufferID{s.In, s.Out} {
		p.each(list, func(_ BufferID, bytes int64) { sum += bytes })
	}
	return sum
}

// each calls f once for each tensor of list, with the bytes of it that list names.
func (p *Program) each(list []BufferID, f func(id BufferID, bytes int64)) {
	of := groupedBy(list, p.rootOf)
	var seen members[BufferID]
	for _, id := range list {
		if root := p.rootOf(id); root != None && !seen.has(root) {
			seen.add(root)
			f(id, p.touched(of.with(root), id))
		}
	}
}

func (p *Program) sameRoot(a, b BufferID) bool { return p.Buffers[a].Root == p.Buffers[b].Root }

// touched is the number of bytes of id's root that list names.
func (p *Program) touched(list []BufferID, id BufferID) (sum int64) {
	whole := p.Buffers[p.Buffers[id].Root].Size
	var seen members[string]
	for _, other := range list {
		if other == None || !p.sameRoot(other, id) {
			continue
		}
		b := &p.Buffers[other]
		if b.dense() {
			return whole
		}
		if key := b.view().Key(); !seen.has(key) {
			seen.add(key)
			sum += b.Size
		}
	}
	return min(sum, whole)
}

// refreshWritten adds steps to prepare that cast variables to the weight copies that the update
// keeps. A runtime skips these steps while the copies are current (see Target.Refreshes).
func (l *Lowerer) refreshWritten() {
	vars := make(map[string]*ir.Value, len(l.g.Vars))
	for _, v := range l.g.Vars {
		vars[v.Name] = v
	}
	for _, v := range l.g.Vars {
		of, _ := v.Attr.Get("of").(string)
		if from := vars[of]; v.Attr.Get("role") == ir.RoleCopy && from != nil {
			in, out, shape := l.buf[from.ID], l.buf[v.ID], ir.Sizes(v.Type.Shape)
			l.runs(PlannedCluster{Name: v.String(), Part: l.at, Ports: []Port{{Root: in, DType: from.Type.DType}, {Root: out, DType: v.Type.DType, Write: true}}})
			l.emit(Step{Kind: KindCluster, In: []BufferID{in}, Out: []BufferID{out}, Node: NodeRef{v.String(), v.Pos}, Cluster: &Cluster{
				Shape: shape, Code: []ir.Instr{{Op: ir.PIn, Type: ir.F32}},
				Loads:  []Access{{Buffer: in, DType: from.Type.DType, Strides: ir.RowMajor(shape)}},
				Stores: []Access{{Buffer: out, DType: v.Type.DType, Strides: ir.RowMajor(shape)}},
			}})
			l.p.WeightCopies = append(l.p.WeightCopies, WeightCopy{Var: of, DType: v.Type.DType, Buffer: out, Step: len(*l.steps) - 1})
		}
	}
}

// finish records what a runtime binds by name: outputs, written variables, weight copies and
// derived values.
func (l *Lowerer) finish() {
	for _, v := range l.g.Return {
		l.p.Outputs = append(l.p.Outputs, Binding{v.String(), v.Type, l.buf[v.ID]})
	}
	for _, v := range l.g.Vars {
		if l.written[v.ID] && !v.IsCache() {
			l.p.Written = append(l.p.Written, v.Name)
		}
	}
	l.keepWeightCopies()
	l.keepDerived()
}

// keepWeightCopies moves the copies of variables that prepare makes into the state arena, where
// they outlive the step.
func (l *Lowerer) keepWeightCopies() {
	at := map[BufferID]int{}
	for i := range l.p.Parts[Prepare] {
		if s := &l.p.Parts[Prepare][i]; len(s.Out) == 1 {
			at[s.Out[0]] = i
		}
	}
	for _, n := range l.g.Body[ir.Prepare] {
		if n.Op != ir.OpCast || !n.In[0].IsVar() || n.In[0].Kind == ir.Input || !n.Out[0].Type.DType.Low() {
			continue
		}
		id := l.buf[n.Out[0].ID]
		step, ok := at[id]
		if !ok {
			continue
		}
		l.p.Buffers[id].Arena = StateArena
		l.p.WeightCopies = append(l.p.WeightCopies, WeightCopy{Var: n.In[0].Name, DType: n.Out[0].Type.DType, Buffer: id, Step: step})
	}
}
