package interp

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/ptx"
)

// elemAttrs are attributes that rows insist on or that change their code.
var elemAttrs = map[string][]ir.Attrs{
	"cast":  {ir.A("to", ir.F16), ir.A("to", ir.BF16), ir.A("to", ir.I32), ir.A("to", ir.Bool), ir.A("to", ir.F32)},
	"round": {ir.A("to", ir.F16), ir.A("to", ir.BF16)},
	"clip":  {ir.A("lo", -0.5, "hi", 0.5)},
	"gelu":  {nil, ir.A("approx", "tanh")}, "gelu_grad": {nil, ir.A("approx", "tanh")},
	"affine":  {ir.A("scale", -2.0, "shift", 0.5)},
	"dropout": {ir.A("rng", 7, "p", 0.25)}, "dropout_grad": {ir.A("rng", 7, "p", 0.25)},
	"bernoulli": {ir.A("rng", 9, "shape", []int{5, 33})}, "uniform": {ir.A("rng", 9, "lo", -1.0, "hi", 3.0, "shape", []int{5, 33})},
	"normal": {ir.A("rng", 9, "shape", []int{5, 33})}, "bias_correction": {ir.A("beta", 0.9)}, "ema": {ir.A("decay", 0.99)},
	"schedule": {
		ir.A("kind", "cosine", "warmup", 3, "total", 9, "min", 0.1), ir.A("kind", "step", "every", 2, "drop", 0.5), ir.A("kind", "linear", "total", 8),
	},
	"update_scale": {nil, ir.A("every", 1, "cap", 4.0, "hysteresis", 2)},
}

// elemCases are nodes of every elementwise row of the compiler, with operands of each dtype it takes.
func elemCases() (nodes []*ir.Node) {
	for _, op := range ir.Ops() {
		d := op.Def()
		if d.Elem == nil {
			continue
		}
		attrs := elemAttrs[d.Name]
		if attrs == nil {
			attrs = []ir.Attrs{nil}
		}
		for _, dt := range []ir.DType{ir.F32, ir.F16, ir.BF16, ir.I32, ir.Bool} {
			for _, a := range attrs {
				n := elemNode(op, dt, a, ir.MakeShape(5, 33))
				if n == nil { // rows of counters and scales take scalars
					n = elemNode(op, dt, a, ir.MakeShape())
				}
				if n != nil {
					nodes = append(nodes, n)
				}
			}
		}
	}
	return nodes
}

// TestElementCode: every elementwise row of the compiler, printed as PTX and run here, agrees with the
// evaluator: bit for bit where all its primitives are exact, within a few units elsewhere.
func TestElementCode(t *testing.T) {
	ran, exact := map[string]bool{}, 0
	for _, n := range elemCases() {
		l, same, run, err := elemRun(n)
		if err == nil {
			err = run(l.Kernel, 0)
		}
		if err != nil {
			t.Errorf("%s %s: %v", n.Def().Name, n.Out[0].Type, err)
		}
		ran[n.Def().Name] = true
		if same {
			exact++
		}
	}
	t.Logf("%d rows, %d cases bit for bit", len(ran), exact)
	if len(ran) < 80 {
		t.Errorf("only %d elementwise rows ran", len(ran))
	}
}

// TestDeletedElementCode removes each instruction and each guard of the rows' kernels in turn.
func TestDeletedElementCode(t *testing.T) {
	if testing.Short() {
		t.Skip("deleting every instruction takes 15 s of processor time; run without -short")
	}
	total := 0
	for _, n := range elemCases() {
		l, _, run, err := elemRun(n)
		if err != nil {
			t.Fatal(err)
		}
		changes(l.Kernel, func(k *ptx.Kernel, what string) {
			total++
			if ptx.Verify(&ptx.Module{Flavour: ptx.SM80, Kernels: []*ptx.Kernel{k}}) == nil && run(k, 1<<20) == nil {
				t.Errorf("%s %s: nothing notices the loss of `%s`", n.Def().Name, n.Out[0].Type, what)
			}
		})
	}
	t.Logf("%d changes", total)
}

// elemNode builds a node of op on operands of dtype d, or nil.
func elemNode(op ir.Op, d ir.DType, a ir.Attrs, shape ir.Shape) *ir.Node {
	b := ir.NewBuilder("case")
	var in []*ir.Value
	for i, o := range op.Def().In {
		typ := ir.Type{DType: d, Shape: shape}
		kinds := o.Kinds
		if kinds == 0 {
			kinds = ir.KFloat
		}
		switch {
		case kinds&ir.KFloat != 0 && (o.Named || o.Class == ir.Fixed) && d.Float():
			typ.DType = ir.F32
		case kinds == ir.KBool:
			typ.DType = ir.Bool
		case kinds == ir.KInt:
			typ.DType = ir.I32
		}
		if o.Named {
			typ.Shape = ir.MakeShape()
		}
		if o.Name == "seed" {
			typ.DType = ir.I64
		}
		if o.Name == "size" || o.Name == "like" { // the shape attribute says it
			in = append(in, nil)
			continue
		}
		name := fmt.Sprintf("in%d", i)
		if o.Name == "micro" {
			name = o.Name
		}
		in = append(in, b.Declare(ir.Input, name, typ, nil, nil))
		if o.Variadic {
			in = append(in, in[len(in)-1])
		}
	}
	res := b.Emit(op, in, a)
	if b.Err() != nil || len(res) == 0 || !res[0].Type.Shape.Static() {
		return nil
	}
	return res[0].Def
}

