package interp

import (
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// mutated are small cases that between them use every generator.
var mutated = []string{
	"cast_f32_bf16_33", "bias_gelu_33x31", "permute", "dropout_33", "adamw_33", "scaler_1",
	"row_sum_3x33_f32_split1", "row_max_5x1023_f16_split1", "col_max_2x17x5_split1", "argmax_9x1000_false",
	"softmax_fwd_5x33_f16", "softmax_bwd_5x33_f32", "norm_fwd_3x33_f16", "norm_bwd_7x33_f32",
	"xent_fwd_5x33_f16", "xent_bwd_5x33_f16", "xent_sum_1023", "embed_fwd_7x5_31", "embed_bwd_5x33_1023",
	"transpose_1x33x31_f16", "gradstats_1023_f16", "gradstats_31_f16", "gradstats_finish_1023",
	"maxpool_nchw_2x3x9x7", "avgpool_nchw_2x3x9x7", "avgpool_bwd_nchw_2x3x9x7", "maxpool_bwd_nchw_2x3x9x7",
	"moments_3x5x331", "moments_1023x33x1", "bnsums_3x5x331", "bnmerge_3x5x331",
}

// TestDeletedInstructionsAreNoticed removes each instruction of each kernel in turn: the verifier,
// the interpreter's checks or the comparison with the reference must object. Survivors are listed;
// they may only be instructions that make no difference to any input of the case.
func TestDeletedInstructionsAreNoticed(t *testing.T) {
	total, survived := 0, 0
	for _, c := range ptxtest.Cases() {
		if !listed(c.Name) {
			continue
		}
		n, alive := mutants(t, c)
		total += n
		survived += len(alive)
		for _, line := range alive {
			t.Logf("%s: nothing notices the loss of `%s`", c.Name, line)
		}
	}
	if total < 2000 {
		t.Errorf("only %d mutants", total)
	}
	t.Logf("%d of %d deletions noticed", total-survived, total)
	if float64(survived) > 0.01*float64(total) {
		t.Errorf("%d of %d deletions go unnoticed", survived, total)
	}
}

func listed(name string) bool {
	for _, m := range mutated {
		if m == name {
			return true
		}
	}
	return false
}

// mutants deletes each instruction of the case's kernel and lists those nothing missed.
func mutants(t *testing.T, c ptxtest.Case) (n int, alive []string) {
	t.Helper()
	l, err := c.Build(ptx.SM80)
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := runCase(t, c, ptx.SM80)
	body := l.Kernel.Body
	for i := range body {
		if body[i].Op == nil {
			continue
		}
		n++
		k := *l.Kernel
		k.Body = append(append([]ptx.Inst(nil), body[:i]...), body[i+1:]...)
		if survives(c, l, &k, 2*whole.Steps+1000) {
			alive = append(alive, trimSpace(&body[i]))
		}
	}
	return n, alive
}

// survives reports whether a changed kernel passes everything within so many warp instructions.
func survives(c ptxtest.Case, l *ptx.Launch, k *ptx.Kernel, steps int64) bool {
	if ptx.Verify(&ptx.Module{Flavour: ptx.SM80, Kernels: []*ptx.Kernel{k}}) != nil {
		return false
	}
	p, err := Compile(k)
	if err != nil {
		return false
	}
	bufs := c.Fill(c.Rand())
	before := ptxtest.Snapshot(bufs)
	var raw [][]byte
	for _, b := range bufs {
		raw = append(raw, b.Bytes)
	}
	if _, err := execute(p, l, c.Partial, steps, raw); err != nil {
		return false
	}
	return c.Check(before, bufs) == nil
}
