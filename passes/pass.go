// Package passes turns a source graph into a compiled training step, with gradients, loss scaling,
// optimizer, precision, fusion and order. Each pass is one file.
package passes

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"ampc/ir"
)

// Pass is one rewrite of a graph.
type Pass struct {
	Name     string
	Doc      string
	Run      func(g *ir.Graph, c *Context) error
	Required bool     // without it the result is not a step
	Stage    ir.Stage // stage of the graph after the pass
}

// Pipeline returns the passes in the order they run.
func Pipeline() []Pass {
	return []Pass{
		{"mode", "sets dropout and batch norm to training or inference", mode, true, ir.Source},
		{"recognize", "safe rewrites, each with a note; norms, softmax and GELU written with elementwise ops become one op", recognize, false, ir.Source},
		{"canon", "removes dead nodes, folds exact ops of constants, merges equal nodes", canon, false, ir.Source},
		{"padding", "pads products with zeros to the multiples that tensor cores want (off by default)", padding, false, ir.Source},
		{"autodiff", "appends the backward section, one sweep per scaler; sums gradients at fan-outs", autodiff, true, ir.Training},
		{"accumulate", "adds the accumulators, counts and results of micro-batches", accumulate, true, ir.Training},
		{"scale", "adds seeds, multipliers, finiteness checks, norms and the next states of the scalers", scale, true, ir.Training},
		{"foldnorms", "in inference, folds batch norms with running statistics into the convolutions before them", foldNorms, false, ir.Training},
		{"optimizer", "adds the update: a node per parameter, schedules, averages, counters", optimizer, true, ir.Training},
		{"chunks", "splits a product, its cross entropy and their gradients into blocks of rows (off by default)", chunks, true, ir.Training},
		{"layout", "chooses NCHW or NHWC for convolutions, pools and the nodes between them, as the target prefers", layout, false, ir.Training},
		{"casts", "canonicalizes casts in the source: none superfluous, one per value and dtype", canonicalCasts, false, ir.Training},
		{"cluster", "forms clusters: nodes that run as one kernel, whose inner values are not stored", formClusters, false, ir.Training},
		{"views", "marks splits, transposes and concatenations that need no copy, because attention reads strided views", views, false, ir.Training},
		{"amp", "assigns a stored dtype to every value from its class, and inserts casts", amp, true, ir.Mixed},
		{"scalers", "removes loss scales that no f16 gradient carries; refuses f16 gradients that need one", scalers, false, ir.Mixed},
		{"masks", "clamps mask constants to the range of their dtype", masks, false, ir.Mixed},
		{"epsilon", "refuses a constant that is 0 in its dtype and guards a division, logarithm or root", epsilon, false, ir.Mixed},
		{"castcache", "keeps one cast per value and dtype; moves casts of parameters to prepare", castcache, false, ir.Mixed},
		{"castelim", "removes casts that change nothing; without a plan, also pairs of casts with moves between them", castelim, false, ir.Mixed},
		{"castfold", "removes casts that a kernel does when it loads or stores", castfold, false, ir.Mixed},
		{"gather", "gathers sharded weights from all ranks in the dtype that is read (off by default)", gatherParts, true, ir.Mixed},
		{"recompute", "lets backward recompute what costs less than keeping it: norms before activations, positions of max pools", recompute, false, ir.Mixed},
		{"memory", "lets backward recompute so much that the program fits into the memory limit (off by default)", memory, false, ir.Mixed},
		{"weight-copies", "lets the optimizer write the 16-bit copy of a weight beside the weight (off by default)", writeCopies, false, ir.Mixed},
		{"fuse", "completes clusters with the casts around them", fuse, false, ir.Mixed},
		{"launches", "decides by dtypes which launches of a product and the clusters beside it one kernel runs", settleLaunches, true, ir.Mixed},
		{"dce", "removes nodes that no result depends on", dce, false, ir.Mixed},
		{"order", "orders the nodes topologically for a low memory peak", orderPass, false, ir.Ready},
		{"prove", "checks the finished step against the graph before layout, by rules of its own", judge, false, ir.Ready},
	}
}

