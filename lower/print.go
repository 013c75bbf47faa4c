package lower

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
)

// Print writes the Program as text: the arenas, the buffers with offsets and lifetimes, and the
// steps of each part.
func (p *Program) Print(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "program @%s target=%s {\n", p.Name, p.Target)
	for a := range NumArenas {
		if p.Arenas[a] == 0 {
			continue
		}
		fmt.Fprintf(b, "  arena %-5s %s", a, digits(p.Arenas[a]))
		if a == WorkArena {
			fmt.Fprintf(b, "  ; planned from %s, %s live at most", digits(p.Separate), digits(p.MaxLive))
		}
		fmt.Fprintln(b)
	}
	p.printBuffers(b)
	for part := range NumParts {
		p.printPart(b, part)
	}
	for _, o := range p.Outputs {
		fmt.Fprintf(b, "return %s\n", p.BufferName(o.Buffer))
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}

func (p *Program) String() string {
	var b strings.Builder
	p.Print(&b) //nolint:errcheck // a strings.Builder does not fail
	return b.String()
}

// digits writes n with underscores between groups of three.
func digits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "_" + s[i:]
	}
	return s
}

// BufferName is the name of a buffer in a printed Program.
func (p *Program) BufferName(id BufferID) string {
	if id == None {
		return "_"
	}
	return "%" + p.Buffers[id].Name
}

func (p *Program) names(ids []BufferID) string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = p.BufferName(id)
	}
	return strings.Join(s, ", ")
}

func (p *Program) printBuffers(w io.Writer) {
	names, types := 0, 0
	for i := range p.Buffers {
		names = max(names, len(p.Buffers[i].Name))
		types = max(types, len(p.Buffers[i].Type.String()))
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if root := &p.Buffers[b.Root]; root.Arena == WorkArena && root.Live.From < 0 {
			continue // no step stores it
		}
		fmt.Fprintf(w, "  buffer %%%-*s %-*s %s+%s size %s", names, b.Name, types, b.Type, b.Arena, digits(b.Offset), digits(b.Size))
		switch {
		case b.Root != BufferID(i):
			fmt.Fprintf(w, " view of %s", p.BufferName(b.Root))
			if !b.dense() {
				fmt.Fprintf(w, " from %s strides=%d", digits(b.At), b.Strides)
			}
		case b.Arena == WorkArena:
			fmt.Fprintf(w, " live %d..%d", b.Live.From, b.Live.To)
		}
		fmt.Fprintln(w)
	}
}

func (p *Program) printPart(w io.Writer, part Part) {
	if len(p.Parts[part]) == 0 {
		return
	}
	fmt.Fprintf(w, "%s:\n", part)
	at := 0
	for q := range part {
		at += len(p.Parts[q])
	}
	for i := range p.Parts[part] {
		s := &p.Parts[part][i]
		fmt.Fprintf(w, "%4d  %s %s -> %s%s", at+i, p.describe(s), p.names(s.In), p.names(s.Out), s.order())
		if s.Launch != nil {
			fmt.Fprintf(w, " %s", s.Launch)
		} else if lib := p.library(s); lib != "" {
			fmt.Fprintf(w, " call=%s", lib)
		}
		if m := p.message(part, i); m != nil {
			fmt.Fprintf(w, " until=%d", at+m.Until)
		}
		fmt.Fprintf(w, "  ; %s bytes", digits(s.Bytes))
		if part == Prepare && p.keeps(i) {
			fmt.Fprint(w, ", kept while the variable is unchanged")
		} else if part == Prepare && p.derives(i) {
			fmt.Fprint(w, ", kept while its variables are unchanged")
		}
		fmt.Fprintln(w)
		for _, g := range []*Cluster{s.Cluster, s.Epilogue} {
			if g != nil && len(g.Code) > 0 {
				fmt.Fprintf(w, "        %s\n", g)
			}
		}
		if s.Kernel != nil && s.Kernel.Fusion.Prologue != nil {
			fmt.Fprintf(w, "        prologue: %s; %s\n", s.Kernel.Fusion.Prologue, s.Kernel.made())
		}
		if s.Kernel != nil && s.Kernel.Fusion.Epilogue != nil {
			fmt.Fprintf(w, "        epilogue: %s\n", s.Kernel.Fusion.Epilogue)
		}
		if s.Kernel != nil && s.Kernel.Fusion.Total != nil {
			fmt.Fprintf(w, "        sum over rows: %s\n", s.Kernel.Fusion.total())
		}
	}
}

// made names the registers that a kernel's prologue computes for it: the normalized operand or the
// sums.
func (k *Kernel) made() string {
	if len(k.Sums) == 0 {
		return "x=" + k.Fusion.Prologue.reg(k.Fusion.Made)
	}
	var names []string
	for _, r := range k.Sums {
		names = append(names, k.Fusion.Prologue.reg(r))
	}
	return "sums " + strings.Join(names, ", ")
}

// library names the library that runs a step without a launch.
func (p *Program) library(s *Step) string {
	if s.Transfer != nil {
		return transferLibrary
	}
	return p.Target.Library(s.Kind)
}

