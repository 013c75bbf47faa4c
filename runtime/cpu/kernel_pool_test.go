package cpu_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// dividedPools are pools whose planes are several units of work, with the sizes of planes and of pooled ones.
var dividedPools = []struct{ in, out, node string }{
	{"90,71", "45,36", "max_pool {kernel=[3,3] strides=[2,2] pads=[1,1,1,1]}"},
	{"121,140", "60,70", "max_pool {kernel=[2,2] strides=[2,2]}"},
	{"90,71", "45,36", "max_pool_values {kernel=[3,3] strides=[2,2] pads=[1,1,1,1]}"},
	{"90,71", "43,70", "max_pool_values {kernel=[5,2] strides=[2,1]}"},
	{"121,140", "60,70", "max_pool_values {kernel=[2,2] strides=[2,2]}"},
	{"90,71", "45,36", "max_pool_grad {kernel=[3,3] strides=[2,2] pads=[1,1,1,1]}"},
	{"81,140", "40,70", "max_pool_grad {kernel=[2,2] strides=[2,2]}"},
	{"90,71", "45,36", "avg_pool {kernel=[3,3] strides=[2,2] pads=[1,1,1,1]}"},
	{"81,140", "40,70", "avg_pool {kernel=[2,2] strides=[2,2]}"},
	{"11,30,30", "6,15,14", "avg_pool {kernel=[2,3,4] strides=[2,2,2] pads=[1,1,0,0,1,0]}"},
	{"90,71", "17,70", "adaptive_avg_pool {size=[17,70]}"},
	{"90,71", "45,36", "avg_pool_grad {kernel=[3,3] strides=[2,2] pads=[1,1,1,1]}"},
	{"81,140", "40,70", "avg_pool_grad {kernel=[2,2] strides=[2,2]}"},
	{"11,30,30", "6,15,14", "avg_pool_grad {kernel=[2,3,4] strides=[2,2,2] pads=[1,1,0,0,1,0]}"},
	{"90,71", "17,70", "adaptive_avg_pool_grad {}"},
}

// poolOf is the program of a pool of channels planes.
func poolOf(t *testing.T, typ, in, out, node string, last bool) *lower.Program {
	layout, place := "", func(size string) string { return typ + "[2,1," + size + "]" }
	if last {
		layout, place = " layout=NHWC", func(size string) string { return typ + "[2," + size + ",1]" }
	}
	node = strings.Replace(node, "}", layout+"}", 1)
	x, y := place(in), place(out)
	index := strings.Replace(y, typ, "i32", 1)
	text := "graph @pool {\n  input %x : " + x + "\n  input %y : " + y + "\nforward:\n"
	op, rest, _ := strings.Cut(node, " ")
	wide := ""
	if typ != "f32" {
		wide = " out=" + typ
	}
	switch {
	case op == "max_pool_grad":
		text += "  %again, %index = max_pool %x {launch=1 " + rest[1:] + " : " + y + ", " + index + "\n  %r = max_pool_grad %y, %index {launch=1 size=[" + in + "]" + layout + wide + "} : " + x + "\n  return %r\n"
	case op == "max_pool":
		text += "  %r, %index = max_pool %x " + rest + " : " + y + ", " + index + "\n  return %r, %index\n"
	case op == "max_pool_values":
		text += "  %r, %index = max_pool %x " + rest + " : " + y + ", " + index + "\n  return %r\n"
	case strings.HasSuffix(op, "_grad"):
		text += "  %r = " + op + " %y {" + rest[1:len(rest)-1] + " size=[" + in + "]" + wide + "} : " + x + "\n  return %r\n"
	default:
		text += "  %r = " + op + " %x {" + rest[1:len(rest)-1] + wide + "} : " + y + "\n  return %r\n"
	}
	return loweredText(t, node, text+"}\n")
}

// Pools have the same bits whether tasks are planes or lines of them, and gradients add their terms in the same order.
func TestPoolsDivided(t *testing.T) {
	for _, path := range kern.Paths() {
		for _, typ := range []string{"f32", "bf16", "f16"} {
			for _, s := range dividedPools {
				for _, last := range []bool{false, true} {
					p := poolOf(t, typ, s.in, s.out, s.node, last)
					want := outputs(t, p, path, 1)
					for _, workers := range []int{3, 16} {
						if !slices.EqualFunc(outputs(t, p, path, workers), want, bytes.Equal) {
							t.Errorf("%s, %s of %s, last=%v: %s depends on the workers", path.Name(), s.in, typ, last, s.node)
						}
					}
				}
			}
		}
	}
}
