package host

import (
	"slices"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/onnx"
	"ampc/passes"
	"ampc/runtime"
)

// build is a program being compiled.
type build struct {
	types  []ir.Type    // of the region's results
	inputs []onnx.Port  // of the region
	reads  []string     // its weights
	wait   func() error // for code
	code   *lower.Program
}

// renames reports whether the program reads other weights where names are others.
func (b *build) renames(to *renaming) bool {
	return b != nil && slices.ContainsFunc(b.reads, func(x string) bool { return to.vars[x] != "" })
}

// build starts to compile the graph of e's region. Other regions are imported and compiled meanwhile;
// join waits for all of them. The graph is not verified after each pass if that of the same nodes for
// other sizes was.
func (r *run) build(e *entry, p *onnx.Partial, again bool) error {
	r.s.compiled++
	b := &build{inputs: p.Inputs}
	for _, v := range p.Graph.Return {
		b.types = append(b.types, v.Type)
	}
	for _, v := range p.Graph.Vars {
		if v.Kind == ir.Param || v.Kind == ir.State {
			b.reads = append(b.reads, v.Name)
		}
	}
	g, items := r.s.perItem(p.Graph)
	c := r.s.o.Config
	c.NoVerify = c.NoVerify || again
	c.Caps = r.s.o.Backend.Target().Caps()
	if _, other := r.s.o.Backend.(runtime.Fallback); other || c.After != nil || c.Source != nil {
		q, err := r.s.compile(g, c, items)
		if err != nil {
			return err
		}
		e.program, e.feeds = q, b.feeds(q.code)
		return nil
	}
	e.program = &program{build: b, items: items, users: 1}
	e.program.bytes = b.held()
	r.building = append(r.building, e)
	work, target := g.Clone(), r.s.o.Backend.Target()
	b.wait = aside(func() (err error) {
		b.code, err = compiled(work, c, target)
		return err
	})
	return nil
}

// join loads the programs that are being compiled. Entries whose programs failed are forgotten: only
// a run that gets there again returns the error.
func (r *run) join() {
	for _, e := range r.building {
		if r.s.finish(e); e.program.err != nil {
			r.s.cache.lose(e)
		}
	}
	r.building = nil
}

// finish waits for the code of e's program and loads it.
func (s *Session) finish(e *entry) {
	p := e.program
	b := p.build
	p.build, p.users = nil, p.users-1
	if p.err = b.wait(); p.err != nil {
		return
	}
	q, err := s.load(b.code, p.items)
	if err != nil {
		p.err = err
		return
	}
	s.cache.bytes += q.bytes - p.bytes
	p.exec, p.code, p.bytes = q.exec, q.code, q.bytes
	e.feeds = b.feeds(p.code)
	for _, x := range p.entries {
		if x != e {
			x.feeds = e.renamed(e.form.to(x.form, s))
		}
	}
}

// held is about what the program will hold.
func (b *build) held() int64 {
	n := int64(0)
	for _, in := range b.inputs {
		n += in.Value.Type.Bytes()
	}
	for _, t := range b.types {
		n += runtime.RingSize * t.Bytes()
	}
	return n
}

// feeds lists the inputs that the code reads, with the values that they take.
func (b *build) feeds(code *lower.Program) []feed {
	var list []feed
	for _, v := range code.Vars {
		if v.Kind != ir.Input {
			continue
		}
		for _, in := range b.inputs {
			if in.Value.Name == v.Name {
				list = append(list, feed{v.Name, in.Name})
			}
		}
	}
	return list
}

// compile makes and loads the program of a graph, for each target that a backend which may refuse
// operations falls back to.
func (s *Session) compile(g *ir.Graph, c passes.Config, items int64) (*program, error) {
	for {
		c.Caps = s.o.Backend.Target().Caps()
		code, err := compiled(g.Clone(), c, s.o.Backend.Target())
		if err != nil {
			return nil, err
		}
		p, err := s.load(code, items)
		if err == nil {
			return p, nil
		}
		if _, other := runtime.FallBack(s.o.Backend, err); !other {
			return nil, err
		}
	}
}

// compiled takes a graph through the passes and lowers it.
func compiled(g *ir.Graph, c passes.Config, t lower.Target) (*lower.Program, error) {
	if err := passes.Run(g, c); err != nil {
		return nil, err
	}
	g.DropUnused()
	return lower.Lower(g, t)
}

// aside runs f in a goroutine. The function that it returns waits for it, and panics as f did.
func aside(f func() error) (wait func() error) {
	var err error
	var caught any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { caught = recover() }()
		err = f()
	}()
	return func() error {
		<-done
		if caught != nil {
			panic(caught)
		}
		return err
	}
}

// load loads a program, with the variables that it reads, which runs for so many items.
func (s *Session) load(code *lower.Program, items int64) (*program, error) {
	start := time.Now()
	if err := s.declare(code); err != nil {
		return nil, err
	}
	s.loaded += time.Since(start)
	before := s.reading.Load()
	defer func() { s.loaded += time.Duration(s.reading.Load() - before) }()
	exec, err := s.o.Backend.Load(code, s.store)
	if err != nil {
		return nil, err
	}
	return &program{exec: exec, code: code, bytes: held(code), items: items}, nil
}
