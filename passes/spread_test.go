package passes

import "testing"

// Images that are sums of outputs of windows are not stored where only gradients of batch norms read them, through
// elementwise nodes: the gradient of an image by 1×1 filters with strides is stored without zeros, and that of a max
// pool not at all. The plan has ports for what is read in place of them.
func TestImagesAreNotStored(t *testing.T) {
	const source = `graph @spread {
  input %x : f32[2,4,4,8]
  input %d : f32[2,2,2,8]
  param %w : f32[8,1,1,8] = normal(0, 0.5)
  param %s : f32[8] = 1
  param %b : f32[8] = 0
forward:
  %h, %m, %r = batch_norm %x, %s, %b {layout=NHWC} : f32[2,4,4,8], f32[8], f32[8]
  %y = relu %h : f32[2,4,4,8]
  %p, %p.i = max_pool %y {kernel=[2,2] layout=NHWC strides=[2,2]} : f32[2,2,2,8], i32[2,2,2,8]
backward:
  %g = conv_grad_x %d, %w {layout=NHWC size=[4,4] strides=[2,2]} : f32[2,4,4,8]
  %dy = relu_grad %g, %y : f32[2,4,4,8]
  %dx, %ds, %db = batch_norm_grad %x, %dy, %m, %r, %s {layout=NHWC} : f32[2,4,4,8], f32[8], f32[8]
  return %p, %dx, %ds
}
`
	pool := []string{"%g = conv_grad_x %d, %w {layout=NHWC size=[4,4] strides=[2,2]}", "%g = max_pool_grad %d, %p.i {layout=NHWC size=[4,4]}"}
	with := func(more ...string) []string { return append(more, pool...) }
	for tensor, cases := range map[string]map[string]changed{
		"g.apart": {
			"a convolution on sm_90":        {"sm_90", nil, true},
			"a convolution without cuDNN's": {"sm_90/noconv", nil, true},
			"a convolution in 16 bits":      {"sm_70", []string{"input %d : f32", "input %d : bf16"}, true},
			"a convolution without strides": {"sm_90", []string{"d : f32[2,2,2,8]", "d : f32[2,4,4,8]", " size=[4,4] strides=[2,2]", " size=[4,4]"}, false},
			"where its gradient is kept":    {"sm_90", []string{"return %p", "return %g, %p"}, false},
			"with other channels":           {"sm_90", []string{"2,8]", "2,4]", "4,8]", "4,4]", "[8]", "[4]", "[8,1,1,8]", "[4,1,1,4]"}, false},
			"on the CPU":                    {"cpu", nil, false},
		},
		"p.taps": {
			"a pool on sm_90":                {"sm_90", pool, true},
			"where positions are kept":       {"sm_90", with("return %p", "return %p.i, %p"), false},
			"with a third reader":            {"sm_90", with("return %p", "%z = exp %g : f32[2,4,4,8]\n  return %z, %p"), false},
			"with pins that read 16 bits":    {"sm_90", with("relu_grad %g, %y :", "relu_grad %g, %y {pin=low} :"), false},
			"with windows that overlap less": {"sm_90", with("kernel=[2,2]", "kernel=[1,1]"), true},
			"where two pools have one gradient": {"sm_90", with("backward:", "  %q, %q.i = max_pool %y {kernel=[2,2] layout=NHWC strides=[2,2]} : f32[2,2,2,8], i32[2,2,2,8]\nbackward:\n  %q.g = max_pool_grad %d, %q.i {layout=NHWC size=[4,4]} : f32[2,4,4,8]",
				"  %dy = relu_grad %g, %y", "  %sum = add %g, %q.g : f32[2,4,4,8]\n  %dy = relu_grad %sum, %y", "return %p", "return %q, %p"), true},
		},
	} {
		readsOf(t, source, tensor, cases)
	}
}

// A max pool of a batch norm's ReLU computes it again from what the norm reads, if nothing reads it besides but
// gradients that do the same: no launch names it, and the plan has ports at the norm's operand, statistics, scale and
// bias in place of it.
func TestPoolsComputeReLUs(t *testing.T) {
	const source = `graph @pooled {
  input %x : f32[2,4,4,8]
  input %d : f32[2,4,4,8]
  param %s : f32[8] = 1
  param %b : f32[8] = 0
forward:
  %h, %m, %r = batch_norm %x, %s, %b {layout=NHWC} : f32[2,4,4,8], f32[8], f32[8]
  %y = relu %h : f32[2,4,4,8]
  %p, %p.i = max_pool %y {kernel=[2,2] layout=NHWC strides=[2,2]} : f32[2,2,2,8], i32[2,2,2,8]
backward:
  %dy = relu_grad %d, %y : f32[2,4,4,8]
  %dx, %ds, %db = batch_norm_grad %x, %dy, %m, %r, %s {layout=NHWC} : f32[2,4,4,8], f32[8], f32[8]
  return %p, %dx, %ds
}
`
	readsOf(t, source, "y", map[string]changed{
		"on sm_70":                          {"sm_70", nil, false},
		"on sm_90":                          {"sm_90", nil, false},
		"without a bias":                    {"sm_90", []string{"%x, %s, %b {", "%x, %s {"}, false},
		"in no cluster with the norm":       {"sm_90", []string{"%y = relu %h :", "%y = relu %h {pin=low} :"}, true},
		"read in 16 bits by the gradient":   {"sm_90", []string{"%d, %y :", "%d, %y {pin=low} :"}, false},
		"where it is kept":                  {"sm_90", []string{"return %p", "return %y, %p"}, true},
		"behind a sum":                      {"sm_90", []string{"%y = relu %h", "%sum = add %h, %d : f32[2,4,4,8]\n  %y = relu %sum"}, true},
		"where another node reads it":       {"sm_90", []string{"return %p", "%z = exp %y : f32[2,4,4,8]\n  return %z, %p"}, true},
		"where two pools read it":           {"sm_90", []string{"backward:", "  %q, %q.i = max_pool %y {kernel=[2,2] layout=NHWC strides=[2,2]} : f32[2,2,2,8], i32[2,2,2,8]\nbackward:", "return %p", "return %q, %p"}, true},
		"where the gradient reads it":       {"sm_90", []string{"batch_norm_grad %x", "batch_norm_grad %d"}, true},
		"with channels that fill no vector": {"sm_90", []string{"4,8]", "4,4]", "2,8]", "2,4]", "[8]", "[4]"}, true},
	})
}
