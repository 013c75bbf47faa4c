package ampc_test

import (
	"strings"
	"testing"

	"ampc"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// forgetful is the CPU with a fault: the first activation that a product's kernel computes is lost.
type forgetful struct{ lower.Target }

func (t forgetful) Finish(p *lower.Program) error {
	for i := range p.Parts[lower.Micro] {
		if g := p.Parts[lower.Micro][i].Gemm; g != nil && g.Epilogue.Act == lower.Relu {
			g.Epilogue.Act = lower.NoAct
			break
		}
	}
	return t.Target.Finish(p)
}

type forgetfulBackend struct{ runtime.Backend }

func (b forgetfulBackend) Target() lower.Target { return forgetful{b.Backend.Target()} }

// A program that does not compute what the step says is refused by Train and by Infer, unless the
// check is left out.
func TestProgramsAreVerified(t *testing.T) {
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m := ampc.New("lossy", ampc.On(forgetfulBackend{b}))
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
	h := m.Relu(m.Linear("fc1", x, 16))
	out := m.Linear("fc2", h, 3)
	loss := m.CrossEntropy(out, y)
	const want = "the program of @lossy does not do what the compiled step says: this is a fault of the compiler, please report it with the model (NoProof compiles without this check): "
	_, err = m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)}, ampc.Loss{Value: loss})
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Train: %v", err)
	}
	if _, err = m.Infer(ampc.InferConfig{}, out); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Infer: %v", err)
	}
	if _, err = m.Infer(ampc.InferConfig{Compile: ampc.CompileOptions{NoProof: true}}, out); err == nil || strings.Contains(err.Error(), "fault of the compiler") {
		t.Errorf("Infer without the check: %v", err)
	}
}
