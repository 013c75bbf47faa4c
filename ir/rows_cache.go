package ir

import (
	"fmt"
	"math"
)

// RoleCache is the role of a state that belongs to a call and not to the model: the keys or values
// of the sequences that the call continues. Every run of a step supplies the memory of its caches,
// which the step writes in place.
const RoleCache = "cache"

// IsCache reports whether v is the declaration of a cache.
func (v *Value) IsCache() bool { return v.Kind == State && v.Attr.Get("role") == RoleCache }

// perSequence is an operand with an integer for each sequence of the batch.
func perSequence(name string, optional bool) Operand {
	return Operand{Name: name, Kinds: KInt, Class: Fixed, Optional: optional}
}

var cacheRows = map[Op]Def{
	OpCacheAppend: {
		Name: "cache_append", Doc: "Appends x[B,G,S,D] to the caches of B sequences, cache[B,G,T,D], as its next value: cache[b,:,pos[b]+i] = x[b,:,i] for i < count[b] (without count: all S), rounded to the cache's dtype. Where cache is a state of role cache, whose memory a call brings, this happens in place; beyond T is an error on the host.",
		In:  in(Operand{Name: "cache"}, Operand{Name: "x", Class: Keep, ReadsLow: true}, perSequence("pos", false), perSequence("count", true)),
		Out: out(Result{Name: "y"}), Flags: Caches | NoMerge | InPlace, Class: Fixed, Why: "a cache has the dtype it was declared with",
		NoGrad: "belongs to generation", Infer: inferCacheAppend, Bound: noBound,
		Range: func(_ *Node, in []Interval) []Interval { return []Interval{union(in[0], in[1])} },
	},
	OpCachedAttention: {
		Name: "cached_attention", Doc: "Attention of q[B,H,S,D] to the filled rows of k[B,G,T,D] and v[B,G,T,E]: query i of sequence b sees rows 0..pos[b]+i, and gives 0 from i = count[b] on (without count: S). Rows beyond are not read, so that the cost follows the filled length.",
		In:  in(Operand{Name: "q", ReadsLow: true}, Operand{Name: "k", Class: Fixed}, Operand{Name: "v", Class: Fixed}, perSequence("pos", false), perSequence("count", true)),
		Out: out(Result{Name: "y", StoresLow: true}), Attrs: []AttrDef{attentionAttrs[1]},
		Flags: Caches, Class: Keep, Why: "exp needs range", NoGrad: "belongs to generation", Infer: inferCachedAttention,
		Bound: boundAttention, Cost: func(n *Node) Cost { return Cost{Flops: 2 * n.pairs()} },
		Range: func(n *Node, in []Interval) []Interval {
			return []Interval{{Lo: math.Min(in[2].Lo, 0), Hi: math.Max(in[2].Hi, 0), NaN: true}}
		},
	},
}

// union is the smallest interval that contains both.
func union(a, b Interval) Interval {
	return Interval{Lo: math.Min(a.Lo, b.Lo), Hi: math.Max(a.Hi, b.Hi), NaN: a.NaN || b.NaN}
}

// wantPerSequence checks pos and count, the operands from i on, of a batch of size b.
func (n *Node) wantPerSequence(i int, b Dim) error {
	for k, what := range []string{"pos", "count"} {
		if err := wantShape(what, n.operand(i+k), b); err != nil {
			return err
		}
	}
	return nil
}

func inferCacheAppend(n *Node) ([]Type, error) {
	c, x := n.In[0], n.In[1]
	if err := firstError(n.bare(), wantRank("cache", c, 4, 4), wantRank("x", x, 4, 4)); err != nil {
		return nil, err
	}
	if c.Type.DType == F64 || x.Type.DType == F64 {
		return nil, fmt.Errorf("cache %s has type %s, x %s has type %s: there are no caches of f64", c, c.Type, x, x.Type)
	}
	if !c.Type.Shape.Known() || !x.Type.Shape.Known() {
		return []Type{c.Type}, nil
	}
	cd, xd := c.Type.Shape.Dims(), x.Type.Shape.Dims()
	if !fits(cd[0], xd[0]) || !fits(cd[1], xd[1]) || !fits(cd[3], xd[3]) {
		return nil, fmt.Errorf("cache %s has type %s, x %s has type %s: batch, heads and width must be equal", c, c.Type, x, x.Type)
	}
	if cd[2] >= 0 && xd[2] > cd[2] {
		return nil, fmt.Errorf("x %s has type %s, which is longer than the cache %s of type %s", x, x.Type, c, c.Type)
	}
	return []Type{c.Type}, n.wantPerSequence(2, cd[0])
}

func inferCachedAttention(n *Node) ([]Type, error) {
	q, k, v := n.In[0], n.In[1], n.In[2]
	if err := firstError(n.checkOut(), wantRank("q", q, 4, 4), wantRank("k", k, 4, 4), wantRank("v", v, 4, 4)); err != nil {
		return nil, err
	}
	t := Type{DType: n.keptDType()}
	if t.DType == F64 {
		return nil, fmt.Errorf("q %s has type %s, k %s has type %s: there is no attention to caches in f64", q, q.Type, k, k.Type)
	}
	if !q.Type.Shape.Known() || !k.Type.Shape.Known() || !v.Type.Shape.Known() {
		return []Type{t}, nil
	}
	qd, kd, vd := q.Type.Shape.Dims(), k.Type.Shape.Dims(), v.Type.Shape.Dims()
	switch {
	case !fits(qd[0], kd[0]) || !fits(qd[3], kd[3]):
		return nil, fmt.Errorf("q %s has type %s, k %s has type %s: batch and head size must be equal", q, q.Type, k, k.Type)
	case !fits(kd[0], vd[0]) || !fits(kd[1], vd[1]) || !fits(kd[2], vd[2]):
		return nil, fmt.Errorf("k %s has type %s, v %s has type %s: batch, heads and length must be equal", k, k.Type, v, v.Type)
	case qd[1] > 0 && kd[1] > 0 && qd[1]%kd[1] != 0:
		return nil, fmt.Errorf("%d heads of q do not share %d heads of k and v evenly", qd[1], kd[1])
	}
	t.Shape = MakeShape(qd[0], qd[1], qd[2], vd[3])
	return []Type{t}, n.wantPerSequence(3, qd[0])
}

// CacheAppend writes x to a cache at pos[b] and returns the next value of the cache,
// which attention reads. count (nil: all rows of x) says how many rows of each
// sequence are appended.
func (b *Builder) CacheAppend(cache, x, pos, count *Value) *Value {
	return b.EmitWrite(OpCacheAppend, values(cache, x, pos, count), nil, cache)[0]
}

// CachedAttention is attention of q to the filled rows of k and v. Attribute: scale.
func (b *Builder) CachedAttention(q, k, v, pos, count *Value, a Attrs) *Value {
	return b.one(OpCachedAttention, values(q, k, v, pos, count), a)
}

// writesCache checks the node that computes the next value of a cache: it must be an append to that
// cache, which changes it in place.
func (n *Node) writesCache(c *Value) error {
	if n.Op == OpCacheAppend && n.In[0] == c {
		return nil
	}
	return fmt.Errorf("%s is a cache, which only cache_append writes: %%c' = cache_append %%c, %%x, %%pos", c)
}
