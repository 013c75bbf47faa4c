package ampc

import (
	"fmt"
	"sync/atomic"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// Cache declares the keys or values of the sequences that a call continues, of
// dims [B,G,T,D]: B sequences, G heads, T positions, D wide. CacheAppend writes to it
// and CachedAttention reads it. The memory does not belong to the model: a Cache of
// NewCache has it, and a Feed brings it, so that any number of sequences run on one
// set of weights.
//
//   - Shapes: to [B,G,T,D].
//   - DTypes: float; a policy does not change it.
//   - Errors: a name that is taken, or another number of dimensions.
//   - PyTorch: transformers.StaticCache, whose memory is the model's there.
func (m *Model) Cache(name string, d DType, dims ...int) Tensor {
	all := make([]any, len(dims))
	for i, n := range dims {
		all[i] = n
	}
	shape, err := m.shape(name, all)
	if err == nil && shape.Rank() != 4 {
		err = fmt.Errorf("it has %d dimensions, want [sequences, heads, positions, width]", shape.Rank())
	}
	if err == nil && !d.Float() {
		err = fmt.Errorf("it is of %s, want a float", d)
	}
	if err != nil {
		m.Fail("cache %q: %v", m.ScopeName()+name, err)
		return Tensor{}
	}
	return m.tensor(m.b.Declare(ir.State, name, ir.Type{DType: d.ir(), Shape: shape}, Zeros().f, ir.A("role", ir.RoleCache)))
}

// CacheAppend appends x to the caches of B sequences and returns the caches as they
// are then: row i of x goes to position pos[b]+i of cache b, for i < count[b]. The
// zero Tensor as count appends all S rows. Nothing is copied but x: the step writes
// the cache in place, so that what is read afterwards is the result.
//
//   - Shapes: cache[B,G,T,D], x[B,G,S,D], pos[B], count[B] to cache's.
//   - DTypes: floats, x is rounded to the cache's dtype; pos and count are integers.
//   - Errors: sizes that do not fit; a row beyond T, when the step runs.
//   - PyTorch: index_copy_ of transformers.StaticCache.
func (o ops) CacheAppend(cache, x, pos, count Tensor) Tensor {
	if cache.v != nil && !cache.v.IsCache() {
		o.Fail("cache_append: %s is not a cache: declare one with Model.Cache", cache.v)
		return Tensor{}
	}
	return o.tensor(o.b.CacheAppend(cache.v, x.v, pos.v, count.v))
}

// CachedAttentionOptions are the options of CachedAttention.
type CachedAttentionOptions struct {
	Count Tensor  // [B]: how many queries of each sequence count, the others give 0; the zero Tensor: all
	Scale float64 // of the scores; 0: 1/√D
}

// CachedAttention is ScaledDotProductAttention to the filled rows of caches, as
// CacheAppend returns them: query i of sequence b sees the rows 0 to pos[b]+i. It
// reads no others, so that its time follows the filled length. k and v may have fewer
// heads than q.
//
//   - Shapes: q[B,H,S,D], k[B,G,T,D], v[B,G,T,E], pos[B] to [B,H,S,E].
//   - DTypes: floats; computed in f32.
//   - Errors: the sizes do not fit.
//   - PyTorch: transformers.integrations.sdpa_attention_forward, with a StaticCache.
func (o ops) CachedAttention(q, k, v, pos Tensor, opts ...CachedAttentionOptions) Tensor {
	c := option(o, "cached_attention", opts)
	return o.tensor(o.b.CachedAttention(q.v, k.v, v.v, pos.v, c.Count.v, ir.A("scale", c.Scale)))
}

// Cache is the memory of all caches of a model, for the sequences of one call after
// another. A Feed has it under any name that is not an input's, by custom "cache".
// One Run at a time may use it. It needs no Close.
type Cache struct {
	of    *state
	mem   runtime.Feed
	bytes int64
	busy  atomic.Bool
}

// NewCache returns memory for all caches that the model declares, filled with zeros.
func (m *Model) NewCache() (*Cache, error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	c := &Cache{of: m.state, mem: runtime.Feed{}}
	for _, v := range m.Graph().Vars {
		if v.IsCache() {
			c.bytes += v.Type.Bytes()
			c.mem[v.Name] = runtime.Tensor{Type: v.Type, Data: make([]byte, v.Type.Bytes())}
		}
	}
	if len(c.mem) == 0 {
		return nil, fmt.Errorf("new cache: the model declares no cache: see Model.Cache")
	}
	return c, nil
}

// Bytes is how much memory the cache takes.
func (c *Cache) Bytes() int64 { return c.bytes }

// addTo puts the memory of the caches that the program has into a feed.
func (c *Cache) addTo(feed runtime.Feed, s *Step) error {
	if c == nil || c.of != s.model.state {
		return fmt.Errorf("is not a cache of this model: make it with Model.NewCache")
	}
	for i := range s.program.Vars {
		v := &s.program.Vars[i]
		if !v.PerCall() {
			continue
		}
		if _, twice := feed[v.Name]; twice {
			return fmt.Errorf("is the second cache of the call")
		}
		feed[v.Name] = c.mem[v.Name]
	}
	return nil
}

// takeCaches reserves the caches of a call until it ends.
func takeCaches(micro []Feed) (end func(), err error) {
	var taken []*Cache
	end = func() {
		for _, c := range taken {
			c.busy.Store(false)
		}
	}
	for _, f := range micro {
		for name, v := range f {
			c, is := v.(*Cache)
			if !is || c == nil {
				continue
			}
			if !c.busy.CompareAndSwap(false, true) {
				end()
				return nil, fmt.Errorf("feed %q: another call is using this cache: a sequence continues one call after the other", name)
			}
			taken = append(taken, c)
		}
	}
	return end, nil
}

// hasCaches reports whether every call of a program brings memory.
func hasCaches(p *lower.Program) bool {
	for i := range p.Vars {
		if p.Vars[i].PerCall() {
			return true
		}
	}
	return false
}