// order says which pass must run before which, and why. A pair applies if both passes are in the
// pipeline.
var order = [...]struct{ before, after, why string }{
	{"mode", "canon", "in inference, dropout becomes its operand before nodes are folded"},
	{"recognize", "autodiff", "gradients come from the recognized op"},
	{"recognize", "canon", "the nodes that a recognized op replaces are dead"},
	{"canon", "padding", "a dead product is not padded"},
	{"padding", "autodiff", "backward is padded as forward is"},
	{"canon", "autodiff", "a dead node gets no gradient"},
	{"autodiff", "amp", "one policy sees forward and backward; a free backward node follows its forward node"},
	{"autodiff", "accumulate", "gradients exist afterwards"},
	{"accumulate", "scale", "check and multiplier read the accumulators"},
	{"scale", "optimizer", "the update reads checked gradients and one multiplier"},
	{"autodiff", "foldnorms", "gradients in the forward section are those of the norm"},
	{"foldnorms", "optimizer", "the graph that prove compares with has the folded weights"},
	{"optimizer", "chunks", "the sums of losses exist afterwards"},
	{"chunks", "layout", "prove compares with the graph that has the blocks"},
	{"optimizer", "amp", "master weights are Fixed nodes the policy must see"},
	{"casts", "cluster", "a cast that is a node of its own joins a cluster"},
	{"layout", "cluster", "clusters are formed over final shapes"},
	{"cluster", "amp", "interior values have no traffic"},
	{"cluster", "views", "a node that no result depends on reads nothing"},
	{"views", "amp", "what is not copied has no traffic"},
	{"amp", "scalers", "whether a gradient is f16 is known afterwards"},
	{"amp", "masks", "the clamp depends on the dtype"},
	{"amp", "epsilon", "the value of a constant depends on its dtype"},
	{"amp", "castcache", "casts exist afterwards"},
	{"castcache", "castelim", "elimination counts uses of unique casts"},
	{"castelim", "castfold", "a folded cast hides a round trip"},
	{"castfold", "fuse", "a cluster is emitted with its final loads and stores"},
	{"castfold", "gather", "the dtypes in which weights are read are known afterwards"},
	{"gather", "memory", "gathered weights take memory"},
	{"castfold", "recompute", "the images that backward reads, and their dtypes, are known afterwards"},
	{"recompute", "fuse", "a recomputed node joins its reader's cluster"},
	{"recompute", "memory", "the values that are kept in any case are known afterwards"},
	{"memory", "fuse", "recomputed nodes have clusters of their own"},
	{"memory", "order", "recomputed nodes stand before their first reader"},
	{"castfold", "weight-copies", "only casts that are left need a copy kept by the optimizer"},
	{"weight-copies", "fuse", "a copy is one more store of the update's cluster"},
	{"fuse", "launches", "a cast that is a further store of a cluster keeps the cluster out of a product's kernel"},
	{"launches", "order", "a launch is ordered as a whole"},
	{"fuse", "dce", "the nodes that fusion replaces are dead"},
	{"dce", "order", "dead nodes would count as live memory"},
	{"order", "prove", "it checks the graph that runs"},
}

// checkOrder reports the first pair of the order table that ps breaks.
func checkOrder(ps []Pass) error {
	at := make(map[string]int, len(ps))
	for i, p := range ps {
		if _, dup := at[p.Name]; dup {
			return fmt.Errorf("pass %s is listed twice", p.Name)
		}
		at[p.Name] = i
	}
	for _, o := range order {
		i, ok := at[o.before]
		j, both := at[o.after]
		if ok && both && i > j {
			return fmt.Errorf("pass %s must run before %s: %s", o.before, o.after, o.why)
		}
	}
	return nil
}

// Context is the state that passes share, in addition to the graph.
type Context struct {
	Config
	counters map[string]int
	notes    []string
	at       *ir.Node
	kept     bool
	appends  bool
	linked   bool
	training *training // facts about the step that the training passes share
}

// newContext returns a Context for cfg; Run and tests of single passes use it.
func newContext(cfg Config) *Context {
	return &Context{Config: cfg, counters: map[string]int{}, training: &training{}}
}

// Count adds n to a counter of the running pass. Goldens compare counters in their expect: lines.
func (c *Context) Count(name string, n int) { c.counters[name] += n }

