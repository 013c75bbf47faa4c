package passes

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower/sm"
)

// Random steps of batch norms, ReLUs, max pools and strided convolutions, with their gradients in any order, some
// pinned, some returned: the cut says what the launches move, whatever is stored as bits, summed up where it is read or
// computed again.
func TestCutBytesOfNorms(t *testing.T) {
	drawn := 10 * *graphs
	if testing.Short() {
		drawn /= 10
	}
	marks := map[ir.Marks]int{}
	for seed := range uint64(drawn) {
		r := rand.New(rand.NewPCG(seed, 47))
		text, target := randomNorms(r), sm.Must(gpus[r.IntN(len(gpus))])
		g, err := ir.Parse("norms.ir", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		cut, moved, _, ok := countedUnder(t, g, cutPolicies()[r.IntN(4)], target)
		if !ok || cut != moved {
			t.Errorf("seed %d on %s: the cut says %d bytes, the program moves %d: %+d\n%s\nfrom\n%s", seed, target, cut, moved, cut-moved, g, text)
		}
		for _, n := range g.Nodes {
			for _, m := range []ir.Marks{ir.MarkReadsSigns, ir.MarkSpread, ir.MarkAgain} {
				if n.Why.Has(m) {
					marks[m]++
				}
			}
		}
	}
	for _, m := range []ir.Marks{ir.MarkReadsSigns, ir.MarkSpread, ir.MarkAgain} {
		if marks[m] < drawn/20 {
			t.Errorf("%d nodes with mark %b in %d graphs", marks[m], m, drawn)
		}
	}
	t.Logf("%d graphs: %v", drawn, marks)
}

// randomNorms is the text of such a step.
func randomNorms(r *rand.Rand) string {
	var b strings.Builder
	const large, small = "[2,4,4,8]", "[2,2,2,8]"
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	pin := func() string { return pick([]string{"", "", "", "", "", "", "", " {pin=f32}", " {pin=low}"}) }
	b.WriteString("graph @norms {\n")
	for _, v := range []string{"x", "z", "d", "e"} {
		line("input %%%s : f32%s", v, large)
	}
	line("input %%u : f32%s", small)
	line("param %%w : f32[8,1,1,8] = normal(0, 0.5)\n  param %%s : f32[8] = 1\n  param %%b : f32[8] = 0")
	b.WriteString("forward:\n")
	images, y, x, index, returned := []string{"%x", "%z"}, []string{}, []string{}, []string{}, []string{}
	for k := range 1 + r.IntN(3) {
		x = append(x, pick(images))
		line("%%h%d, %%m%d, %%r%d = batch_norm %s, %%s, %%b {layout=NHWC} : f32%s, f32[8], f32[8]", k, k, k, x[k], large)
		h := fmt.Sprintf("%%h%d", k)
		if r.IntN(3) == 0 {
			line("%%a%d = add %s, %s : f32%s", k, h, pick(images), large)
			h = fmt.Sprintf("%%a%d", k)
		}
		y = append(y, fmt.Sprintf("%%y%d", k))
		line("%s = relu %s%s : f32%s", y[k], h, pin(), large)
		if r.IntN(2) == 0 {
			line("%%p%d, %%i%d = max_pool %s {kernel=[2,2] layout=NHWC strides=[2,2]} : f32%s, i32%s", k, k, y[k], small, small)
			index, returned = append(index, fmt.Sprintf("%%i%d", k)), append(returned, fmt.Sprintf("%%p%d", k))
		}
		if r.IntN(2) == 0 {
			line("%%c%d = conv %s, %%w {layout=NHWC strides=[2,2]} : f32%s", k, y[k], small)
			returned = append(returned, fmt.Sprintf("%%c%d", k))
		}
		if images = append(images, y[k]); r.IntN(6) == 0 {
			returned = append(returned, y[k])
		}
	}
	b.WriteString("backward:\n")
	grads := []string{"%d", "%e"}
	for k := range 2 + r.IntN(8) {
		v, from := fmt.Sprintf("%%g%d", k), pick(grads[max(0, len(grads)-3):])
		switch r.IntN(5) {
		case 0:
			line("%s = conv_grad_x %%u, %%w {layout=NHWC size=[4,4] strides=[2,2]} : f32%s", v, large)
		case 1:
			if len(index) == 0 {
				continue
			}
			line("%s = max_pool_grad %%u, %s {layout=NHWC size=[4,4]} : f32%s", v, pick(index), large)
		case 2:
			line("%s = add %s, %s%s : f32%s", v, from, pick(grads), pin(), large)
		default:
			n := r.IntN(len(y))
			line("%%t%d = relu_grad %s, %s%s : f32%s", k, from, y[n], pin(), large)
			line("%s, %%ds%d, %%db%d = batch_norm_grad %s, %%t%d, %%m%d, %%r%d, %%s {layout=NHWC} : f32%s, f32[8], f32[8]", v, k, k, x[n], k, n, n, large)
			returned = append(returned, fmt.Sprintf("%%ds%d", k))
		}
		grads = append(grads, v)
	}
	line("return %s\n}", strings.Join(append(returned, grads[len(grads)-1]), ", "))
	return b.String()
}
