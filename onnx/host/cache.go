package host

import (
	"crypto/sha256"
	"slices"

	"ampc/lower"
	"ampc/runtime"
)

// program is a region that was compiled. Regions of equal form share it where they read
// the same weights.
type program struct {
	build   *build // while it is compiled; only items, bytes, entries and users are set then
	err     error  // why it could not be made
	exec    runtime.Exec
	code    *lower.Program
	items   int64   // it runs for each of so many items of a batch
	bytes   int64   // that it holds; about so many while it is compiled
	key     overKey // of a program over other variables than it was compiled for
	entries []*entry
	users   int // number of runs that are executing it
}

// cache holds programs and the entries that run them, each in the order of its last use.
type cache struct {
	programs recent[*program]
	hosts    recent[*entry]               // entries without a program
	forms    map[[sha256.Size]byte]*entry // the first of each
	over     map[overKey]*program
	bytes    int64
}

// recent is a list in the order of last use.
type recent[T comparable] []T

func (r *recent[T]) use(x T) {
	if n := len(*r); n > 0 && (*r)[n-1] == x {
		return
	}
	r.remove(x)
	*r = append(*r, x)
}

func (r *recent[T]) remove(x T) {
	if i := slices.Index(*r, x); i >= 0 {
		*r = slices.Delete(*r, i, i+1)
	}
}

// use notes that e runs.
func (c *cache) use(e *entry) {
	if e.program == nil {
		c.hosts.use(e)
	} else {
		c.programs.use(e.program)
	}
}

// maxEntries bounds the entries of a program, and those without one.
const maxEntries = 4096

// add keeps e, and frees programs until the bounds hold.
func (c *cache) add(e *entry, programs int, bytes int64) error {
	c.use(e)
	if e.program == nil {
		if len(c.hosts) > maxEntries {
			c.forget(c.hosts[0])
			c.hosts = slices.Delete(c.hosts, 0, 1)
		}
		return nil
	}
	p := e.program
	if p.entries = append(p.entries, e); len(p.entries) == 1 {
		c.bytes += p.bytes
		if p.key.of != nil {
			c.over[p.key] = p
		}
	}
	if len(p.entries) > maxEntries {
		c.forget(p.entries[0])
		p.entries = slices.Delete(p.entries, 0, 1)
	}
	return c.trim(programs, bytes)
}

// trim frees programs that no run executes until the bounds hold.
func (c *cache) trim(programs int, bytes int64) error {
	for len(c.programs) > 1 && (len(c.programs) > programs || c.bytes > bytes) {
		i := slices.IndexFunc(c.programs[:len(c.programs)-1], func(p *program) bool { return p.users == 0 })
		if i < 0 { // all of them are executing; the bounds hold again after these runs
			break
		}
		if err := c.drop(c.programs[i]); err != nil {
			return err
		}
	}
	return nil
}

// forget takes an entry out of its stage.
func (c *cache) forget(e *entry) {
	if e.form != nil && c.forms[e.form.key] == e {
		delete(c.forms, e.form.key)
	}
	e.at.entries.remove(e)
}

// lose forgets an entry whose program could not be made.
func (c *cache) lose(e *entry) {
	if e.form != nil && c.forms[e.form.key] == e {
		delete(c.forms, e.form.key)
	}
	for _, x := range e.program.entries {
		c.forget(x)
	}
	e.program.entries = nil
	c.programs.remove(e.program)
	c.bytes -= e.program.bytes
}

// drop frees a program and forgets its entries.
func (c *cache) drop(p *program) error {
	for _, e := range p.entries {
		c.forget(e)
	}
	p.entries = nil
	c.programs.remove(p)
	delete(c.over, p.key)
	c.bytes -= p.bytes
	return p.exec.Close()
}

func (c *cache) close() error {
	for len(c.programs) > 0 {
		if err := c.drop(c.programs[0]); err != nil {
			return err
		}
	}
	return nil
}

// held is the memory that a loaded program owns: its inputs, constants and results. The store owns
// the work arena.
func held(p *lower.Program) int64 {
	n := p.Arenas[lower.InputArena] + p.Arenas[lower.ConstArena]
	for _, y := range p.Outputs {
		n += runtime.RingSize * y.Type.Bytes()
	}
	return n
}

// Programs counts the programs that are kept, and what they hold in bytes beside
// weights.
func (s *Session) Programs() (n int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cache.programs), s.cache.bytes
}