func (p *Program) keeps(step int) bool {
	for _, c := range p.WeightCopies {
		if c.Step == step {
			return true
		}
	}
	return false
}

// order prints the stream of a step and the events that it waits for and records, where they are
// not the default.
func (s *Step) order() string {
	var b strings.Builder
	if s.Stream != 0 {
		fmt.Fprintf(&b, " stream=%d", s.Stream)
	}
	for _, e := range s.Wait {
		fmt.Fprintf(&b, " wait=%d", e)
	}
	if s.Record != 0 {
		fmt.Fprintf(&b, " record=%d", s.Record)
	}
	return b.String()
}

// describe prints what a step computes, without its operands: kind, dtypes, sizes.
func (p *Program) describe(s *Step) string {
	switch s.Kind {
	case KindGemm:
		return p.gemmString(s)
	case KindConv:
		return p.convString(s)
	case KindAttention:
		return p.attentionString(s)
	case KindKernel:
		return s.Kernel.what(p, s)
	case KindCluster:
		if n := len(s.More); n > 0 {
			return fmt.Sprintf("cluster of %d tensors", n+1)
		}
		return fmt.Sprintf("cluster %v", s.Cluster.Shape)
	case KindCopy:
		if m := s.Moves; m.Filled {
			return fmt.Sprintf("copy moves=%d fill=%g", len(m.List), m.Value)
		}
		return fmt.Sprintf("copy moves=%d", len(s.Moves.List))
	}
	return fmt.Sprintf("%s %g", s.Kind, s.Moves.Value)
}

func (p *Program) dtype(id BufferID) ir.DType {
	if id == None {
		return ir.Invalid
	}
	return p.Buffers[id].Type.DType
}

func (p *Program) gemmString(s *Step) string {
	g := s.Gemm
	var b strings.Builder
	fmt.Fprintf(&b, "gemm %s*%s->%s acc=f32 m=%d n=%d k=%d", p.dtype(s.In[0]), p.dtype(s.In[1]), p.leaves(s), g.M, g.N, g.K)
	if len(g.Batch) > 0 {
		fmt.Fprintf(&b, " batch=%v strides=%v,%v,%v", g.Batch, g.A.Strides, g.B.Strides, g.C.Strides)
	}
	for _, l := range []struct {
		name     string
		m        *Matrix
		row, col int64
	}{{"lda", &g.A, g.M, g.K}, {"ldb", &g.B, g.K, g.N}, {"ldc", &g.C, g.M, g.N}} {
		if dense := map[bool]int64{true: l.row, false: l.col}[l.m.T]; l.m.LD != dense {
			fmt.Fprintf(&b, " %s=%d", l.name, l.m.LD)
		}
	}
	for _, f := range []struct {
		on   bool
		name string
	}{{g.A.T, "ta"}, {g.B.T, "tb"}, {g.TF32, "tf32"}} {
		if f.on {
			b.WriteString(" " + f.name)
		}
	}
	b.WriteString(p.epilogue(&g.Epilogue, s))
	return b.String() + s.postOpsText()
}

// leaves is the dtype of a product after its own epilogue.
func (p *Program) leaves(s *Step) ir.DType {
	if s.Epilogue != nil {
		return ir.F32
	}
	return p.dtype(s.Out[0])
}

// postOpsText prints the post-ops of a product.
func (s *Step) postOpsText() string {
	if s.Epilogue == nil {
		return ""
	}
	return fmt.Sprintf(" post-ops %v", s.Epilogue.Shape)
}

func (p *Program) epilogue(e *Epilogue, s *Step) string {
	var parts []string
	if e.Bias != 0 {
		parts = append(parts, fmt.Sprintf("bias(%s)", p.BufferName(s.In[e.Bias])))
	}
	if e.Act != NoAct {
		act := e.Act.String()
		switch {
		case e.Aux != 0 && e.Act.Gradient():
			act += fmt.Sprintf("(%s)", p.BufferName(s.In[e.Aux]))
		case e.Aux != 0:
			act += fmt.Sprintf("(aux %s)", p.BufferName(s.Out[e.Aux]))
		}
		parts = append(parts, act)
	}
	if e.BiasGrad != 0 {
		parts = append(parts, fmt.Sprintf("bias_grad(%s of %s)", p.BufferName(s.Out[e.BiasGrad]), p.BufferName(s.In[e.Summed])))
	}
	if e.Residual != 0 {
		parts = append(parts, fmt.Sprintf("residual(%s)", p.BufferName(s.In[e.Residual])))
	}
	if len(parts) == 0 {
		return ""
	}
	return " epilogue=" + strings.Join(parts, ",")
}

