package nccl_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/nccl"
	"ampc/runtime"
	"ampc/runtime/gpu"
	"ampc/world"
)

// Every form of message: of f32 the order of sums is NCCL's; of the rest each bit is that of the
// evaluator.
const messages = `graph @messages {
  input %x : f32[3,7]
  input %b : f32[5]
  input %h : f16[11]
  input %i : i32[6]
  input %l : i64[3]
  input %f : bool[2]
forward:
  %sx, %sb = all_reduce %x, %b {ranks=RANKS seq=1} : f32[3,7], f32[5]
  %mx = all_reduce %x {op=mean ranks=RANKS seq=2} : f32[3,7]
  %sh = all_reduce %h {ranks=RANKS seq=3} : f16[11]
  %nx, %nb = all_reduce %x, %b {msg=bf16 ranks=RANKS shift=3 seq=4} : f32[3,7], f32[5]
  %px = all_reduce %x {msg=f16 op=mean ranks=RANKS seq=5} : f32[3,7]
  %si = all_reduce %i {ranks=RANKS seq=6} : i32[6]
  %li = all_reduce %l {op=max ranks=RANKS seq=7} : i64[3]
  %any = all_reduce %f {op=max ranks=RANKS seq=8} : bool[2]
  %gx = all_gather %x {axis=0 ranks=RANKS seq=9} : f32[ROWS,7]
  %gi = all_gather %i {axis=0 ranks=RANKS seq=10} : i32[IDS]
  %rx, %rbb = reduce_scatter %x, %b {flat ranks=RANKS seq=12} : f32[PARTX], f32[PARTB]
  %rb, %rh = reduce_scatter %b, %x {flat msg=bf16 op=mean shift=2 ranks=RANKS seq=13} : f32[PARTB], f32[PARTX]
  %wx, %wi = all_gather %rh, %i {shapes=[2,3,7,1,WHOLE] ranks=RANKS seq=14} : f32[3,7], i32[WHOLE]
  TREE
  return %rx, %rbb, %rb, %rh, %wx, %wi, %sx, %sb, %mx, %sh, %nx, %nb, %px, %si, %li, %any, %gx, %gi, %tx
}
`

