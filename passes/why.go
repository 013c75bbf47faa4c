package passes

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/passes/plan"
)

// Link is one step of a chain of causes: a value, its stored dtype, and what decided that.
type Link struct {
	Value string   `json:"value"`
	Type  string   `json:"type"`
	Op    string   `json:"op,omitempty"`    // "" for variables
	Class string   `json:"class,omitempty"` // after overrides
	Cause string   `json:"cause"`           // class, pin, pattern, op, neighbour, forward, cut, guard, contract or declared
	Rule  string   `json:"rule,omitempty"`  // pattern that matched, or why the guard forbids low
	Marks []string `json:"marks,omitempty"`
	Text  string   `json:"text"` // the same in one sentence
	Pos   string   `json:"pos,omitempty"`
}

// Why follows the causes of a value's dtype in a compiled graph, from the value to one that depends
// on no other value: a rule, a pin, the cut or a declaration.
func Why(g *ir.Graph, name string) ([]Link, error) {
	v := g.Value(name)
	if v == nil {
		return nil, noValue(g, name)
	}
	var chain []Link
	for seen := map[*ir.Value]bool{}; v != nil && !seen[v]; {
		seen[v] = true
		link, cause := Explain(g, v)
		chain = append(chain, link)
		v = cause
	}
	return chain, nil
}

// Explain returns the link of one value of a compiled graph, and the value that decided its dtype.
// That is nil at the end of the chain.
func Explain(g *ir.Graph, v *ir.Value) (link Link, cause *ir.Value) {
	return linkOf(g, v), causeOf(v)
}

func noValue(g *ir.Graph, name string) error {
	var near []string
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil && strings.Contains(v.Name, name) && len(near) < 4 {
				near = append(near, v.String())
			}
		}
	}
	msg := fmt.Sprintf("graph @%s has no value %%%s", g.Name, name)
	if near != nil {
		return fmt.Errorf("%s; there are %s", msg, strings.Join(near, ", "))
	}
	return fmt.Errorf("%s%s", msg, meant(g, name))
}

// causeOf is the value that decided v's dtype, nil at the end of the chain.
func causeOf(v *ir.Value) *ir.Value {
	switch {
	case v.Def == nil:
		return nil
	case v.Def.Op == ir.OpCast:
		return v.Def.In[0]
	}
	return v.Def.Why.From
}

var markWords = [...]struct {
	mark ir.Marks
	text string
}{
	{ir.MarkReadsLow, "reads 16 bits itself"}, {ir.MarkStoresF32, "stores its f32 sum"}, {ir.MarkStoresLow, "stores 16 bits"},
	{ir.MarkInserted, "inserted"}, {ir.MarkCached, "one cast for all readers"}, {ir.MarkHoisted, "once per step"}, {ir.MarkSeed, "starts the sweep"},
	{ir.MarkRepeated, "computed again"}, {ir.MarkReadsSigns, "reads signs as bits"}, {ir.MarkAgain, "computes its image again"}, {ir.MarkSpread, "not stored"},
}

func linkOf(g *ir.Graph, v *ir.Value) Link {
	l := Link{Value: v.String(), Type: g.TypeString(v.Type), Cause: "declared", Pos: v.Pos.String()}
	n := v.Def
	if n == nil {
		l.Text = v.Kind.String() + " declared " + v.Type.DType.String()
		return l
	}
	why := n.Why
	class := n.ResultClass(v.Idx)
	if why.Class != ir.NoClass && v.Idx == 0 {
		class = why.Class
	}
	l.Op, l.Class, l.Cause, l.Rule, l.Pos = n.Def().Name, class.String(), why.Cause.String(), why.Rule, n.Pos.String()
	for _, m := range markWords {
		if why.Has(m.mark) {
			l.Marks = append(l.Marks, m.text)
		}
	}
	for _, c := range why.Casts {
		l.Marks = append(l.Marks, "rounded by the cast "+c.String()+" of the source")
	}
	l.Text = strings.Join(append([]string{causeText(n, v, class)}, l.Marks...), ", ")
	return l
}