func (p *Program) convString(s *Step) string {
	c, w := s.Conv, &s.Conv.Window
	t := fmt.Sprintf("conv.%s %s*%s->%s n=%d c=%d o=%d in=%v out=%v kernel=%v stride=%v", c.Dir, p.dtype(s.In[0]), p.dtype(s.In[1]), p.leaves(s),
		w.N, w.C, w.O, w.In, w.Out, w.Kernel, w.Stride)
	for _, l := range []struct {
		name string
		list []int64
		rest int64 // value that is not printed
	}{{"begin", w.Begin, 0}, {"end", w.End, 0}, {"dilation", w.Dilation, 1}} {
		if slices.ContainsFunc(l.list, func(x int64) bool { return x != l.rest }) {
			t += fmt.Sprintf(" %s=%v", l.name, l.list)
		}
	}
	if w.Last {
		t += " nhwc"
	}
	if w.Groups > 1 {
		t += fmt.Sprintf(" groups=%d", w.Groups)
	}
	if c.TF32 {
		t += " tf32"
	}
	if c.Direct {
		t += " direct"
	}
	return t + p.epilogue(&c.Epilogue, s) + s.postOpsText()
}

func (p *Program) attentionString(s *Step) string {
	a := s.Attn
	t := fmt.Sprintf("attention %s->%s batch=%d heads=%d", p.dtype(s.In[0]), p.dtype(s.Out[0]), a.Batch, a.Heads)
	if a.Backward {
		t = "attention_grad" + t[len("attention"):]
	}
	if a.KVHeads != a.Heads {
		t += fmt.Sprintf("/%d", a.KVHeads)
	}
	t += fmt.Sprintf(" queries=%d keys=%d width=%d", a.Queries, a.Keys, a.Width)
	if a.VWidth != a.Width {
		t += fmt.Sprintf("/%d", a.VWidth)
	}
	t += fmt.Sprintf(" scale=%g", a.Scale)
	if a.Mask != 0 {
		t += fmt.Sprintf(" mask(%s)=%v", p.BufferName(s.In[a.Mask]), a.MaskStrides)
	}
	for _, f := range []struct {
		on   bool
		name string
	}{{a.Causal, " causal"}, {a.TF32, " tf32"}} {
		if f.on {
			t += f.name
		}
	}
	return t
}

// what names a kernel, with the dtypes of its first operand and result, and its attributes.
func (k *Kernel) what(p *Program, s *Step) string {
	var b strings.Builder
	b.WriteString(s.Kind.String() + " " + k.Name)
	for _, list := range [2][]BufferID{s.In, s.Out} {
		if len(list) > 0 && list[0] != None {
			b.WriteString("." + p.dtype(list[0]).String())
		}
	}
	for _, a := range k.Node.Attrs {
		if a.Name != "loss" && a.Name != "out" {
			fmt.Fprintf(&b, " %s=%v", a.Name, a.Value)
		}
	}
	b.WriteString(k.Fusion.String())
	for i, part := range k.Parts {
		if i > 0 {
			b.WriteString(" +" + part.Node.Def().Name)
		}
	}
	return b.String() + s.postOpsText()
}

// total is what the kernel of a norm adds up.
func (e NormFusion) total() string {
	if e.Epilogue == nil {
		return "the result"
	}
	return e.Epilogue.reg(e.Total.Reg)
}

// String names the fused work of a norm, each with a space before it.
func (e NormFusion) String() string {
	s := ""
	for _, x := range [...]struct {
		word string
		has  bool
	}{{" +residual", e.Residual > 0}, {" relu", e.Relu}, {" +copy", e.Copy > 0}, {" relu_grad", e.Sign > 0}, {" +norm", e.Beside != nil}} {
		if x.has {
			s += x.word
		}
	}
	return s
}

// String writes the code of a cluster on one line: r2=mul(l0,r1).
func (g *Cluster) String() string {
	var parts []string
	for r, i := range g.Code {
		if i.Op != ir.PIn {
			parts = append(parts, fmt.Sprintf("r%d=%s", r, g.instr(&i)))
		}
	}
	var stores []string
	for i, s := range g.Stores {
		stores = append(stores, fmt.Sprintf("s%d=%s", i, g.reg(s.Reg)))
	}
	if len(stores) > 0 {
		parts = append(parts, strings.Join(stores, ", "))
	}
	return strings.Join(parts, "; ")
}

func (g *Cluster) reg(r ir.Reg) string {
	if i := g.Code[r]; i.Op == ir.PIn {
		return fmt.Sprintf("l%d", i.Int)
	}
	return fmt.Sprintf("r%d", r)
}

func (g *Cluster) instr(i *ir.Instr) string {
	switch i.Op {
	case ir.PConst:
		if i.Type.Float() {
			return strconv.FormatFloat(i.Imm, 'g', -1, 64)
		}
		return strconv.FormatInt(i.Int, 10)
	case ir.PIndex:
		return "index"
	}
	name := i.Op.String()
	switch i.Op {
	case ir.PConv:
		name += "." + i.Type.String()
	case ir.PRound:
		name += "." + i.To.String()
	case ir.PPhilox:
		name += fmt.Sprintf(".%d", i.Int)
	}
	args := []ir.Reg{i.A, i.B, i.C}[:ir.Prims[i.Op].Args]
	s := make([]string, len(args))
	for k, a := range args {
		s[k] = g.reg(a)
	}
	return name + "(" + strings.Join(s, ",") + ")"
}
