package lower

import "ampc/ir"

// CPU is the target of the embedded backend.
var CPU Target = cpu{}

type cpu struct{ Shared }

func (cpu) String() string { return "cpu" }

func (cpu) Caps() ir.Caps { return cpuCaps }

// cpuCaps are made once, as lowering asks for them often.
var cpuCaps = ir.Caps{NoGraphs: true, ChecksNorms: true, Norms: cpuNorms, Rows: cpuRows, PostOps: cpuPostOps, RecomputesPools: true, JoinsInPlace: true, ItemBytes: cpuItemBytes, Keeps: true, Expander: Expansions(CPU)}

// cpuItemBytes is about what a few items' layers take of a second-level cache.
const cpuItemBytes = 4 << 20

// cpuNorms is what the kernel of channel norm n computes besides its row.
func cpuNorms(n *ir.Node) ir.NormFusion {
	if n.Def().GradOf != ir.OpInvalid {
		return ir.NormFusion{Prologue: n.NormOperand()}
	}
	return ir.NormFusion{Epilogue: true}
}

// cpuRows is what the kernel of n runs besides its row: the elementwise nodes that compute operand 0 of
// a row that reads contiguous rows, such as a reduction over the last dimensions or a softmax.
func cpuRows(n *ir.Node) ir.RowFusion {
	if cols, d := n.RowLength(), n.In[0].Type.DType; cols > 1 && d.Float() && d != ir.F64 {
		return ir.RowFusion{Cols: cols}
	}
	return ir.RowFusion{Operand: -1}
}

// cpuPostOps are the ops whose kernels run a cluster on blocks of their result.
var cpuPostOps = map[ir.Op]bool{ir.OpEmbedding: true}

// cpuRules are the rules that differ from those of other targets.
var cpuRules = map[ir.Op]Rule{
	ir.OpMaxPool:   cpuMaxPool,
	ir.OpAllReduce: KernelRule, ir.OpAllGather: KernelRule, ir.OpReduceScatter: KernelRule, ir.OpCacheAppend: cacheRule, ir.OpCachedAttention: cacheRule,
}

// cpuTakes are conditions on the nodes that the CPU supports. An op without an entry has none.
var cpuTakes = map[ir.Op]func(n *ir.Node) bool{ir.OpAllGather: firstAxis, ir.OpReduceScatter: firstAxis}

// firstAxis reports whether the parts of an all_gather or a reduce_scatter are contiguous.
func firstAxis(n *ir.Node) bool { return n.Int("axis") == 0 }

func (cpu) Rule(n *ir.Node) Rule {
	if takes := cpuTakes[n.Op]; takes != nil && !takes(n) {
		return nil
	}
	if r, ok := cpuRules[n.Op]; ok {
		return r
	}
	return SharedRule(n)
}

// Expands is true for a custom op without a Go kernel.
func (cpu) Expands(n *ir.Node) bool {
	return n.Op == ir.OpCustom && n.Custom.Kernel == nil && n.Custom.Expand != nil
}

func (cpu) Finish(p *Program) error {
	p.Batch(Update) // Prepare is not batched: a store skips its casts one by one
	return nil
}

// cpuMaxPool drops positions that are not read.
func cpuMaxPool(l *Lowerer, n *ir.Node) error {
	if index := n.Out[1]; len(l.uses.Of(index)) == 0 && !l.returned[index.ID] {
		bare := *n
		bare.Out = n.Out[:1]
		n = &bare
	}
	return KernelRule(l, n)
}