// keep records that the pass changed neither nodes nor operands, so that the index still holds.
func (c *Context) keep() { c.kept = true }

// keepLinks records that no node that the pass left links to one that it removed.
func (c *Context) keepLinks() { c.linked = true }

// builder appends to g. Its names are those of the passes before as long as these kept the graph, or
// changed it through their builder alone (append).
func (c *Context) builder(g *ir.Graph) *ir.Builder {
	if c.training.editor == nil {
		c.training.editor = ir.Edit(g)
	}
	return c.training.editor.In(ir.Forward)
}

// append is the builder through which alone the pass changes the names of g.
func (c *Context) append(g *ir.Graph) *ir.Builder {
	c.appends = true
	return c.builder(g)
}

// uses is the readers of all values of g, as it is.
func (c *Context) uses(g *ir.Graph) *ir.Uses {
	if c.training.index.uses == nil {
		c.training.index.uses = g.UsesIn(cmp.Or(c.training.lost, &ir.Uses{}))
		c.training.lost = nil
	}
	return c.training.index.uses
}

// note records a sentence for the user, such as about a rewrite, a removed scaler or a clamped
// constant.
func (c *Context) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// At records the node that the pass works on, for the error after a panic.
func (c *Context) At(n *ir.Node) { c.at = n }

// Event describes one pass after it ran.
type Event struct {
	Pass     string
	Graph    *ir.Graph // graph after the pass; valid only during the call
	Took     time.Duration
	Counters map[string]int
	Notes    []string
}

// passError is an error of a pass: it panicked, or left a graph that is not valid for its stage.
// Errors of the user are *ir.Error or plain one-line errors.
type passError struct {
	Pass  string
	Node  string // "" if unknown
	Err   error
	Near  string // lines of IR around the node, "" if unknown
	Stack string // after a panic
}

func (e *passError) Error() string {
	s := "pass " + e.Pass
	if e.Node != "" {
		s += " at " + e.Node
	}
	return s + ": " + e.Err.Error()
}

func (e *passError) Unwrap() error { return e.Err }

// Run runs the pipeline on g in place. After an error the state of g is undefined.
func Run(g *ir.Graph, cfg Config) error {
	ps, err := selectPasses(cfg)
	if err != nil {
		return err
	}
	stage, shared := ir.Source, &training{}
	if err := shared.claim(g, cfg); err != nil {
		return err
	}
	var nodes nodeLists
	c, counters := &Context{Config: cfg, training: shared}, map[string]int{}
	var start time.Time
	defer runtime.KeepAlive(spareHeap(g))
	for i, p := range ps {
		if cfg.Check && stage < ir.Ready {
			if err := g.Shuffle(uint64(i)); err != nil {
				return &passError{Pass: p.Name, Err: fmt.Errorf("before it: %w", err)}
			}
			shared.index = index{}
		}
		if cfg.After == nil {
			clear(counters)
		} else {
			counters, start = map[string]int{}, time.Now()
		}
		c.counters, c.notes, c.at = counters, nil, nil
		c.kept, c.appends, c.linked = false, false, false
		if err := runPass(p, g, c); err != nil {
			return err
		}
		if i == 0 || !c.linked && nodes.lost(g) { // the source may have been edited
			dropOrigins(g)
		}
		nodes.set(g)
		shared.forget(c)
		var took time.Duration
		if cfg.After != nil {
			took = time.Since(start)
		}
		if err := checkAfter(p, g, cfg); err != nil {
			return err
		}
		if err := shared.checkKept(p, g, cfg); err != nil {
			return err
		}
		stage = p.Stage
		if cfg.After != nil {
			cfg.After(Event{p.Name, g, took, c.counters, c.notes})
		}
		if p.Name == "chunks" { // the last pass that changes what is computed; the later ones change how
			shared.keepSource(g, cfg)
		}
	}
	return nil
}

// forget drops what the pass that ran with c did not keep.
func (t *training) forget(c *Context) {
	if !c.kept {
		t.lost = cmp.Or(t.index.uses, t.lost)
		t.index = index{}
	}
	if !c.kept && !c.appends {
		t.editor = nil
	}
}

