package sm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// Target is a GPU with CUDA, such as "sm_80" or "sm_90". Suffixes name features that its libraries
// lack, as in "sm_90/nodnn" and "sm_90/nodnn/noaux".
type Target struct {
	lower.Shared
	name  string
	fl    ptx.Flavour
	lacks uint // bit i: Features[i]

	refused *map[string]bool // problems that a library of the device refused; never changed
}

var _ lower.Target = Target{}

// Features that a target may lack.
const (
	NoDnn  = "nodnn"  // no cuDNN: convolutions and attention are products and kernels
	NoAttn = "noattn" // no attention in cuDNN
	NoConv = "noconv" // no convolutions in cuDNN
	NoWide = "nowide" // no f32 gradients of 16-bit filters in cuDNN: they are cast afterwards
	NoBias = "nobias" // no convolutions with a bias in cuDNN: they are products, in f32 it is added afterwards
	NoAux  = "noaux"  // kernels compute epilogues that save an operand of a gradient or are part of one
)

// Feature is one that a target may lack: the suffix of its absence, and what is done then.
type Feature struct{ Name, Instead string }

// Features lists them; a feature that includes others comes first.
var Features = []Feature{
	{NoDnn, "convolutions and attention are products and kernels"},
	{NoAttn, "attention is products and kernels"},
	{NoConv, "convolutions are products and kernels"},
	{NoWide, "gradients of 16-bit filters are of 16 bits, then cast"},
	{NoBias, "convolutions of 16 bits with a bias are products and kernels"},
	{NoAux, "epilogues that save a product's operand or are part of a gradient are kernels"},
}

// FeatureNames lists the suffixes of targets.
func FeatureNames() string {
	var names []string
	for _, f := range Features {
		names = append(names, "/"+f.Name)
	}
	return strings.Join(names, ", ")
}

// FeatureNamed is the feature with that suffix; nil if there is none.
func FeatureNamed(name string) *Feature {
	if i := featureIndex(name); i >= 0 {
		return &Features[i]
	}
	return nil
}

func featureIndex(name string) int {
	return slices.IndexFunc(Features, func(f Feature) bool { return f.Name == name })
}

// Named is the target of a name: cpu, or a GPU with suffixes.
func Named(name string) (lower.Target, error) {
	if name == lower.CPU.String() {
		return lower.CPU, nil
	}
	if t, ok := DeviceNamed(name); ok {
		return t, nil
	}
	return nil, fmt.Errorf("unknown target %q: want cpu, or sm_70 and up, such as sm_80, sm_89 or sm_90, each of these also without some of %s", name, FeatureNames())
}

// Must is Named for a constant name; it panics if there is no such target.
func Must(name string) lower.Target {
	t, err := Named(name)
	if err != nil {
		panic(err)
	}
	return t
}

// DeviceNamed is the GPU target of a name with suffixes: sm_70 or any later number. Its kernels are
// in the best PTX flavour for that number: of sm_70, sm_80 or sm_90.
func DeviceNamed(name string) (t Target, ok bool) {
	list := strings.Split(name, "/")
	number, ok := strings.CutPrefix(list[0], "sm_")
	cc, err := strconv.Atoi(number)
	if !ok || err != nil || strconv.Itoa(cc) != number || cc > 999 {
		return Target{}, false
	}
	t = Target{name: list[0]}
	for _, f := range list[1:] {
		i := featureIndex(f)
		if i < 0 {
			return Target{}, false
		}
		t.name += "/" + f
		t.lacks |= 1 << i
	}
	t.fl, err = ptx.FlavourFor(cc/10, cc%10)
	return t, err == nil
}

// String implements Target.
func (t Target) String() string { return t.name }

// Caps implements Target.
func (t Target) Caps() ir.Caps {
	c := ir.Caps{NoGraphs: t.Lacks(NoDnn), SingleStore: true, NoResidual: true, ChecksNorms: true, JoinsLosses: true, OmitsUnread: true, RoundsInside: true, MayKeepTF32: true, Norms: channelNorms, Rows: rowFusion, PostOps: postOps, Expander: lower.Expansions(t), Splits: t.splits, SplitsConv: t.addsBiasApart, Products: t.products}
	c.RequiresDense = c.NoGraphs
	if !t.multiplies(ir.BF16) {
		c.Widens = t.widens
	}
	if !c.NoGraphs {
		c.Layout = "NHWC" // the layout that tensor cores read without transposing images
		c.LowFilterGrad = t.lowFilterGrad
	}
	return c
}

// postOps are the ops whose kernels run elementwise code on the rows that they store.
var postOps = map[ir.Op]bool{ir.OpEmbedding: true, ir.OpEmbeddingGrad: true}

