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
  return %y, %p, %dx, %ds
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
			"where its gradient is kept":    {"sm_90", []string{"return %y", "return %g, %y"}, false},
			"with other channels":           {"sm_90", []string{"2,8]", "2,4]", "4,8]", "4,4]", "[8]", "[4]", "[8,1,1,8]", "[4,1,1,4]"}, false},
			"on the CPU":                    {"cpu", nil, false},
		},
		"p.taps": {
			"a pool on sm_90":                {"sm_90", pool, true},
			"where positions are kept":       {"sm_90", with("return %y", "return %p.i, %y"), false},
			"with a third reader":            {"sm_90", with("return %y", "%z = exp %g : f32[2,4,4,8]\n  return %z, %y"), false},
			"with pins that read 16 bits":    {"sm_90", with("relu_grad %g, %y :", "relu_grad %g, %y {pin=low} :"), false},
			"with windows that overlap less": {"sm_90", with("kernel=[2,2]", "kernel=[1,1]"), true},
		},
	} {
		readsOf(t, source, tensor, cases)
	}
}
