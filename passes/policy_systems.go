package passes

import (
	"ampc/ir"
	"ampc/passes/systems"
)

// systemPolicy is the policy of another mixed-precision system: its lists, with each op looking at
// its operands only, and its loss scaling for f16. An op whose list looks at its neighbours
// (TensorFlow's infer, OneFlow's gray, TVM's follow) takes the widest dtype of its operands here.
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

// systemScaler is the loss scaling of a system. TVM has none and gets the default.
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

// Torch is the policy of torch's autocast on CUDA.
func Torch(low ir.DType) Policy {
	p, err := systemPolicy("torch", low)
	if err != nil {
		panic(err) // the lists are embedded, and tests read all of them
	}
	return p
}
