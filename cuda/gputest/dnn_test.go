package gputest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// openDnn gives cuDNN, or skips: a machine may do without it.
func (g *gpu) openDnn(t testing.TB) cuda.Dnn {
	t.Helper()
	n, err := g.dnn()
	if errors.Is(err, cuda.ErrUnavailable) {
		t.Skip(err)
	}
	g.must(t, err)
	t.Cleanup(func() { n.Close() })
	return n
}

var dnnTypes = map[cuda.DnnType]ptx.DType{cuda.DnnFloat: ptx.Float32, cuda.DnnHalf: ptx.Float16, cuda.DnnBFloat16: ptx.BFloat16}

// size is the elements a feed spans.
func size(f *cuda.DnnTensor) int {
	n := int64(1)
	for i, d := range f.Dims {
		n += (d - 1) * f.Strides[i]
	}
	return int(n)
}

// runGraph runs a graph over buffers and brings them all back.
func runGraph(t *testing.T, g *gpu, n cuda.Dnn, graph *cuda.DnnGraph, bufs []ptxtest.Tensor) ([]ptxtest.Tensor, error) {
	t.Helper()
	const limit = 256 << 20
	plan, err := cuda.FirstPlan(n, graph, cuda.DnnOptions{Workspace: limit})
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	var feeds []cuda.Ptr
	for _, b := range bufs {
		feeds = append(feeds, g.upload(t, b.Bytes))
	}
	ws := g.buffer(t, max(plan.Workspace(), 256))
	g.must(t, plan.Run(feeds, ws, g.s))
	out := ptxtest.Snapshot(bufs)
	for i := range out {
		g.download(t, out[i].Bytes, feeds[i])
	}
	return out, nil
}

// results runs a graph, or skips where the library does not support it.
func results(t *testing.T, graph *cuda.DnnGraph, bufs []ptxtest.Tensor) []ptxtest.Tensor {
	t.Helper()
	g := open(t)
	got, err := runGraph(t, g, g.openDnn(t), graph, bufs)
	if errors.Is(err, cuda.ErrNotSupported) {
		t.Skipf("%s: %v", graph.Name, err)
	}
	g.must(t, err)
	return got
}

// feedsFor draws every feed of a graph; results start as zeros.
func feedsFor(g *cuda.DnnGraph, inputs int) []ptxtest.Tensor {
	r := rand.New(rand.NewPCG(15, 16))
	var bufs []ptxtest.Tensor
	for i, f := range g.Feeds {
		b := ptxtest.New(dnnTypes[f.Type], size(f))
		if i < inputs {
			b = ptxtest.Fill(r, b.DType, b.Len(), 0.5)
		}
		bufs = append(bufs, b)
	}
	return bufs
}

// TestAttention checks the composite graphs, forward and backward, causal and not. Probabilities and
// their gradients may be rounded to the operands' type, before or after they are scaled.
func TestAttention(t *testing.T) {
	for _, typ := range []cuda.DnnType{cuda.DnnBFloat16, cuda.DnnHalf} {
		for _, causal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s_%v", dnnTypes[typ], causal), func(t *testing.T) {
				a := attention{cuda.Attention{Type: typ, B: 1, H: 2, Sq: 128, Skv: 128, D: 64, Scale: 0.125, Causal: causal, Version: 91501}}
				fwd := a.Forward()
				bufs := feedsFor(fwd, 3)
				out := results(t, fwd, bufs)
				a.checkForward(t, out)
				bwd := a.Backward()
				grads := feedsFor(bwd, 5)
				copy(grads, []ptxtest.Tensor{bufs[0], bufs[1], bufs[2], out[3]})
				grads[5] = out[4]
				a.checkBackward(t, results(t, bwd, grads))
			})
		}
	}
}