// checkKept compares, under Check, what pass p has kept with what a walk of g finds.
func (t *training) checkKept(p Pass, g *ir.Graph, cfg Config) error {
	if !cfg.Check {
		return nil
	}
	if t.editor != nil && !t.editor.Current() {
		return &passError{Pass: p.Name, Err: errors.New("the names of its builder are not those of the graph")}
	}
	if t.index.uses != nil && !t.index.uses.Equal(g.Uses()) {
		return &passError{Pass: p.Name, Err: errors.New("its index of readers is not that of the graph")}
	}
	return nil
}

// pipeline is what Pipeline returns, and what is wrong with its order.
var pipeline struct {
	once   sync.Once
	passes []Pass
	err    error
}

// selectPasses applies Only, Until and Disable.
func selectPasses(cfg Config) ([]Pass, error) {
	pipeline.once.Do(func() {
		pipeline.passes = Pipeline()
		pipeline.err = checkOrder(pipeline.passes)
	})
	all, err := pipeline.passes, pipeline.err
	if err != nil || len(cfg.Disable)+len(cfg.Only) == 0 && cfg.Until == "" {
		return all, err
	}
	known := func(name string) bool {
		return slices.ContainsFunc(all, func(p Pass) bool { return p.Name == name })
	}
	for _, name := range slices.Concat(cfg.Disable, cfg.Only) {
		if !known(name) {
			return nil, unknownPass(name, all)
		}
	}
	if cfg.Until != "" && !known(cfg.Until) {
		return nil, unknownPass(cfg.Until, all)
	}
	var ps []Pass
	for _, p := range all {
		off := slices.Contains(cfg.Disable, p.Name)
		if off && p.Required {
			return nil, fmt.Errorf("pass %s cannot be disabled: the result would not be a step", p.Name)
		}
		if !off && (len(cfg.Only) == 0 || slices.Contains(cfg.Only, p.Name)) {
			ps = append(ps, p)
		}
		if p.Name == cfg.Until {
			break
		}
	}
	return ps, nil
}

func unknownPass(name string, all []Pass) error {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return fmt.Errorf("no pass %q; there are %s", name, strings.Join(names, ", "))
}

// runPass runs one pass and turns a panic into a passError.
func runPass(p Pass, g *ir.Graph, c *Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e := &passError{Pass: p.Name, Err: fmt.Errorf("panic: %v", r), Stack: string(debug.Stack())}
			if c.at != nil {
				e.Node, e.Near = c.at.Name(), linesAround(g, c.at.Name())
			}
			err = e
		}
	}()
	return p.Run(g, c)
}

// checkAfter verifies the graph and, under Check, that its printed text reads back as the same
// graph.
func checkAfter(p Pass, g *ir.Graph, cfg Config) error {
	if cfg.NoVerify || p.Name == "prove" { // prove does not change the graph
		return nil
	}
	if err := ir.Verify(g, p.Stage); err != nil {
		return &passError{Pass: p.Name, Err: fmt.Errorf("left a graph that is not %s: %w", p.Stage, err), Near: linesAround(g, quotedName(err))}
	}
	if !cfg.Check {
		return nil
	}
	text := g.String()
	again, err := ir.Parse(g.Name, []byte(text))
	if err == nil {
		err = ir.Equal(again, g)
	}
	if err != nil {
		return &passError{Pass: p.Name, Err: fmt.Errorf("text does not read back: %w", err)}
	}
	return nil
}

// quotedName finds the first %name in an error, "" for none.
func quotedName(err error) string {
	var e *ir.Error
	if !errors.As(err, &e) {
		return ""
	}
	for _, w := range strings.Fields(e.Msg) {
		if strings.HasPrefix(w, "%") {
			return strings.TrimRight(w, ",:;")
		}
	}
	return ""
}

// linesAround returns ten lines of IR around the definition of name. If the graph is too broken to
// print, it returns "".
func linesAround(g *ir.Graph, name string) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	if name == "" {
		return ""
	}
	lines := strings.Split(g.String(), "\n")
	for i, l := range lines {
		head, _, _ := strings.Cut(l, " = ")
		if slices.Contains(strings.Split(strings.TrimSpace(head), ", "), name) {
			return strings.Join(lines[max(0, i-5):min(len(lines), i+5)], "\n")
		}
	}
	return ""
}
