package view

import (
	"math"

	"ampc/ir"
	"ampc/runtime/doctor"
)

// Diagnosis is a doctor's report as the page draws it.
type Diagnosis struct {
	Text    string   `json:"text"`
	Cause   string   `json:"cause"`
	Value   string   `json:"value,omitempty"` // the first value that is not finite, in text form
	Tensors []Tensor `json:"tensors"`
	Limits  []Limit  `json:"limits"`
}

// Tensor is a value of the report with the exponents of its elements.
type Tensor struct {
	Role     string            `json:"role"` // operand or result in the step, in f32, and in bf16
	Name     string            `json:"name"`
	DType    string            `json:"dtype"`
	Text     string            `json:"text"`
	NaN      int               `json:"nan"`
	Inf      int               `json:"inf"`
	Zeros    int               `json:"zeros"`
	Elements int               `json:"elements"`
	Bins     *doctor.Exponents `json:"bins,omitempty"`
}

// Limit is what a dtype can hold, as binary exponents.
type Limit struct {
	DType     string `json:"dtype"`
	Subnormal int    `json:"subnormal"` // exponent of the smallest nonzero magnitude
	Max       int    `json:"max"`       // exponent of the largest magnitude
}

// DescribeDiagnosis makes the picture of a report.
func DescribeDiagnosis(d *doctor.Diagnosis) *Diagnosis {
	out := &Diagnosis{Text: d.String(), Cause: d.Cause.String(), Tensors: []Tensor{}}
	if d.Node != "" {
		out.Value = (&ir.Value{Name: d.Node}).String()
	}
	add := func(role string, r *doctor.Range) {
		if r != nil {
			out.Tensors = append(out.Tensors, Tensor{role, r.Name, r.Stored, r.String(), r.NaN, r.Inf, r.Zeros, r.Elements, r.Exponents})
		}
	}
	for i := range d.Inputs {
		add("operand", &d.Inputs[i])
	}
	add("result", d.Output)
	add("result in f32, loss scales of 1", d.Wide)
	add("result with bf16 for f16", d.BF16)
	for _, t := range []ir.DType{ir.F32, ir.F16, ir.BF16} {
		out.Limits = append(out.Limits, Limit{t.String(), math.Ilogb(t.SmallestSubnormal()), math.Ilogb(t.Max())})
	}
	return out
}