// channelNorms is what the kernels of norms over channels, and over groups of channels, fuse.
func channelNorms(n *ir.Node) ir.NormFusion {
	channels := n.Def().Norm.Over == ir.OverChannels
	switch {
	case n.Def().GradOf == ir.OpInvalid:
		bits := channels && wholeBytes(n)
		return ir.NormFusion{Epilogue: true, Beside: channels, Signs: bits, Pools: bits && n.Op == ir.OpBatchNorm && len(n.In) > 2 && n.Str("layout") == "NHWC"}
	case channels:
		f := ir.NormFusion{Operand: n.NormOperand(), Beside: true, Signs: wholeBytes(n)}
		if f.Signs && n.Str("layout") == "NHWC" {
			f.Windows = maxSpread
		}
		return f
	}
	return ir.NormFusion{}
}

// wholeBytes reports whether the elements of n's images that a thread processes at once are a byte
// of bits: channels if they are last, otherwise positions.
func wholeBytes(n *ir.Node) bool {
	x := n.In[0].Type.Shape
	if !x.Static() || x.Rank() < 2 {
		return false
	}
	last, inner := x.Rank()-1, ir.Dim(1)
	if n.Str("layout") != "NHWC" {
		last = 1
		for i := 2; i < x.Rank(); i++ {
			inner *= x.Dim(i)
		}
	}
	if inner == 1 {
		return x.Dim(last)%8 == 0
	}
	return inner%8 == 0
}

// Lacks reports whether t lacks a feature.
func (t Target) Lacks(feature string) bool {
	i := featureIndex(feature)
	return i >= 0 && t.lacks&(1<<i) != 0
}

// Without is t without one of Features.
func (t Target) Without(feature string) Target {
	i := featureIndex(feature)
	if i < 0 || t.Lacks(feature) {
		return t
	}
	t.name += "/" + feature
	t.lacks |= 1 << i
	return t
}

// Refuses reports whether a library of the device refused a problem, which ProblemOf names.
func (t Target) Refuses(problem string) bool { return t.refused != nil && (*t.refused)[problem] }

// Refusing is t without a problem: steps that have it are lowered as if the library lacked it, and all
// others as before. The name stays.
func (t Target) Refusing(problem string) Target {
	all := map[string]bool{problem: true}
	if t.refused != nil {
		maps.Copy(all, *t.refused)
	}
	t.refused = &all
	return t
}

// Rule implements Target.
func (t Target) Rule(n *ir.Node) lower.Rule {
	if !t.runs(n) {
		return nil
	}
	if n.Def().Is(ir.Collective) {
		return lower.KernelRule
	}
	return lower.SharedRule(n)
}

// Refusal implements Target.
func (t Target) Refusal(n *ir.Node) string {
	for _, v := range slices.Concat(n.In, n.Out) {
		if v != nil && v.Type.DType == ir.F64 {
			return fmt.Sprintf("%s does not compute it in f64: cast to f32", t)
		}
	}
	if n.Together() > 1 {
		return fmt.Sprintf("%s runs micro-batches one after the other: train with slices and SyncNorms on the CPU", t)
	}
	if n.Def().Is(ir.Collective) {
		return fmt.Sprintf("%s sends sums and means of f32 and 16-bit floats, among at most 64 ranks where NCCL does not add them, sums of integers, the largest of integers and bools, and parts along the first axis: train across ranks on the CPU", t)
	}
	if n.Def().Is(ir.Caches) {
		return fmt.Sprintf("%s has no caches of sequences: generate on the CPU", t)
	}
	if d := unstored(n); d != ir.Invalid {
		return fmt.Sprintf("%s has no kernels for elements of %s: run it on the CPU, or cast to i32", t, d)
	}
	if k := cudaKernels[n.Op]; k.takes != nil && len(n.In) > 0 && n.In[0].Type.DType.Integer() && !k.takes(n) {
		return fmt.Sprintf("%s computes it in floats, not in %s: cast to f32", t, n.In[0].Type.DType)
	}
	return ""
}

// Expands is true for ops that have an expansion into simpler ones and no launches here.
func (t Target) Expands(n *ir.Node) bool {
	d := n.Def()
	return d.Expand != nil && !d.Is(ir.FiniteExpand) && t.Rule(n) == nil
}

// Widens implements Target.
func (Target) Widens() bool { return true }

// vectorBytes is the size of a vector that cuDNN's attention loads at a time.
const vectorBytes = 16

// ReadsStrided requires contiguous rows that begin at multiples of 16 bytes.
func (Target) ReadsStrided(d ir.DType, p ir.StridedView) bool {
	step := vectorBytes / d.Size()
	last := len(p.Strides) - 1
	return p.Rows() && p.Offset%step == 0 && !slices.ContainsFunc(p.Strides[:last], func(s int64) bool { return s%step != 0 })
}

// Refreshes implements Target.
func (Target) Refreshes() bool { return true }

// Order implements Target.
func (Target) Order(p *lower.Program) { p.Streams() }

// Library implements Target.
func (Target) Library(k lower.StepKind) string { return libraries[k] }

var libraries = map[lower.StepKind]string{lower.KindGemm: "cublasLt", lower.KindConv: "cudnn", lower.KindAttention: "cudnn"}

// Verify checks the launch of a step.
func (Target) Verify(p *lower.Program, s *lower.Step) error { return verifyLaunch(p, s) }
