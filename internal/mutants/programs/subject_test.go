// Package programs tests lower.Verify from outside: it breaks lowered Programs in every way that someone who knows
// the definition of a Program alone could think of, and counts how many of those that matter are refused.
package programs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/runtimetest"
)

// models that together have every kind of step, in tiny shapes.
var specs = []string{
	"mlp?in=4&hidden=3&batch=3&classes=3&layers=2",
	"lenet?size=4&channels=1&conv1=2&conv2=2&fc1=4&fc2=0&batch=2&classes=3&pad=2",
	"resnet8?width=2&channels=2&size=3&batch=3&classes=3&blocks2=0&blocks3=0",
	"gpt?layers=1&dim=4&heads=2&vocab=5&seq=3&batch=2&dropout=0.25",
	"lstm?batch=2&seq=3&vocab=5&dim=3",
	"bert?batch=2&seq=3&vocab=5&layers=1&heads=2&dim=4&dropout=0.25",
	"vit?batch=2&size=4&channels=1&patch=2&layers=1&heads=1&dim=4&classes=3",
	"unet?batch=1&width=8&size=4&levels=1",
	"gan?batch=2&noise=2&in=3&hidden=3",
}

// shared is a target whose steps stay as lowering emits them: those that are compared with ports.
type shared struct{ lower.Target }

func (shared) Fuse(*lower.Program)                      {}
func (shared) Finish(*lower.Program) error              { return nil }
func (shared) Order(*lower.Program)                     {}
func (shared) Verify(*lower.Program, *lower.Step) error { return nil }
func (t shared) String() string                         { return t.Target.String() + "/steps" }

// subject is a lowered Program whose mutants are judged.
type subject struct {
	name string
	p    *lower.Program
	want *outcome // what it computes on the CPU; nil where the CPU does not run it
}

func subjects(t *testing.T) []*subject {
	targets := []lower.Target{lower.CPU, shared{sm.Must("sm_90")}, sm.Must("sm_90")}
	policies := []passes.Policy{passes.MixedF16(), passes.MixedBF16(), passes.O2(ir.F16), passes.F32()}
	var list []*subject
	for i, spec := range specs {
		for k, target := range targets {
			for j, policy := range policies {
				if k > 0 && j != i%2 && j != 2+i%2 || testing.Short() && j != (i+2*k)%4 {
					continue
				}
				s, err := compile(spec, j%2, policy, target)
				if err != nil {
					t.Fatalf("%s, %s, %s: %v", spec, policy.Name, target, err)
				}
				list = append(list, s)
			}
		}
	}
	return list
}

func compile(spec string, step int, policy passes.Policy, target lower.Target) (*subject, error) {
	z, err := models.Open(spec)
	if err != nil {
		return nil, err
	}
	st := z.Steps[step%len(z.Steps)]
	g, cfg, err := z.Model.Source(st.Config, st.Losses...)
	if err != nil {
		return nil, err
	}
	cfg.Policy, cfg.Caps, cfg.Prove, cfg.Micro = policy, target.Caps(), false, 1+step
	if err := passes.Run(g, cfg); err != nil {
		return nil, err
	}
	p, err := lower.Lower(g, target)
	if err != nil {
		return nil, err
	}
	s := &subject{name: fmt.Sprintf("%s/%s/%s", z.Name, policy.Name, target), p: p}
	if _, steps := target.(shared); steps {
		if s.want, err = execute(p); err != nil { // a norm with a prologue of its own
			s.want = nil
		}
	}
	if target == lower.CPU {
		if s.want, err = execute(p); err != nil {
			return nil, err
		}
		again, err := execute(clone(p))
		if err != nil || !again.equal(s.want) {
			return nil, fmt.Errorf("a clone computes something else: %v", err)
		}
	}
	return s, nil
}

// outcome is what two steps leave in variables and return.
type outcome struct {
	vars, results []string
	bytes         int64
}

func (o *outcome) equal(x *outcome) bool {
	return slices.Equal(o.vars, x.vars) && slices.Equal(o.results, x.results) && o.bytes == x.bytes
}

