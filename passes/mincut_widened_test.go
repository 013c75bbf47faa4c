package passes

import (
	"fmt"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// A device without products of bf16 widens their operands, also where a convolution is a product: the
// plan knows the copies, and each is a cluster.
func TestWidenedOperands(t *testing.T) {
	const text = `graph @widened {
  input %%x : f32[16,16]
  param %%w : f32[16,16] = normal(0, 1)
  param %%b : f32[16] = normal(0, 1)
forward:
%s
  return %%y
}`
	for name, body := range map[string]string{
		"linear":      "  %y = linear %x, %w, %b : f32[16,16]",
		"both":        "  %y = matmul %x, %x {tb} : f32[16,16]",
		"both, cast":  "  %c = cast %x {to=bf16} : bf16[16,16]\n  %y = matmul %x, %c {tb} : f32[16,16]",
		"residual":    "  %a = exp %x : f32[16,16]\n  %m = matmul %a, %w : f32[16,16]\n  %y = add %m, %a : f32[16,16]",
		"chain":       "  %m = linear %x, %w, %b : f32[16,16]\n  %h = gelu %m : f32[16,16]\n  %y = matmul %h, %w : f32[16,16]",
		"norm behind": "  %m = linear %x, %w, %b : f32[16,16]\n  %y = softmax %m : f32[16,16]",
		"conv":        "  %i = reshape %x {shape=[1,4,8,8]} : f32[1,4,8,8]\n  %f = reshape %w {shape=[4,4,4,4]} : f32[4,4,4,4]\n  %y = conv %i, %f : f32[1,4,5,5]",
		"conv grad":   "  %i = reshape %x {shape=[1,8,8,4]} : f32[1,8,8,4]\n  %d = reshape %w {shape=[1,8,8,4]} : f32[1,8,8,4]\n  %y = conv_grad_w %i, %d {kernel=[1,1] layout=NHWC} : f32[4,1,1,4]",
		"cast":        "  %c = cast %x {to=bf16} : bf16[16,16]\n  %y = matmul %c, %w {pin=f32} : f32[16,16]",
	} {
		for _, p := range []Policy{MixedBF16(), MixedF16()} {
			for _, name2 := range []string{"sm_70", "sm_70/nodnn"} {
				g, err := ir.Parse("widened.ir", []byte(fmt.Sprintf(text, body)))
				if err != nil {
					t.Fatal(err)
				}
				target := sm.Must(name2)
				cut, moved, _, ok := countedUnder(t, g, p, target)
				if !ok || cut != moved {
					t.Errorf("%s under %s on %s: the cut says %d bytes, the program moves %d\n%s", name, p.Name, name2, cut, moved, g)
					continue
				}
				program, err := lower.Lower(g, target)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range program.Parts[lower.Micro] {
					if s.Gemm != nil && program.Buffers[s.In[0]].Type.DType == ir.BF16 {
						t.Errorf("%s under %s on %s: a product of bf16", name, p.Name, name2)
					}
				}
			}
		}
	}
}
