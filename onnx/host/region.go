package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// entry is what runs at a stage for certain types: a region's program, then nodes on
// the host.
type entry struct {
	at      *stage
	reads   []operand // what the types, and so the region, depend on, except for what is the same in every run (scope.fixed)
	guards  *guards   // and which elements; nil: none
	region  []int     // nodes of the region
	program *program  // nil where the region computes nothing
	feeds   []feed
	outs    []result
	nodes   []int          // on the host, in order
	why     map[int]string // by such a node
	dead    []string       // values that nothing reads any more
	next    *stage
	form    *form // nil: other regions are not made like it
	single  []int // which nodes of region compute elements of f64 in f32, by their places in it
}

// operand is a value that a region reads, as it was when the region was made.
type operand struct {
	name string
	kind Kind
	typ  ir.Type
	init *onnx.Tensor // passed through from an initializer
}

// feed is an input of a program and the value that it takes.
type feed struct{ input, name string }

// result is a value that a region gives: a result of its program (at, else -1), one
// that was known, or another name of a value.
type result struct {
	name  string
	at    int
	known *Value
	given string
}

// title names a region in messages.
func (e *entry) title() string {
	first, last := slices.Min(e.region), slices.Max(e.region)
	in := ""
	if e.at.scope.path != "" {
		in = e.at.scope.path + ": "
	}
	return fmt.Sprintf("%snodes %d to %d", in, first, last)
}

// generalAfter is the number of entries that a stage may have for the same types with other
// elements. After that, regions are made without using elements.
const generalAfter = 4

// entry finds or makes what runs next.
func (r *run) entry(st *stage, f *frame) (e *entry, made bool, err error) {
	same, anyElements := 0, (*entry)(nil)
	for _, e := range slices.Backward(st.entries.candidates(f)) {
		if !e.types(f) {
			continue
		}
		if e.guards == nil {
			anyElements = e
			continue
		}
		holds, err := e.guards.hold(r.s, f)
		if err != nil {
			return nil, false, err
		}
		if holds {
			return e, false, nil
		}
		same++
	}
	if anyElements != nil {
		return anyElements, false, nil
	}
	e, err = r.trace(st, f, same >= generalAfter)
	if err != nil {
		return nil, false, err
	}
	st.entries.add(e)
	return e, true, r.s.cache.add(e, r.s.o.Programs, r.s.o.ProgramBytes)
}

// types reports whether what e reads has the types that e was made for.
func (e *entry) types(f *frame) bool {
	for i := range e.reads {
		x := &e.reads[i]
		v, t, _ := f.find(x.name)
		if x.init != t || v == nil && t == nil || t == nil && (v.Kind != x.kind || v.Type != x.typ) {
			return false
		}
	}
	return true
}

// region is a region being made.
type region struct {
	r       *run
	f       *frame
	st      *stage
	general bool           // regions do not depend on elements
	why     map[int]string // nodes that are left out, with the reason
	nodes   []int
	want    []string // results of nodes that are read elsewhere
	reads   map[string]operand
}

