package lower

import (
	"strconv"
	"strings"

	"ampc/ir"
	"ampc/ptx"
)

// Target names what a Program runs on: "cpu", "sm_80", "sm_90". A GPU without
// cuDNN is "sm_90/nodnn": it has the same kernels and products.
type Target string

// CPU is the target of the embedded backend.
const CPU Target = "cpu"

// withoutDnn ends the name of a GPU without cuDNN.
const withoutDnn = "/nodnn"

// CUDA gives the PTX flavour of a GPU target: sm_70, sm_80 or sm_90, or a later
// number, which runs what the last of these does.
func (t Target) CUDA() (fl ptx.Flavour, ok bool) {
	name, _ := strings.CutSuffix(string(t), withoutDnn)
	number, ok := strings.CutPrefix(name, "sm_")
	cc, err := strconv.Atoi(number)
	if !ok || err != nil {
		return ptx.Flavour{}, false
	}
	fl, err = ptx.FlavourFor(cc/10, cc%10)
	return fl, err == nil
}

// Caps is what the target's kernels and libraries can do.
func (t Target) Caps() ir.Caps {
	_, gpu := t.CUDA()
	return ir.Caps{NoGraphs: !gpu || strings.HasSuffix(string(t), withoutDnn)}
}

// WithoutDnn is t with convolutions and attention as products and kernels.
func (t Target) WithoutDnn() Target {
	if t.Caps().NoGraphs {
		return t
	}
	return t + withoutDnn
}