// TestConv checks the three products of a convolution.
func TestConv(t *testing.T) {
	for _, kind := range []cuda.DnnKind{cuda.DnnConv, cuda.DnnConvData, cuda.DnnConvFilter} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			c := cuda.Conv{Kind: kind, Type: cuda.DnnHalf, Out: cuda.DnnHalf, NHWC: true, X: []int64{2, 16, 9, 9}, W: []int64{32, 16, 3, 3}, Y: []int64{2, 32, 5, 5},
				Shape: cuda.ConvShape{Pads: []int64{1, 1}, EndPads: []int64{1, 1}, Strides: []int64{2, 2}, Dilations: []int64{1, 1}}}
			g := c.Graph()
			checkConv(t, &c, results(t, g, feedsFor(g, 3)))
		})
	}
}

// TestAttentionSpeed says whether cuDNN takes the composite graphs of GPT-2's attention at 16·1024
// tokens, and prints workspace and time: forward and backward, causal, in both dtypes; with heads one
// after the other, and where the product of q, k and v leaves them.
func TestAttentionSpeed(t *testing.T) {
	g := open(t)
	n := g.openDnn(t)
	if g.simulated() && testing.Short() {
		t.Skip("without -short attention runs once on the simulator, in small")
	}
	for _, d := range []cuda.DataType{cuda.R16BF, cuda.R16F} {
		a := cuda.Attention{Type: map[cuda.DataType]cuda.DnnType{cuda.R16BF: cuda.DnnBFloat16, cuda.R16F: cuda.DnnHalf}[d],
			B: g.of(16, 1), H: g.of(12, 1), Sq: g.of(1024, 128), Skv: g.of(1024, 128), D: 64, Scale: 0.125, Causal: true, Version: n.Version()}
		for _, graph := range []*cuda.DnnGraph{a.Forward(), a.Backward(), inProduct(a).Forward(), inProduct(a).Backward()} {
			for _, deterministic := range []bool{true, false} {
				g.timeGraph(t, n, graph, d, deterministic)
			}
		}
	}
}

// inProduct is a over q, k and v in one tensor [B,S,3,H,D], their gradients in another, the result in
// [B,S,H,D].
func inProduct(a cuda.Attention) cuda.Attention {
	strides := func(width int64) []int64 { return []int64{a.Sq * width, a.D, width, 1} }
	all, one := strides(3*a.H*a.D), strides(a.H*a.D)
	a.QStrides, a.KStrides, a.VStrides, a.DQStrides, a.DKStrides, a.DVStrides = all, all, all, all, all, all
	a.OStrides, a.DOStrides = one, one
	return a
}

// timeGraph prints what a plan takes, or that there is none.
func (g *gpu) timeGraph(t *testing.T, n cuda.Dnn, graph *cuda.DnnGraph, d cuda.DataType, deterministic bool) {
	t.Helper()
	head := fmt.Sprintf("%-18s %-4s heads %5d apart, deterministic %-5t", graph.Name, dtypes[d], graph.Feeds[0].Strides[1], deterministic)
	plan, err := cuda.FirstPlan(n, graph, cuda.DnnOptions{Workspace: 1 << 30, Deterministic: deterministic})
	if err != nil {
		fmt.Printf("%s no plan: %v\n", head, err)
		return
	}
	feeds := g.drawFeeds(t, graph, d)
	ws := g.draw(t, cuda.R32F, max(plan.Workspace()/4, 64))
	sec := g.seconds(t, func() error { return plan.Run(feeds, ws, g.s) })
	fmt.Printf("%s %.3f ms, workspace %d MiB\n", head, sec*1e3, plan.Workspace()>>20)
	for _, p := range append(feeds, ws) {
		g.must(t, g.Free(p))
	}
	g.must(t, plan.Close())
}

// drawFeeds are tensors of random numbers for a graph: of d, those of f32 left out.
func (g *gpu) drawFeeds(t *testing.T, graph *cuda.DnnGraph, d cuda.DataType) (feeds []cuda.Ptr) {
	t.Helper()
	for _, f := range graph.Feeds {
		typ := d
		if f.Type == cuda.DnnFloat {
			typ = cuda.R32F
		}
		feeds = append(feeds, g.draw(t, typ, int64(size(f))))
	}
	return feeds
}