// trace makes the entry of a stage for the values that are there.
func (r *run) trace(st *stage, f *frame, general bool) (*entry, error) {
	g := &region{r: r, f: f, st: st, general: general, why: st.leftOut(r.s)}
	for {
		g.pick()
		g.reads = map[string]operand{}
		f := g.form()
		if e, err := g.known(f); e != nil || err != nil {
			return e, err
		}
		p, err := g.importPart()
		var wrong *onnx.PartError
		if errors.As(err, &wrong) {
			if err = g.leaveOut(g.nodes[wrong.Node], wrong.Err); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if g.split(p) != nil {
			return nil, errSplit
		}
		return g.entry(p, f)
	}
}

// leftOut lists the nodes of a stage that no region takes, with the reasons.
func (st *stage) leftOut(s *Session) map[int]string {
	if st.never == nil {
		st.never = map[int]string{}
		for _, i := range st.rest {
			n := st.scope.nodes[i]
			name := opName(n)
			if op, ok := s.ops[name]; ok && !inRegions[name] {
				st.never[i] = op.why
			} else if s.o.Observe != nil && (name == "If" || s.model.Function(n) != nil) {
				st.never[i] = "its values are observed"
			}
		}
	}
	return st.never
}

// known makes the entry like one of the same form, nil where there is none.
func (g *region) known(f *form) (*entry, error) {
	if f == nil {
		return nil, nil
	}
	first := g.r.s.cache.forms[f.key]
	if first != nil && first.program != nil && first.program.build.renames(first.form.to(f, g.r.s)) {
		g.r.join()
		first = g.r.s.cache.forms[f.key]
	}
	if first == nil {
		return nil, nil
	}
	e, err := g.like(first, f)
	if e == nil || err != nil {
		return nil, err
	}
	if x := g.st.alike; x != nil && g.first() { // what follows does not depend on sizes
		e.reads, e.nodes, e.why, e.next, e.dead = f.reads, x.nodes, x.why, x.next, x.dead
		g.r.s.noteSingle(e)
		return e, nil
	}
	if err := g.finish(e, f.reads); err != nil {
		return nil, err
	}
	if g.first() {
		g.st.alike = e
	}
	return e, nil
}

// leaveOut takes a node out of the region that was not imported, if the host can run it.
func (g *region) leaveOut(i int, err error) error {
	n := g.st.scope.nodes[i]
	var u onnx.Unsupported
	fn, _ := g.r.s.model.Inlined(n)
	if _, ours := g.r.s.ops[opName(n)]; !errors.As(err, &u) || !u.Data && !ours && fn == nil {
		return &onnx.NodeError{Index: i, Node: n.Name, Op: opName(n), Err: err}
	}
	if g.first() {
		g.why = maps.Clone(g.why)
	}
	g.why[i] = u.Reason
	return nil
}

// pick chooses the nodes of the region: those that are not left out and read nothing of
// those that are.
func (g *region) pick() {
	if g.first() && g.st.chosen != nil {
		g.nodes, g.want = g.st.chosen, g.st.want
		return
	}
	g.choose()
	g.wanted()
	if g.first() {
		g.st.chosen, g.st.want = g.nodes, g.want
	}
}

// first reports whether the region leaves out only what never is in one.
func (g *region) first() bool { return len(g.why) == len(g.st.never) }

// importPart imports the nodes of the region.
func (g *region) importPart() (*onnx.Partial, error) {
	p := onnx.Part{Opsets: g.st.scope.opsets, Given: g.given, Want: g.want, See: g.splits(), Folds: g.r.s.folds}
	for _, i := range g.nodes {
		p.Nodes = append(p.Nodes, g.st.scope.nodes[i])
	}
	return g.r.s.model.ImportPart(p)
}

// wanted lists the results of the region that are read elsewhere.
func (g *region) wanted() {
	s, done := g.st.scope, g.done(nil)
	g.want = nil
	for _, i := range g.nodes {
		for _, y := range s.nodes[i].Out {
			if y != "" && (g.r.s.o.Observe != nil || s.live(y, done)) {
				g.want = append(g.want, y)
			}
		}
	}
}

// choose lists the nodes of the region. Those that read initializers alone join the
// region that reads them, so that no large constant goes from one to another.
func (g *region) choose() {
	s, waits := g.st.scope, g.st.waits()
	g.nodes = nil
	missing, bound := make([]bool, len(s.nodes)), 0
	for _, i := range g.st.rest {
		_, out := g.why[i]
		if out || waits != nil && waits[i] || s.readsOf(i, missing) {
			missing[i] = true
			continue
		}
		g.nodes = append(g.nodes, i)
		if !s.free[i] {
			bound++
		}
	}
	if bound == 0 || len(g.nodes) == len(g.st.rest) {
		return
	}
	read := map[string]bool{}
	var kept []int
	for _, i := range slices.Backward(g.nodes) {
		if s.free[i] && !slices.ContainsFunc(s.nodes[i].Out, func(y string) bool { return read[y] }) {
			continue
		}
		kept = append(kept, i)
		for _, x := range s.reads[i] {
			read[x] = true
		}
	}
	slices.Reverse(kept)
	g.nodes = kept
}

// done are the nodes that are done after the region and further nodes.
func (g *region) done(more []int) []bool {
	done := slices.Clone(g.st.done)
	for _, list := range [][]int{g.nodes, more} {
		for _, i := range list {
			done[i] = true
		}
	}
	return done
}

// given hands a value of the frame to the importer.
func (g *region) given(name string) *onnx.Given {
	v, t, in := g.f.find(name)
	if v == nil && t == nil {
		return nil
	}
	x := operand{name: name, init: t}
	out := &onnx.Given{Name: name, Tensor: t}
	if t != nil {
		out.Tensor = g.r.s.shared(t)
		out.Name = g.r.s.nameOf(out.Tensor, name, in)
	} else {
		x.kind, x.typ = v.Kind, v.Type
		out.Kind, out.Type = v.Kind.kind(), v.Type
		out.Value = g.elements(v)
	}
	g.reads[name] = x
	return out
}

// elements are those of a value that is fed, nil where shapes may not be made from them.
func (g *region) elements(v *Value) *eval.Tensor {
	if !v.stable || g.general || v.Kind != Tensor || !onnx.Knowable(v.Type) {
		return nil
	}
	t, err := v.Elements()
	if err != nil {
		return nil
	}
	return t
}

// entry makes the entry of the region that was imported.
func (g *region) entry(p *onnx.Partial, f *form) (*entry, error) {
	e := &entry{at: g.st, region: slices.Clone(g.nodes), single: p.Single}
	if err := g.compile(e, p, f); err != nil {
		return nil, err
	}
	e.guards = newGuards(p)
	if f != nil && e.guards.general() {
		e.form = f
		g.r.s.cache.forms[f.key] = e
	}
	var reads []operand
	for _, name := range slices.Sorted(maps.Keys(g.reads)) {
		if !g.st.scope.fixed[name] {
			reads = append(reads, g.reads[name])
		}
	}
	return e, g.finish(e, reads)
}

// finish records what e depends on, what the host runs after its region, and which stage follows.
func (g *region) finish(e *entry, reads []operand) error {
	e.reads = reads
	g.r.s.noteSingle(e)
	g.ready(e)
	if len(e.region)+len(e.nodes) == 0 {
		return g.stuck()
	}
	e.next = g.next(e)
	var done []bool
	if e.next != nil {
		done = e.next.done
	} else {
		done = g.done(e.nodes)
	}
	bury := func(name string) {
		if !g.st.scope.live(name, done) {
			e.dead = append(e.dead, name)
		}
	}
	for _, x := range reads { // a value that neither the region nor its nodes read was dead before, or is still needed
		bury(x.name)
	}
	for _, o := range e.outs {
		bury(o.name)
	}
	for _, i := range e.nodes {
		for _, names := range [][]string{g.st.scope.reads[i], g.st.scope.nodes[i].Out} {
			for _, name := range names {
				bury(name)
			}
		}
	}
	return nil
}

// next is the stage after an entry.
func (g *region) next(e *entry) *stage {
	if !g.first() || len(e.nodes) > 0 {
		return g.st.plan.stage(g.done(e.nodes))
	}
	if !g.st.followed {
		g.st.followed, g.st.next = true, g.st.plan.stage(g.done(nil))
	}
	return g.st.next
}

// ready lists the nodes that the host runs after the region: those left out whose
// operands are there then.
func (g *region) ready(e *entry) {
	if len(g.why) == 0 {
		return
	}
	s := g.st.scope
	waiting := map[string]bool{}
	inRegion := g.done(nil)
	e.why = map[int]string{}
	for _, i := range g.st.rest {
		if inRegion[i] {
			continue
		}
		why, out := g.why[i]
		if !out || slices.ContainsFunc(s.reads[i], func(x string) bool { return waiting[x] }) {
			for _, y := range s.nodes[i].Out {
				waiting[y] = true
			}
			continue
		}
		e.nodes, e.why[i] = append(e.nodes, i), why
	}
}

// stuck explains why nothing can run.
func (g *region) stuck() error {
	for _, i := range g.st.rest {
		n := g.st.scope.nodes[i]
		for _, name := range g.st.scope.reads[i] {
			if v, t, _ := g.f.find(name); v == nil && t == nil {
				return &onnx.NodeError{Index: i, Node: n.Name, Op: opName(n), Err: fmt.Errorf("operand %q is neither an input nor an initializer nor the result of a node", name)}
			}
		}
	}
	return fmt.Errorf("the remaining nodes depend on each other: none can run")
}

// compile makes the program of a region of form f and says where its values come from and go to.
func (g *region) compile(e *entry, p *onnx.Partial, f *form) error {
	for i, w := range p.Wanted {
		out := result{name: g.want[i], at: -1, given: w.Given}
		switch {
		case w.Value != nil:
			out.at = slices.Index(p.Graph.Return, w.Value)
		case w.Known != nil:
			out.known = decoded(w.Known)
			out.known.stable = true
		case w.Tensor != nil:
			out.known = &Value{init: w.Tensor}
		}
		e.outs = append(e.outs, out)
	}
	if len(p.Graph.Return) == 0 {
		return nil
	}
	again := f != nil && g.r.s.lastForm[f.base.key] != nil
	if err := g.r.build(e, p, again); err != nil {
		return err
	}
	if f != nil {
		g.r.s.lastForm[f.base.key] = f
	}
	return nil
}
