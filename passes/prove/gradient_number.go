package prove

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// exactNumbers gives values the same number if they are computed alike: the same op and attributes
// with the same operands. Nothing is erased. The operands of a sum commute.
type exactNumbers struct {
	of    map[*ir.Value]int32
	index map[string]int32
	next  int32
}

func (m *exactNumbers) value(v *ir.Value) int32 {
	if v == nil {
		return -1
	}
	if k, ok := m.of[v]; ok {
		return k
	}
	k := int32(-1)
	if n := v.Def; n != nil && joinsRanks(n) {
		k = m.value(n.In[v.Idx])
	} else if v.Def == nil || v.Next != nil {
		k = m.fresh()
	} else {
		key := m.key(v)
		old, ok := m.index[key]
		if !ok {
			old = m.fresh()
			m.index[key] = old
		}
		k = old
	}
	m.of[v] = k
	return k
}

// joinsRanks reports whether n sums or concatenates the parts of all ranks: its result is for the
// whole batch, its operands for a rank's part. The rule ranks checks how it does that.
func joinsRanks(n *ir.Node) bool {
	return n.Def().Is(ir.Collective) && (n.Str("op") == "sum" || !n.HasAttr("op"))
}

func (m *exactNumbers) fresh() int32 {
	m.next++
	return m.next
}

func (m *exactNumbers) key(v *ir.Value) string {
	n := v.Def
	in := make([]int32, len(n.In))
	for i, x := range n.In {
		in[i] = m.value(x)
	}
	if n.Op == ir.OpAddN || n.Def().Is(ir.Commutative) && len(in) == 2 {
		slices.Sort(in)
	}
	for len(in) > 0 && in[len(in)-1] < 0 {
		in = in[:len(in)-1]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %d %v", n.Op, n.Def().Name, v.Idx, in)
	for _, a := range n.Attrs {
		if a.Name != "loss" {
			fmt.Fprintf(&b, " %s=%v", a.Name, a.Value)
		}
	}
	for _, x := range n.Captured {
		fmt.Fprintf(&b, " |%d", m.value(x))
	}
	return b.String()
}
