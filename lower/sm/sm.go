// Package sm lowers Programs for NVIDIA GPUs, the targets sm_70 and later. It turns the shared
// steps into launches of generated PTX kernels and calls of cuBLASLt and cuDNN. It needs no GPU.
package sm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// cudaLowerer turns the shared steps into launches.
type cudaLowerer struct {
	p      *lower.Program
	target Target
	fl     ptx.Flavour
	module *ptx.Module
	names  map[string]string // name of a kernel, by its text without a name
	counts map[string]int    // number of kernels by kind, and of buffers by name
	out    []lower.Step      // of the part being lowered
	first  []lower.Step      // of micro: launches that begin it
	open   []openSum         // of the part being lowered: parts that no launch has joined yet
	at     lower.Part
	from   *lower.Step                    // being lowered
	read   map[lower.BufferID]bool        // roots that a step or the caller reads
	relu   map[lower.BufferID]*lower.Step // by root of a result: batch norms of micro whose epilogue is a ReLU without a sum
}

func (t Target) lowerer(p *lower.Program) *cudaLowerer {
	return &cudaLowerer{p: p, target: t, fl: t.fl, module: &ptx.Module{Flavour: t.fl}, names: map[string]string{}, counts: map[string]int{}}
}

// Finish replaces every cluster, copy, fill and kernel step by launches of generated kernels.
func (t Target) Finish(p *lower.Program) error {
	p.Scratch = lower.BufferID(len(p.Buffers))
	c := t.lowerer(p)
	c.tie()
	c.read, c.relu = rootsRead(p), normsWithRelu(p)
	p.Batch(lower.Prepare)
	p.Batch(lower.Update)
	for part := range lower.NumParts {
		c.at, c.out = part, nil
		last := make([]int, len(p.Parts[part])) // by step: its last launch
		for i := range p.Parts[part] {
			c.from = &p.Parts[part][i]
			if err := errors.Join(c.before(slices.Concat(c.from.In, c.from.Out)...), c.step()); err != nil {
				return &ir.Error{Pos: c.from.Node.Pos, Msg: fmt.Sprintf("%s %s: %v", c.from.Kind, c.from.Node.Name, err)}
			}
			last[i] = len(c.out) - 1
		}
		if err := c.close(); err != nil {
			return err
		}
		for i := range p.WeightCopies {
			if part == lower.Prepare {
				p.WeightCopies[i].Step = last[p.WeightCopies[i].Step]
			}
		}
		p.Parts[part] = c.out
		if part == lower.Micro {
			p.Parts[part] = slices.Concat(c.first, c.out)
		}
	}
	if len(c.module.Kernels) > 0 {
		p.Modules = []lower.Module{c.module}
	}
	return nil
}

// rootsRead lists the roots that a step of p or the caller reads.
func rootsRead(p *lower.Program) map[lower.BufferID]bool {
	read := map[lower.BufferID]bool{}
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			for _, id := range p.Parts[part][i].In {
				if id != lower.None {
					read[p.Buffers[id].Root] = true
				}
			}
		}
	}
	for _, o := range p.Outputs {
		read[p.Buffers[o.Buffer].Root] = true
	}
	return read
}

func (c *cudaLowerer) isRead(id lower.BufferID) bool { return c.read[c.p.Buffers[id].Root] }

// step lowers c.from.
func (c *cudaLowerer) step() error {
	s := c.from
	if !slices.ContainsFunc(s.Out, func(id lower.BufferID) bool { return c.elements(id) > 0 }) {
		c.out = append(c.out, *s) // no launch for a step without results
		return nil
	}
	switch s.Kind {
	case lower.KindGemm:
		return c.gemm()
	case lower.KindCluster:
		if len(s.More) > 0 {
			return c.batch(s)
		}
		return c.cluster(s.Cluster)
	case lower.KindCopy, lower.KindFill:
		return c.moves()
	case lower.KindAttention:
		return c.dnn()
	case lower.KindConv:
		return c.conv()
	case lower.KindKernel:
		k, call := cudaKernels[s.Kernel.Node.Op], &cudaCall{c, s, s.Kernel.Node}
		if err := call.widenIDs(k.ids); err != nil {
			return err
		}
		return k.emit(call)
	}
	return fmt.Errorf("no launch for it on %s", c.p.Target)
}