// elemInput fills an operand: ordinary values with zeros, infinities, NaN and subnormals among them.
func elemInput(r *rand.Rand, v *ir.Value) *eval.Tensor {
	x := eval.New(v.Type)
	odd := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 0x1p-130, -0x1p-24, 1, -1, 2.5, 70000}
	for i := range x.F {
		x.F[i] = r.NormFloat64() * 2
		if r.IntN(3) == 0 {
			x.F[i] = odd[r.IntN(len(odd))]
		}
		x.F[i] = eval.Round(x.F[i], v.Type.DType)
	}
	for i := range x.I {
		x.I[i] = int64(r.IntN(9) - 4)
		if v.Type.DType == ir.Bool {
			x.I[i] = int64(r.IntN(2))
		}
		if v.Name == "micro" { // a number of micro-batches; only steps over ranks, which GPUs do not run, put more into it
			x.I[i] = int64(r.IntN(9))
		}
	}
	return x
}

// elemRun makes a node's kernel, and what runs it or a changed one and compares with the evaluator.
func elemRun(n *ir.Node) (l *ptx.Launch, exact bool, run func(k *ptx.Kernel, steps int64) error, err error) {
	g, exact, worst := elementwiseOf(n)
	if l, err = g.Build(ptx.SM80); err != nil {
		return nil, false, nil, err
	}
	h := fnv.New64a()
	fmt.Fprint(h, n.Def().Name, n.Out[0].Type)
	r := rand.New(rand.NewPCG(h.Sum64(), 3))
	var in []*eval.Tensor
	var raw [][]byte
	for _, v := range n.In {
		if v == nil { // an absent operand keeps its place
			in, raw = append(in, nil), append(raw, make([]byte, 4))
			continue
		}
		x := elemInput(r, v)
		in = append(in, x)
		raw = append(raw, x.Bytes())
	}
	want, err := eval.Node(n, in, eval.Options{})
	for _, w := range want {
		raw = append(raw, make([]byte, len(w.Bytes())))
	}
	return l, exact, func(k *ptx.Kernel, steps int64) error {
		p, err := Compile(k)
		if err == nil {
			_, err = execute(p, l, false, steps, raw)
		}
		if err != nil {
			return err
		}
		return sameAsEval(n, in, raw[len(n.In):], want, exact, worst)
	}, err
}

// sameAsEval compares a node's results as stored.
func sameAsEval(n *ir.Node, in []*eval.Tensor, raw [][]byte, want []*eval.Tensor, exact bool, worst float64) error {
	for k, w := range want {
		got, err := eval.FromBytes(w.Type, raw[k])
		if err != nil {
			return err
		}
		for i := range w.Len() {
			first := 0.0
			if in[0] != nil {
				first = in[0].At(min(i, in[0].Len()-1))
			}
			if x, y := got.At(i), w.At(i); !agree(x, y, first, exact, worst, w.Type.DType) {
				return fmt.Errorf("%s[%d] = %g, the evaluator says %g (first operand %g)", n.Out[k].Name, i, x, y, first)
			}
		}
	}
	return nil
}

// agree compares results: the same bits, or near in units of the stored type. Where terms of the size
// of the first operand cancel, as in gelu far below zero, their errors stay.
func agree(x, y, first float64, exact bool, ulp float64, d ir.DType) bool {
	switch {
	case x == y && math.Signbit(x) == math.Signbit(y), x != x && y != y:
		return true
	case exact:
		return false
	}
	unit := map[ir.DType]float64{ir.F16: 0x1p-10, ir.BF16: 0x1p-7}[d] + 8*ulp*0x1p-23
	return math.Abs(x-y) <= unit*math.Max(math.Abs(y), 1e-3)+ulp*0x1p-24*math.Min(math.Abs(first), 100)
}

// elementwiseOf writes the node's code as ptx.Elementwise: one load for each operand, broadcast as numpy does.
func elementwiseOf(n *ir.Node) (g ptx.Elementwise, exact bool, ulp float64) {
	code, results := ir.NodeCode(n)
	g.Name = n.Def().Name
	dims := func(v *ir.Value) (d []int64) {
		for i := range v.Type.Shape.Rank() {
			d = append(d, int64(v.Type.Shape.Dim(i)))
		}
		return d
	}
	g.Shape = dims(n.Out[0])
	for i, v := range n.In {
		if v == nil {
			g.Loads = append(g.Loads, ptx.Access{Name: "absent", DType: ptx.Float32, Stride: make([]int64, len(g.Shape))})
			continue
		}
		g.Loads = append(g.Loads, ptx.Access{Name: fmt.Sprintf("in%d", i), DType: ptx.DType(v.Type.DType.String()), Stride: broadcast(dims(v), g.Shape)})
	}
	for _, in := range code.Ins {
		g.Code = append(g.Code, ptx.Instr{Op: in.Op.String(), Type: ptx.DType(in.Type.String()), To: ptx.DType(in.To.String()),
			A: int(in.A), B: int(in.B), C: int(in.C), Imm: in.Imm, Int: in.Int})
	}
	for k, r := range results {
		g.Stores = append(g.Stores, ptx.Output{Access: ptx.Access{Name: fmt.Sprintf("out%d", k), DType: ptx.DType(n.Out[k].Type.DType.String())}, Value: int(r)})
	}
	exact, ulp = code.Exact()
	return g, exact, ulp
}

// broadcast gives the strides that walk d as if it had the shape to.
func broadcast(d, to []int64) []int64 {
	st, step := make([]int64, len(to)), int64(1)
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] != 1 {
			st[i+len(to)-len(d)] = step
		}
		step *= d[i]
	}
	return st
}