// causeText is the cause in one clause.
func causeText(n *ir.Node, v *ir.Value, class ir.Class) string {
	d, why := n.Def(), n.Why
	if v.Idx > 0 {
		return fmt.Sprintf("result %d of %s, %s", v.Idx, d.Name, class)
	}
	from := ""
	if why.From != nil {
		from = why.From.String()
	}
	switch why.Cause {
	case ir.ByPin:
		return fmt.Sprintf("%s pinned to %s", d.Name, n.Pin)
	case ir.ByPattern:
		if from != "" {
			return fmt.Sprintf("%s is %s and shares the dtype of %s: the policy says %s", d.Name, class, from, why.Rule)
		}
		return fmt.Sprintf("%s, by the policy's pattern %s", d.Name, why.Rule)
	case ir.ByOp:
		return fmt.Sprintf("%s is %s in this policy", d.Name, class)
	case ir.ByNeighbour:
		return fmt.Sprintf("%s is %s and takes the dtype of %s", d.Name, class, from)
	case ir.ByForward:
		return fmt.Sprintf("%s is %s and goes with its forward value %s", d.Name, class, from)
	case ir.ByCut:
		return fmt.Sprintf("%s is %s and free: so the step moves the fewest bytes", d.Name, class)
	case ir.ByGuard:
		if from != "" {
			return fmt.Sprintf("%s is %s and shares the dtype of %s, which the range guard keeps f32: %s", d.Name, class, from, why.Rule)
		}
		return fmt.Sprintf("%s is %s and free, but the range guard keeps it f32: %s", d.Name, class, why.Rule)
	case ir.ByIsland:
		return fmt.Sprintf("%s stays f32 in the island %s: 1-p of a probability near 1 is 0 in 16 bits", d.Name, why.Rule)
	case ir.ByCopy:
		return fmt.Sprintf("%s reads the copy %s, which the ranks gather in 16 bits", d.Name, why.Rule)
	case ir.ByContract:
		if n.Op == ir.OpCast {
			return "a cast of " + n.In[0].String()
		}
		return fmt.Sprintf("%s: dtypes are its contract (%s)", d.Name, d.Why)
	}
	return fmt.Sprintf("%s is %s: %s", d.Name, class, d.Why)
}

// PrintChain writes a chain, one value per line.
func PrintChain(w io.Writer, chain []Link) {
	for i, l := range chain {
		fmt.Fprintf(w, "%s%s\n", strings.Repeat("  ", i), l)
	}
}

// String is the link in one line: value, type, sentence and position.
func (l Link) String() string {
	pos := ""
	if l.Pos != "" {
		pos = " (" + l.Pos + ")"
	}
	return fmt.Sprintf("%s : %s  %s%s", l.Value, l.Type, l.Text, pos)
}

// Flip is what storing a value in another dtype would cost.
type Flip struct {
	Value string `json:"value"`
	From  string `json:"from"`
	To    string `json:"to"`
	// Forbidden is the chain of values, nearest first, that leaves no choice. Because is the cause
	// of the last one's dtype. Both are empty if the other dtype is possible.
	Forbidden []string `json:"forbidden,omitempty"`
	Because   string   `json:"because,omitempty"`
	// Bytes and Casts are how much more the step would move and cast, if all other choices are made
	// again for the fewest bytes.
	Bytes int64 `json:"bytes"`
	Casts int   `json:"casts"`
}

// WhyNot says what storing value name in dtype d would cost, as Policy.Store does, or what forbids
// it. It compiles source twice, under cfg's policy with the minimum cut.
func WhyNot(source *ir.Graph, cfg Config, name string, d ir.DType) (*Flip, error) {
	if d != ir.F32 && d != cfg.Policy.Low {
		return nil, fmt.Errorf("why-not %s: policy %s chooses between f32 and %s", d, cfg.Policy.Name, cfg.Policy.Low)
	}
	cfg.Policy = cfg.Policy.decided()
	cfg.Policy.Algorithm = "mincut"
	base, err := measure(source, cfg, &flip{})
	if err != nil {
		return nil, err
	}
	v := base.graph.Value(name)
	if v == nil {
		return nil, noValue(base.graph, name)
	}
	return price(source, cfg, base, &flip{name: name, d: d}, v)
}