func messagesOn(t *testing.T, ranks int) *ir.Graph {
	t.Helper()
	tree := "%tx = neg %x : f32[3,7]"
	if ranks&(ranks-1) == 0 {
		tree = "%tx = all_reduce %x {ranks=RANKS seq=15 tree} : f32[3,7]"
	}
	r := strings.NewReplacer("RANKS", fmt.Sprint(ranks), "ROWS", fmt.Sprint(3*ranks), "IDS", fmt.Sprint(6*ranks), "WHOLE", fmt.Sprint(6*ranks),
		"PARTX", fmt.Sprint(ir.PartOf(21, int64(ranks))), "PARTB", fmt.Sprint(ir.PartOf(5, int64(ranks))))
	g, err := ir.Parse("messages.ir", []byte(r.Replace(strings.Replace(messages, "TREE", tree, 1))))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// drawn are the inputs of one rank.
func drawn(g *ir.Graph, rank int) map[string]*eval.Tensor {
	feed := map[string]*eval.Tensor{}
	for k, v := range g.Vars {
		x := eval.New(v.Type)
		for i := range x.F {
			x.F[i] = float64(float32(math.Sin(float64(100*rank+17*k+i)) * 3))
			if v.Type.DType == ir.F16 {
				x.F[i] = math.Round(64*x.F[i]) / 64
			}
		}
		for i := range x.I {
			x.I[i] = int64(7*rank+i) % 9
			if v.Type.DType == ir.Bool {
				x.I[i] = map[bool]int64{true: 1}[rank == 1 && i == 1]
			}
		}
		feed[v.Name] = x
	}
	return feed
}

// runOn runs a program on one rank for some steps: launch by launch, captured, and as a graph.
func runOn(g *ir.Graph, w world.World, b *gpu.Backend, feed map[string]*eval.Tensor, steps int) ([][]byte, error) {
	p, err := lower.Lower(g, b.Target())
	if err != nil {
		return nil, err
	}
	store, err := b.NewStore(p.Vars)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	e, err := b.Load(p, store)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if err := e.(runtime.Distributed).Join(w); err != nil {
		return nil, err
	}
	tensors := runtime.Feed{}
	for name, x := range feed {
		tensors[name] = runtime.Tensor{Type: x.Type, Data: x.Bytes()}
	}
	var got [][]byte
	for range steps {
		f, err := e.Step(context.Background(), []runtime.Feed{tensors})
		if err != nil {
			return nil, err
		}
		got = nil
		for i, o := range p.Outputs {
			data := make([]byte, o.Type.Bytes())
			if err := f.Read(i, data); err != nil {
				return nil, err
			}
			got = append(got, data)
		}
	}
	return got, nil
}

func TestMessages(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		graphs, env, feeds := make([]*ir.Graph, n), make([]map[string]*eval.Tensor, n), make([][]map[string]*eval.Tensor, n)
		for r := range n {
			graphs[r] = messagesOn(t, n)
			env[r], feeds[r] = map[string]*eval.Tensor{}, []map[string]*eval.Tensor{drawn(graphs[r], r)}
		}
		want, err := eval.Ranks(graphs, env, feeds, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := make([][][]byte, n)
		for r, err := range onRanks(t, n, time.Minute, func(w world.World, b *gpu.Backend) (err error) {
			got[w.Rank()], err = runOn(messagesOn(t, n), w, b, feeds[w.Rank()][0], 3)
			return err
		}) {
			if err != nil {
				t.Fatalf("rank %d of %d: %v", r, n, err)
			}
			for i, v := range graphs[r].Return {
				y, err := eval.FromBytes(v.Type, got[r][i])
				if err != nil {
					t.Fatal(err)
				}
				bound := 0.0
				if v.Name == "sx" || v.Name == "sb" || v.Name == "mx" {
					bound = 1e-5
				}
				for k := range y.Len() {
					if x := want[r].Value(v); math.Abs(y.At(k)-x.At(k)) > bound {
						t.Errorf("rank %d of %d: %s[%d] is %g, want %g", r, n, v.Name, k, y.At(k), x.At(k))
						break
					}
				}
			}
		}
	}
}

// Messages between hosts are added in the order of ranks, as on every World.
func TestHostMessages(t *testing.T) {
	sums := make([]string, 3)
	for r, err := range onRanks(t, 3, time.Minute, func(w world.World, _ *gpu.Backend) error {
		x := eval.Floats(ir.F32, []ir.Dim{3}, 1e8, float64(w.Rank()), -1e8).Bytes()
		all, part := make([]byte, 9*4), make([]byte, 4)
		ms := []*world.Message{
			{Name: "sum", Op: world.Sum, DType: ir.F32, Wire: ir.F32, In: [][]byte{x}, Out: [][]byte{slices.Clone(x)}},
			{Name: "gather", Op: world.Gather, DType: ir.F32, Wire: ir.F32, In: [][]byte{x}, Out: [][]byte{all}},
			{Name: "part", Op: world.Sum, DType: ir.F32, Wire: ir.F32, Scatter: true, In: [][]byte{x}, Out: [][]byte{part}},
		}
		for _, m := range ms {
			if err := w.Start(m); err != nil {
				return err
			}
		}
		for _, m := range ms {
			if err := w.Wait(context.Background(), m); err != nil {
				return err
			}
		}
		a, _ := eval.FromBytes(ir.T(ir.F32, 3), ms[0].Out[0])
		b, _ := eval.FromBytes(ir.T(ir.F32, 9), all)
		c, _ := eval.FromBytes(ir.T(ir.F32, 1), part)
		sums[w.Rank()] = fmt.Sprint(a.F, b.F)
		if c.F[0] != a.F[w.Rank()] {
			return fmt.Errorf("part %d of %v is %v", w.Rank(), a.F, c.F)
		}
		return nil
	}) {
		if want := "[3e+08 3 -3e+08] [1e+08 0 -1e+08 1e+08 1 -1e+08 1e+08 2 -1e+08]"; err != nil || sums[r] != want {
			t.Errorf("rank %d: %v, %s", r, err, sums[r])
		}
	}
}

// A step between ranks does not run without a World, nor with one that does not reach the device.
func TestOtherWorlds(t *testing.T) {
	if _, err := nccl.Open(nil, nccl.Options{}); err == nil || !strings.Contains(err.Error(), "RANK and WORLD_SIZE are not set") {
		t.Errorf("%v", err)
	}
	b, err := gpu.OpenSim("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	g := messagesOn(t, 2)
	_, err = runOn(g, world.Local(2, world.LocalOptions{})[0], b, drawn(g, 0), 1)
	if want := "sim:sm_90: its ranks meet by goroutines of one process, which does not reach GPUs: open the world by package nccl, on this device"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