// traffic is the bytes that a Program moves, by the buffers that its steps name.
func traffic(p *lower.Program) (sum int64) {
	for part := range p.Parts {
		for i := range p.Parts[part] {
			sum += p.Traffic(&p.Parts[part][i])
		}
	}
	return sum
}

// execute runs two steps of two micro-batches on the CPU. The second is fed what is not finite, so that checks and
// skips are part of the outcome.
func execute(p *lower.Program) (o *outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if _, steps := p.Target.(shared); steps { // the shared steps run on the CPU, too
		q := *p
		p, q.Target = &q, lower.CPU
	}
	b, err := cpu.Open(1)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	vars, err := runtime.Variables(p)
	if err != nil {
		return nil, err
	}
	s, err := b.NewStore(vars)
	if err != nil {
		return nil, err
	}
	if err := runtimetest.Initialize(s, vars, 7); err != nil {
		return nil, err
	}
	scramble(s, vars)
	e, err := b.Load(p, s)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	o = &outcome{bytes: traffic(p)}
	r := rand.New(rand.NewPCG(1, 9))
	for step := range 3 {
		f, err := e.Step(context.Background(), []runtime.Feed{feed(p, r, false), feed(p, r, step == 1)})
		if err != nil {
			return nil, err
		}
		for i, out := range p.Outputs {
			buf := make([]byte, out.Type.Bytes())
			if err := f.Read(i, buf); err != nil {
				return nil, err
			}
			o.results = append(o.results, string(buf))
		}
		for i := range vars {
			buf := make([]byte, vars[i].Type.Bytes())
			if vars[i].Kind == ir.Input || vars[i].Kind == ir.Const || s.Read(vars[i].Name, buf) != nil {
				continue
			}
			o.vars = append(o.vars, vars[i].Name+string(buf))
		}
	}
	return o, nil
}

// scramble gives moments, averages and biases, which begin as zeros, values of their own: positive ones, so that
// roots stay finite. Scalars, which count, stay.
func scramble(s runtime.Store, vars []lower.Var) {
	r := rand.New(rand.NewPCG(3, 5))
	for i := range vars {
		v := &vars[i]
		if v.Kind == ir.Input || v.Kind == ir.Const || v.Type.DType != ir.F32 || v.Type.Shape.Rank() == 0 {
			continue
		}
		buf := make([]byte, v.Type.Bytes())
		if s.Read(v.Name, buf) != nil || !bytes.Equal(buf, make([]byte, len(buf))) {
			continue
		}
		for at := 0; at < len(buf); at += 4 {
			binary.LittleEndian.PutUint32(buf[at:], math.Float32bits(0.1+r.Float32()/8))
		}
		_ = s.Write(v.Name, buf)
	}
}

func feed(p *lower.Program, r *rand.Rand, poison bool) runtime.Feed {
	f := runtime.Feed{}
	for i := range p.Vars {
		v := &p.Vars[i]
		if v.Kind != ir.Input || v.Role() == runtime.RoleMicro {
			continue
		}
		b := make([]byte, v.Type.Bytes())
		size := int(v.Type.DType.Size())
		for at := 0; at < len(b); at += size {
			switch {
			case v.Type.DType == ir.F32 && poison:
				binary.LittleEndian.PutUint32(b[at:], math.Float32bits(float32(math.Inf(1))))
			case v.Type.DType == ir.F32:
				binary.LittleEndian.PutUint32(b[at:], math.Float32bits(r.Float32()*2-1))
			default:
				b[at] = byte(r.IntN(2))
			}
		}
		f[v.Name] = runtime.Tensor{Type: v.Type, Data: b}
	}
	return f
}

