package passes

import "testing"

// The gradient of a batch norm reads one bit for each element of a ReLU that ends another norm, which that
// norm's kernel stores. The plan has ports for the bits and no traffic for the result. Where more than signs are
// read, or bits would not fill bytes, the result is read.
func TestGradientsReadSigns(t *testing.T) {
	const source = `graph @signs {
  input %x : f32[4,8,2,4]
  input %z : f32[4,8,2,4]
  input %d : f32[4,8,2,4]
  param %s : f32[8] = 1
  param %b : f32[8] = 0
forward:
  %h, %m, %r = batch_norm %x, %s, %b : f32[4,8,2,4], f32[8], f32[8]
  %sum = add %h, %z : f32[4,8,2,4]
  %y = relu %sum : f32[4,8,2,4]
backward:
  %dy = relu_grad %d, %y : f32[4,8,2,4]
  %dx, %ds, %db = batch_norm_grad %x, %dy, %m, %r, %s : f32[4,8,2,4], f32[8], f32[8]
  return %y, %dx, %ds
}
`
	readsOf(t, source, "y.signs", map[string]changed{
		"on sm_70":                    {"sm_70/nodnn", nil, true},
		"on sm_90":                    {"sm_90", nil, true},
		"pinned, in the dtype of y":   {"sm_90", []string{"relu_grad %d, %y :", "relu_grad %d, %y {pin=f32} :"}, true},
		"not of whole bytes":          {"sm_90/nodnn", []string{"[4,8,2,4]", "[4,8,3,3]"}, false},
		"where the elements are read": {"sm_90", []string{"relu_grad %d, %y", "relu_grad %y, %y"}, false},
		"where another node makes y":  {"sm_90", []string{"%y = relu %sum", "%y = exp %sum"}, false},
		"where y is normalized":       {"sm_90", []string{"batch_norm_grad %x", "batch_norm_grad %y"}, false},
		"where it is computed again":  {"sm_90", []string{"%sum = add %h, %z", "%sum = mul %z, %z", "relu %sum", "relu %h", "return %y", "return %y, %sum"}, false},
		"on the CPU":                  {"cpu", nil, false},
	})
}
