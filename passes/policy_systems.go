package passes

import (
	"ampc/ir"
	"ampc/passes/systems"
)

// systemPolicy is what another mixed-precision system does: its lists, each op
// looking at its operands only, and its loss scaling for f16. What a list
// decides from the neighbours of an op (TensorFlow's infer, OneFlow's gray,
// TVM's follow) takes the widest operand here.
func systemPolicy(name string, low ir.DType) (Policy, error) {
	list, err := systems.Load(name, low)
	if err != nil {
		return Policy{}, err
	}
	p := lowPolicy(name, low)
	p.Eager = true
	if low == ir.F16 {
		p.Scaler = systemScaler(name)
	}
	if p.Class, err = list.Classes(); err != nil {
		return p, err
	}
	p.Cases, p.Widens = list.CaseClasses(p.Class), list.Widens
	return p, nil
}

// systemScaler is the loss scaling that a system brings; TVM brings none and
// gets the default.
func systemScaler(name string) Scaler {
	switch name {
	case "torch", "torch-cpu":
		return TorchScaler()
	case "apex-o1":
		return apexScaler()
	case "tensorflow":
		return kerasScaler()
	case "oneflow":
		return oneFlowScaler()
	case "paddle":
		return paddleScaler()
	}
	return Scaler{}
}

// Torch is what torch's autocast does on CUDA.
func Torch(low ir.DType) Policy {
	p, err := systemPolicy("torch", low)
	if err != nil {
		panic(err) // the lists are part of the program, and tests read them all
	}
	return p
}