// WhyNotAll answers WhyNot for every value that amp may store in one of two dtypes, each for the
// dtype that it does not have, in the order of the graph. Only values with a choice cost a
// compilation.
func WhyNotAll(source *ir.Graph, cfg Config) ([]*Flip, error) {
	cfg.Policy = cfg.Policy.decided()
	cfg.Policy.Algorithm = "mincut"
	var asked []*flip
	var values []*ir.Value
	base, err := measure(source, cfg, &flip{look: func(m *planner) {
		free := m.solver.Solve()
		for _, n := range m.g.Nodes {
			for _, v := range n.Out {
				if v.Next != nil || m.v[v.ID] < 0 {
					continue
				}
				f := &flip{name: v.Name, d: m.low}
				if free.Low(m.v[v.ID]) && m.leaves(n, v) {
					f.d = ir.F32
				}
				if f.d == ir.F32 || m.low != ir.F32 {
					m.answer(f, v, free)
					asked, values = append(asked, f), append(values, v)
				}
			}
		}
	}})
	if err != nil {
		return nil, err
	}
	all := make([]*Flip, len(asked))
	for i, f := range asked {
		if f.because != "" {
			all[i] = f.sentence(values[i])
			continue
		}
		if all[i], err = price(source, cfg, base, f, values[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// price compiles with f and compares with base.
func price(source *ir.Graph, cfg Config, base *measured, f *flip, v *ir.Value) (*Flip, error) {
	other, err := measure(source, cfg, f)
	if err != nil {
		return nil, err
	}
	out := f.sentence(v)
	if f.because == "" {
		out.Bytes, out.Casts = other.bytes-base.bytes, other.casts-base.casts
	}
	return out, nil
}

// sentence is the answer without its price.
func (f *flip) sentence(v *ir.Value) *Flip {
	return &Flip{Value: v.String(), From: f.was.String(), To: f.d.String(), Forbidden: f.chain, Because: f.because}
}

// String is the answer in one or two sentences.
func (f *Flip) String() string {
	switch {
	case f.From == f.To && f.Because == "":
		return fmt.Sprintf("%s is stored in %s already", f.Value, f.To)
	case f.Because != "" && len(f.Forbidden) > 0:
		return fmt.Sprintf("%s must be %s, because of %s: %s", f.Value, f.From, strings.Join(f.Forbidden, ", then "), f.Because)
	case f.Because != "":
		return fmt.Sprintf("%s must be %s: %s", f.Value, f.From, f.Because)
	}
	return fmt.Sprintf("%s in %s would make the step move %+d bytes and have %+d casts", f.Value, f.To, f.Bytes, f.Casts)
}

// flip asks amp to store one value in d, and receives amp's answer.
type flip struct {
	name    string
	d       ir.DType
	was     ir.DType
	chain   []string
	because string
	look    func(m *planner) // receives the plan before it is solved; nil except in tests
}

type measured struct {
	graph *ir.Graph
	bytes int64
	casts int
}

func measure(source *ir.Graph, cfg Config, f *flip) (*measured, error) {
	m := &measured{}
	var at map[*ir.Value]*ir.Value
	m.graph, at = source.CloneMap()
	cfg = cfg.On(at)
	cfg.flip = f
	cfg.Record, cfg.Until = nil, "fuse"
	cfg.After = func(e Event) { m.bytes += int64(e.Counters["cut_bytes"]) }
	if err := Run(m.graph, cfg); err != nil {
		return nil, err
	}
	for _, n := range m.graph.Nodes {
		if n.Op == ir.OpCast {
			m.casts++
		}
	}
	return m, nil
}

// flipped constrains the value of c.flip, or answers why that is not possible.
func (m *planner) flipped(f *flip) {
	if f.look != nil {
		f.look(m)
	}
	v := m.named(f.name)
	if v == nil {
		return
	}
	if m.answer(f, v, m.solver.Solve()); f.because == "" && f.was != f.d {
		m.pin(m.v[v.ID], f.d, pinned{ir.ByPattern, v, storeWord(f.d) + " " + f.name})
	}
}

// answer records in which dtype v is stored under the unconstrained cut free, and what forbids the
// other dtype, if anything does.
func (m *planner) answer(f *flip, v *ir.Value, free *plan.Result) {
	x := m.v[v.ID]
	if x < 0 {
		f.was, f.because = v.Type.DType, "its dtype is fixed under this policy"
		return
	}
	f.was = ir.F32
	if free.Low(x) {
		f.was = m.low
	}
	switch {
	case v.Def != nil && !m.leaves(v.Def, v):
		f.was, f.because = ir.F32, "it is a register of its cluster and never stored"
	case f.was == f.d:
	case !x.Free():
		f.because = m.fixedBecause(v)
	case free.ForcedBy(x) != x:
		f.chain, f.because = m.forcedChain(free, x)
	}
}

func (m *planner) named(name string) *ir.Value {
	if name == "" {
		return nil
	}
	return m.g.Value(name)
}

// fixedBecause says why no choice decides v.
func (m *planner) fixedBecause(v *ir.Value) string {
	n := v.Def
	if n == nil {
		return v.Kind.String() + "s keep the dtype they are declared with"
	}
	t := &m.node[n.ID]
	required := m.required[v.ID]
	if base := m.base[v.ID]; base != v {
		return fmt.Sprintf("it shares the memory of %s: %s", base, m.fixedBecause(base))
	}
	switch {
	case t.class == ir.Fixed || n.ResultClass(v.Idx) == ir.Fixed:
		return fmt.Sprintf("its dtype is the contract of %s", n.Def().Name)
	case t.cause == ir.ByPin:
		return "it is pinned to " + t.pin.String()
	case t.cause == ir.ByIsland:
		return "it is in the island " + t.rule + ": 1-p of a probability near 1 is 0 in 16 bits"
	case t.cause == ir.ByPattern:
		return "the policy's pattern " + t.rule
	case t.cause == ir.ByCopy:
		return "it reads the copy " + t.rule + ", which the ranks gather in 16 bits"
	case m.out[v.ID]:
		return "it is returned, or the next value of a variable"
	case required == readByF32:
		return "every reader needs f32, and storing it costs no cast"
	case required == readByLow:
		return "every reader is a low operand"
	case required&readByF32 != 0:
		return fmt.Sprintf("%s is %s and a reader needs f32", n.Def().Name, t.class)
	case required&readByPromote != 0:
		return fmt.Sprintf("%s is %s and a promoting row reads it", n.Def().Name, t.class)
	case !m.c.Caps.StoresLow(n) && t.class != ir.Low:
		return fmt.Sprintf("the kernel of %s stores f32 only", n.Def().Name)
	}
	return fmt.Sprintf("%s is %s (%s) and no product reads it", n.Def().Name, t.class, n.Def().Why)
}

// forcedChain follows what forced x to a value that no choice decides.
func (m *planner) forcedChain(r *plan.Result, x plan.Choice) (chain []string, because string) {
	for y := r.ForcedBy(x); y.Free(); y = r.ForcedBy(y) {
		if v := m.ownerOf(y); v != nil && !slices.Contains(chain, v.String()) {
			chain = append(chain, v.String())
		}
		x = y
	}
	if p := m.pins[x]; p != nil && p.cause == ir.ByGuard {
		return chain, fmt.Sprintf("the range guard keeps %s f32: %s", p.v, p.rule)
	} else if p != nil {
		return chain, "the policy's rule " + p.rule
	}
	if v := m.terminalOf(x); v != nil {
		if s := v.String(); !slices.Contains(chain, s) {
			chain = append(chain, s)
		}
		return chain, m.fixedBecause(v)
	}
	return chain, "a promoting row never narrows"
}

// terminalOf finds a value of fixed dtype that choice x depends on: an operand of the value that x
// decides, or the tensor that this is the gradient of.
func (m *planner) terminalOf(x plan.Choice) *ir.Value {
	v := m.ownerOf(x)
	if v == nil || v.Def == nil {
		return nil
	}
	for i, in := range v.Def.In {
		if in != nil && m.assignable(in) && !m.weak[in.ID] && v.Def.OperandClass(i) != ir.Fixed && m.seen[in.ID] == plan.F32 {
			return in
		}
	}
	return m.partner[v.ID]
}
