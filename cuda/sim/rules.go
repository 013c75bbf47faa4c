package sim

import (
	"fmt"
	"slices"

	"ampc/cuda"
)

// blasRule is a requirement of cuBLASLt for a product, from its documentation and its users, with
// the status that it returns if it is violated.
type blasRule struct {
	name   string
	status int
	broken func(m cuda.Matmul, on Options) string // what is wrong, "" where the rule is kept
}

// wrong is the error of a violated rule.
func wrong(broken bool, format string, args ...any) string {
	if !broken {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// largest is the most that a dimension, a leading dimension or a batch may be.
const largest = 1<<31 - 1

var blasRules = []blasRule{
	{"injected fault", statusNotSupported, func(m cuda.Matmul, on Options) string {
		return wrong(on.NoAlgorithm || on.NoAux && (m.Epilogue.HasAux() || sumsBias(m.Epilogue)), "epilogue %d", m.Epilogue)
	}},
	{"an epilogue of the list", statusInvalid, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Epilogue != 0 && !slices.Contains(epilogues, m.Epilogue), "%d", m.Epilogue)
	}},
	{"operand types", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.A.Type != m.B.Type, "A is of type %d, B of %d", m.A.Type, m.B.Type)
	}},
	{"result type", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.C.Type != m.D.Type || m.D.Type != m.A.Type && m.D.Type != cuda.R32F, "%d·%d gives %d beside C of %d", m.A.Type, m.B.Type, m.D.Type, m.C.Type)
	}},
	{"bf16 from sm_80", statusNotSupported, func(m cuda.Matmul, on Options) string {
		return wrong(m.A.Type == cuda.R16BF && on.Major < 8, "sm_%d%d", on.Major, on.Minor)
	}},
	{"TF32 takes f32", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Compute == cuda.ComputeTF32 && m.A.Type != cuda.R32F, "operands of type %d", m.A.Type)
	}},
	{"sizes", statusInvalid, func(m cuda.Matmul, _ Options) string {
		n := max(m.M, m.N, m.K, m.A.Ld, m.B.Ld, m.C.Ld, m.D.Ld, int64(m.Batch))
		return wrong(n > largest, "%d is more than %d", n, int64(largest))
	}},
	{"results of a batch lie apart", statusInvalid, func(m cuda.Matmul, _ Options) string {
		behind := m.D.Stride >= m.D.Ld*(m.N-1)+m.M
		beside := m.D.Stride >= m.M && m.D.Stride*int64(m.Batch) <= m.D.Ld
		return wrong(m.Batch > 1 && !behind && !beside, "every %d elements", m.D.Stride)
	}},
	{"the bias is of the result's type", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Epilogue.HasBias() && m.BiasType != m.D.Type, "bias of type %d, result of %d", m.BiasType, m.D.Type)
	}},
	{"a kept argument is of the result's type", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Epilogue.HasAux() && !m.Epilogue.MasksAux() && m.AuxType != m.D.Type, "auxiliary of type %d, result of %d", m.AuxType, m.D.Type)
	}},
	{"rows of a kept argument", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Epilogue.HasAux() && !m.Epilogue.MasksAux() && (m.AuxLd%8 != 0 || m.AuxLd < m.M), "leading dimension %d, want a multiple of 8 and at least %d", m.AuxLd, m.M)
	}},
	{"rows of a mask", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Epilogue.MasksAux() && (m.AuxLd%128 != 0 || m.AuxLd < m.M), "leading dimension %d bits, want a multiple of 128 and at least %d", m.AuxLd, m.M)
	}},
	{"auxiliaries of a batch lie apart", statusInvalid, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Epilogue.HasAux() && m.Batch > 1 && m.AuxStride == 0, "no stride")
	}},
	{"bias gradients are not of batches", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(sumsBias(m.Epilogue) && m.Batch > 1, "%d products, no stride for their biases", m.Batch)
	}},
	{"the operand that is summed is not turned", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.Epilogue == cuda.EpilogueBgradA && m.TransA || m.Epilogue == cuda.EpilogueBgradB && !m.TransB,
			"epilogue %d with transA=%t transB=%t, want A as it lies or B transposed", m.Epilogue, m.TransA, m.TransB)
	}},
	{"gradients want an inner dimension of 2", statusNotSupported, func(m cuda.Matmul, _ Options) string {
		return wrong(m.K < 2 && (sumsBias(m.Epilogue) || passesBack(m.Epilogue)), "epilogue %d with K=%d", m.Epilogue, m.K)
	}},
}

// epilogues are those that cuBLASLt has; other sums of their parts are none.
var epilogues = []cuda.Epilogue{cuda.EpilogueNone, cuda.EpilogueRelu, cuda.EpilogueBias, cuda.EpilogueReluBias, cuda.EpilogueGelu, cuda.EpilogueGeluBias,
	cuda.EpilogueReluAux, cuda.EpilogueReluAuxBias, cuda.EpilogueGeluAux, cuda.EpilogueGeluAuxBias, cuda.EpilogueDRelu, cuda.EpilogueDReluBgrad,
	cuda.EpilogueDGelu, cuda.EpilogueDGeluBgrad, cuda.EpilogueBgradA, cuda.EpilogueBgradB}

// sumsBias reports whether an epilogue writes a bias gradient.
func sumsBias(e cuda.Epilogue) bool {
	return e == cuda.EpilogueBgradA || e == cuda.EpilogueBgradB || e == cuda.EpilogueDReluBgrad || e == cuda.EpilogueDGeluBgrad
}

// passesBack reports whether an epilogue multiplies by an activation's derivative.
func passesBack(e cuda.Epilogue) bool {
	return e == cuda.EpilogueDRelu || e == cuda.EpilogueDReluBgrad || e == cuda.EpilogueDGelu || e == cuda.EpilogueDGeluBgrad
}
