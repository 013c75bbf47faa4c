package host

import (
	"slices"

	"ampc/lower"
	"ampc/runtime"
)

// program is a region that was compiled.
type program struct {
	exec  runtime.Exec
	code  *lower.Program
	bytes int64
}

// cache holds all entries, the one used longest ago first.
type cache struct {
	list  []*entry
	bytes int64
}

// use notes that e runs.
func (c *cache) use(e *entry) {
	if n := len(c.list); n > 0 && c.list[n-1] == e {
		return
	}
	if i := slices.Index(c.list, e); i >= 0 {
		c.list = append(slices.Delete(c.list, i, i+1), e)
	}
}

// add keeps e and lets go of others until the bounds hold.
func (c *cache) add(e *entry, programs int, bytes int64) error {
	c.list = append(c.list, e)
	c.bytes += e.bytes()
	for len(c.list) > 1 && (len(c.list) > programs || c.bytes > bytes) {
		if err := c.drop(c.list[0]); err != nil {
			return err
		}
	}
	return nil
}

// drop forgets an entry and frees its program.
func (c *cache) drop(e *entry) error {
	c.list = slices.DeleteFunc(c.list, func(x *entry) bool { return x == e })
	e.at.entries = slices.DeleteFunc(e.at.entries, func(x *entry) bool { return x == e })
	c.bytes -= e.bytes()
	if e.program == nil {
		return nil
	}
	return e.program.exec.Close()
}

func (c *cache) close() error {
	for len(c.list) > 0 {
		if err := c.drop(c.list[0]); err != nil {
			return err
		}
	}
	return nil
}

// held is the memory that a loaded program has for itself: its inputs, constants and
// results. The work arena is the store's.
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
	for _, e := range s.cache.list {
		if e.program != nil {
			n++
		}
	}
	return n, s.cache.bytes
}