// temp is a new buffer of the work arena, named after the step's node.
func (c *cudaLowerer) temp(name string, d ir.DType, shape ...int64) lower.BufferID {
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		dims[i] = ir.Dim(n)
	}
	name = strings.TrimPrefix(c.from.Node.Name, "%") + "." + name
	if c.counts[name]++; c.counts[name] > 1 {
		name += strconv.Itoa(c.counts[name])
	}
	return c.p.NewBuffer(name, ir.T(d, dims...), lower.WorkArena)
}

func (c *cudaLowerer) typeOf(id lower.BufferID) ir.Type { return c.p.Buffers[id].Type }

func (c *cudaLowerer) elements(id lower.BufferID) int64 { return c.typeOf(id).Shape.Elements() }

// add adds a kernel to the module, once for each text, and returns its name there.
func (c *cudaLowerer) add(kind string, k *ptx.Kernel) string {
	k.Name = "k"
	text := (&ptx.Module{Kernels: []*ptx.Kernel{k}}).Text()
	name, ok := c.names[text]
	if !ok {
		name = fmt.Sprintf("%s_%d", kind, c.counts[kind])
		c.counts[kind]++
		c.names[text] = name
		k.Name = name
		c.module.Kernels = append(c.module.Kernels, k)
	}
	return name
}

// Modules are the PTX modules of a Program that this package has lowered.
func Modules(p *lower.Program) []*ptx.Module {
	var list []*ptx.Module
	for _, m := range p.Modules {
		if x, ok := m.(*ptx.Module); ok {
			list = append(list, x)
		}
	}
	return list
}

// launch emits a step that runs k with the given arguments. What the kernel states to read and
// write becomes the step's operands and results.
func (c *cudaLowerer) launch(kind string, k *ptx.Launch, args ...lower.BufferID) error {
	s, err := c.launched(kind, k, args)
	if err != nil {
		return err
	}
	node := &ir.Node{} // a launch without a row
	if c.from.Kernel != nil {
		node = c.from.Kernel.Node
	}
	s.Kind, s.Kernel = lower.KindKernel, &lower.Kernel{Name: kind, Node: node, InPlace: k.InPlace}
	s.Bytes = c.p.Traffic(&s) - c.untouched(k, args)
	c.out = append(c.out, s)
	return nil
}

// untouched is the bytes of the arguments' buffers that a kernel neither reads nor writes, because
// it uses only the rows that other operands name.
func (c *cudaLowerer) untouched(k *ptx.Launch, args []lower.BufferID) (n int64) {
	for i, a := range k.Args {
		same := slices.DeleteFunc(slices.Clone(args), func(id lower.BufferID) bool { return c.p.Buffers[id].Root != c.p.Buffers[args[i]].Root })
		if a.Touched == 0 || len(same) > 1 {
			continue
		}
		for _, moves := range []bool{a.Read, a.Write} {
			if moves {
				n += (a.Elems - a.Touched) * int64(a.DType.Size())
			}
		}
	}
	return n
}

func (c *cudaLowerer) launched(kind string, k *ptx.Launch, args []lower.BufferID) (lower.Step, error) {
	s := lower.Step{Node: c.from.Node, Runs: c.from.Runs}
	if len(args) != len(k.Args) {
		return s, fmt.Errorf("kernel %s takes %d arguments, not %d", kind, len(k.Args), len(args))
	}
	if err := c.before(args...); err != nil {
		return s, err
	}
	for i, a := range k.Args {
		t := c.typeOf(args[i])
		if t.DType.Size() != int64(a.DType.Size()) || t.Shape.Elements() < a.Elems {
			return s, fmt.Errorf("kernel %s: argument %s is %s of %d elements, %%%s is %s", kind, a.Name, a.DType, a.Elems, c.p.Buffers[args[i]].Name, t)
		}
		if a.Read && !slices.Contains(s.In, args[i]) {
			s.In = append(s.In, args[i])
		}
		if a.Write && !slices.Contains(s.Out, args[i]) {
			s.Out = append(s.Out, args[i])
		}
	}
	s.Launch = &lower.Launch{Kernel: c.add(kind, k.Kernel), Grid: k.Grid, Block: k.Block, Args: args}
	for _, a := range k.Args {
		d, _ := ir.DTypeOf(string(a.DType))
		s.Launch.Takes = append(s.Launch.Takes, lower.Argument{Name: a.Name, DType: d, Elems: a.Elems, Write: a.Write, Read: a.Read})
	}
	return s, nil
}

// ptxType is the name of d in PTX. ok is false if PTX has no such elements.
func ptxType(d ir.DType) (ptx.DType, bool) {
	t := ptx.DType(d.String())
	return t, t.Size() > 0
}