// clone copies all of a Program that mutants change.
func clone(p *lower.Program) *lower.Program {
	q := *p
	q.Buffers = slices.Clone(p.Buffers)
	for i := range q.Buffers {
		q.Buffers[i].Strides = slices.Clone(q.Buffers[i].Strides)
	}
	q.Vars, q.Outputs, q.WeightCopies = slices.Clone(p.Vars), slices.Clone(p.Outputs), slices.Clone(p.WeightCopies)
	q.Written, q.Planned = slices.Clone(p.Written), slices.Clone(p.Planned)
	for part, steps := range p.Parts {
		q.Parts[part] = slices.Clone(steps)
		for i := range steps {
			q.Parts[part][i] = cloneStep(&steps[i])
		}
	}
	return &q
}

func cloneStep(s *lower.Step) lower.Step {
	x := *s
	x.In, x.Out, x.Wait, x.Runs = slices.Clone(s.In), slices.Clone(s.Out), slices.Clone(s.Wait), slices.Clone(s.Runs)
	if s.Gemm != nil {
		g := *s.Gemm
		g.Batch = slices.Clone(g.Batch)
		g.A.Strides, g.B.Strides, g.C.Strides = slices.Clone(g.A.Strides), slices.Clone(g.B.Strides), slices.Clone(g.C.Strides)
		x.Gemm = &g
	}
	if s.Conv != nil {
		c := *s.Conv
		w := &c.Window
		for _, l := range []*[]int64{&w.In, &w.Out, &w.Kernel, &w.Stride, &w.Dilation, &w.Begin, &w.End} {
			*l = slices.Clone(*l)
		}
		x.Conv = &c
	}
	if s.Attn != nil {
		a := *s.Attn
		a.MaskStrides = slices.Clone(a.MaskStrides)
		x.Attn = &a
	}
	x.Cluster, x.Epilogue = cloneCluster(s.Cluster), cloneCluster(s.Epilogue)
	x.More = slices.Clone(s.More)
	for i := range x.More {
		x.More[i] = cloneCluster(x.More[i])
	}
	if s.Kernel != nil {
		k := *s.Kernel
		k.Node, k.Parts, k.Sums = cloneNode(k.Node), slices.Clone(k.Parts), slices.Clone(k.Sums)
		for i, p := range k.Parts {
			k.Parts[i] = &lower.KernelPart{Node: cloneNode(p.Node), In: slices.Clone(p.In), Out: slices.Clone(p.Out)}
		}
		k.Fusion.Prologue, k.Fusion.Epilogue = cloneCluster(k.Fusion.Prologue), cloneCluster(k.Fusion.Epilogue)
		if t := k.Fusion.Total; t != nil {
			total := *t
			k.Fusion.Total = &total
		}
		x.Kernel = &k
	}
	if s.Moves != nil {
		m := *s.Moves
		m.List = slices.Clone(m.List)
		for i := range m.List {
			l := &m.List[i]
			l.Shape, l.Src.Strides, l.Dst.Strides = slices.Clone(l.Shape), slices.Clone(l.Src.Strides), slices.Clone(l.Dst.Strides)
		}
		x.Moves = &m
	}
	if s.Launch != nil {
		l := *s.Launch
		l.Args, l.Takes, l.Table, l.Row = slices.Clone(l.Args), slices.Clone(l.Takes), slices.Clone(l.Table), slices.Clone(l.Row)
		x.Launch = &l
	}
	return x
}

func cloneCluster(c *lower.Cluster) *lower.Cluster {
	if c == nil {
		return nil
	}
	x := *c
	x.Shape, x.Code = slices.Clone(c.Shape), slices.Clone(c.Code)
	x.Loads, x.Stores = slices.Clone(c.Loads), slices.Clone(c.Stores)
	for _, l := range [][]lower.Access{x.Loads, x.Stores} {
		for i := range l {
			l[i].Strides = slices.Clone(l[i].Strides)
		}
	}
	return &x
}

func cloneNode(n *ir.Node) *ir.Node {
	if n == nil {
		return nil
	}
	x := *n
	x.In, x.Out = slices.Clone(n.In), slices.Clone(n.Out)
	for _, l := range [][]*ir.Value{x.In, x.Out} {
		for i, v := range l {
			if v != nil {
				y := *v
				l[i] = &y
			}
		}
	}
	return &x
}
