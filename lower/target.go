package lower

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
	"ampc/ptx"
)

// Target names what a Program runs on: "cpu", "sm_80", "sm_90". What a GPU's
// libraries lack stands behind a slash: "sm_90/nodnn", "sm_90/nodnn/noaux".
type Target string

// CPU is the target of the embedded backend.
const CPU Target = "cpu"

// What a target may lack.
const (
	NoDnn  = "nodnn"  // no cuDNN: convolutions and attention are products and kernels
	NoAttn = "noattn" // no attention in cuDNN
	NoConv = "noconv" // no convolutions in cuDNN
	NoWide = "nowide" // no f32 gradients of 16-bit filters in cuDNN: they are cast afterwards
	NoBias = "nobias" // no convolutions with a bias in cuDNN: they are products, in f32 it is added afterwards
	NoAux  = "noaux"  // products that are saved for or end a gradient (see joinEnds) are followed by kernels
)

// Feature is what a target may lack: the name of its lack, and what is done then.
type Feature struct{ Name, Instead string }

// Features lists them, the most first.
var Features = []Feature{
	{NoDnn, "convolutions and attention are products and kernels"},
	{NoAttn, "attention is products and kernels"},
	{NoConv, "convolutions are products and kernels"},
	{NoWide, "gradients of 16-bit filters are of 16 bits, then cast"},
	{NoBias, "convolutions of 16 bits with a bias are products and kernels"},
	{NoAux, "what products are saved for, or end gradients in, are kernels"},
}

// FeatureNames lists what may stand behind a target's name.
func FeatureNames() string {
	var names []string
	for _, f := range Features {
		names = append(names, "/"+f.Name)
	}
	return strings.Join(names, ", ")
}

// FeatureNamed is the feature of that name; nil where there is none.
func FeatureNamed(name string) *Feature {
	if i := slices.IndexFunc(Features, func(f Feature) bool { return f.Name == name }); i >= 0 {
		return &Features[i]
	}
	return nil
}

// split cuts off what the target lacks.
func (t Target) split() (device string, without []string) {
	list := strings.Split(string(t), "/")
	return list[0], list[1:]
}

// CUDA gives the PTX flavour of a GPU target: sm_70, sm_80 or sm_90, or a later
// number, which runs what the last of these does.
func (t Target) CUDA() (fl ptx.Flavour, ok bool) {
	device, without := t.split()
	number, ok := strings.CutPrefix(device, "sm_")
	cc, err := strconv.Atoi(number)
	if !ok || err != nil || strconv.Itoa(cc) != number || cc > 999 || slices.ContainsFunc(without, func(f string) bool { return FeatureNamed(f) == nil }) {
		return ptx.Flavour{}, false
	}
	fl, err = ptx.FlavourFor(cc/10, cc%10)
	return fl, err == nil
}

// Check is the error of a name that no target has.
func (t Target) Check() error {
	if _, cuda := t.CUDA(); !cuda && t != CPU {
		return fmt.Errorf("unknown target %q: want cpu, or sm_70 and up, such as sm_80, sm_89 or sm_90, each of these also without some of %s", t, FeatureNames())
	}
	return nil
}

// Caps is what the target's kernels and libraries can do.
func (t Target) Caps() ir.Caps {
	_, gpu := t.CUDA()
	c := ir.Caps{NoGraphs: !gpu || t.Lacks(NoDnn), NoAux: !gpu || t.Lacks(NoAux), OneEnd: gpu}
	c.Packed = gpu && c.NoGraphs
	if !c.NoGraphs {
		c.Layout = "NHWC" // what tensor cores take without turning images around
		c.NarrowFilters = t.Lacks(NoWide)
	}
	return c
}

// Lacks reports whether t does without a feature.
func (t Target) Lacks(feature string) bool {
	_, without := t.split()
	return slices.Contains(without, feature)
}

// Without is t that lacks one of Features.
func (t Target) Without(feature string) Target {
	if t.Lacks(feature) {
		return t
	}
	return t + "/" + Target(feature)
}
