package ir

import (
	"maps"
	"slices"
	"strings"
)

// Op is a row. Constants are grouped by family; the rows are in the family's file (rows_*.go).
type Op uint16

const (
	OpInvalid Op = iota

	// elementwise, one operand
	OpNeg
	OpAbs
	OpSign
	OpSqrt
	OpRsqrt
	OpSquare
	OpReciprocal
	OpAffine // x·scale + shift with constant numbers
	OpExp
	OpExpm1
	OpLog
	OpLog1p
	OpSin
	OpCos
	OpTan
	OpAtan
	OpErf
	OpTanh
	OpSigmoid
	OpRelu
	OpLeakyRelu
	OpPrelu
	OpElu
	OpSelu
	OpGelu
	OpSilu
	OpMish
	OpSoftplus
	OpSoftsign
	OpHardswish
	OpHardsigmoid
	OpFloor
	OpCeil
	OpTrunc
	OpRoundEven
	OpClip
	OpNot
	OpIsNaN
	OpIsInf
	OpReluGrad
	OpLeakyReluGrad
	OpGeluGrad
	OpSiluGrad
	OpTanhGrad
	OpSigmoidGrad

	// elementwise, two or more operands
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpMod
	OpPow
	OpMin
	OpMax
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpAnd
	OpOr
	OpXor
	OpWhere
	OpAddN
	OpCast
	OpRound

	// shape
	OpReshape
	OpTranspose
	OpBroadcast
	OpSqueeze
	OpUnsqueeze
	OpSlice
	OpPad
	OpConcat
	OpSplit
	OpTile
	OpFlip
	OpGather
	OpGatherElements
	OpScatter
	OpScatterAdd
	OpOneHot
	OpIota
	OpFull
	OpTril
	OpTriu
	OpResize
	OpResizeGrad
	OpDepthToSpace
	OpSpaceToDepth
	OpSumTo // sums over broadcast dimensions: the gradient of broadcasting

	// reduce
	OpReduceSum
	OpReduceMean
	OpReduceVar
	OpReduceMax
	OpReduceMin
	OpReduceProd
	OpReduceL1
	OpReduceL2
	OpLogSumExp
	OpArgmax
	OpArgmin
	OpCumsum
	OpCummax
	OpCummin
	OpLinearScan
	OpTopK

	// linear
	OpMatmul
	OpLinear
	OpConv
	OpConvGradX
	OpConvGradW
	OpConvTranspose
	OpEmbedding
	OpEmbeddingGrad

	// norm
	OpSoftmax
	OpSoftmaxGrad
	OpLogSoftmax
	OpLogSoftmaxGrad
	OpLayerNorm
	OpLayerNormGrad
	OpRMSNorm
	OpRMSNormGrad
	OpGroupNorm
	OpGroupNormGrad
	OpInstanceNorm
	OpBatchNorm
	OpBatchNormGrad
	OpBatchNormInfer

	// attention
	OpAttention
	OpAttentionGrad
	OpRope
	OpCacheAppend
	OpCachedAttention

	// pool
	OpMaxPool
	OpMaxPoolGrad
	OpAvgPool
	OpAvgPoolGrad
	OpAdaptiveAvgPool
	OpAdaptiveAvgPoolGrad

	// recurrent
	OpLSTM
	OpLSTMGrad
	OpGRU
	OpGRUGrad
	OpRNN
	OpRNNGrad

	// loss
	OpCrossEntropy
	OpCrossEntropyGrad
	OpSoftCrossEntropy
	OpNLL
	OpBCEWithLogits
	OpBCE
	OpMSE
	OpL1Loss
	OpHuber
	OpKLDiv

	// random
	OpDropout
	OpDropoutGrad
	OpUniform
	OpNormal
	OpBernoulli

	// precision
	OpScale
	OpUnscale
	OpAnyNonfinite
	OpMultiplier
	OpUpdateScale
	OpGlobalNorm

	// update
	OpAccum
	OpAccumTree
	OpSGD
	OpAdam
	OpAdamW
	OpAssign
	OpEMA
	OpCount
	OpBiasCorrection
	OpSchedule
	OpCommit // the next value of a variable: new if the step is taken, old if it is skipped

	// collective
	OpAllReduce
	OpAllGather
	OpReduceScatter

	OpForeign
	OpCustom
	numOps
)

// defs holds the rows. It has no initializer: gradients call the Builder, which
// reads defs, and Go would report an initialization cycle.
var defs [numOps]Def

var opNames = map[string]Op{}

type family struct {
	name string
	rows map[Op]Def
}

func init() {
	for _, f := range []family{
		{"elementwise", unaryRows}, {"elementwise", activationRows}, {"elementwise", binaryRows}, {"shape", shapeRows}, {"shape", indexRows},
		{"reduce", reduceRows}, {"linear", linearRows}, {"linear", convRows}, {"norm", softmaxRows}, {"norm", normRows}, {"attention", attentionRows}, {"attention", cacheRows}, {"pool", poolRows},
		{"recurrent", recurrentRows}, {"loss", lossRows}, {"random", randomRows}, {"precision", precisionRows}, {"update", updateRows},
		{"collective", collectiveRows}, {"foreign", foreignRows},
	} {
		install(f)
	}
}

func install(f family) {
	for op, d := range f.rows {
		if _, dup := opNames[d.Name]; dup || defs[op].Name != "" {
			panic("ir: two rows for " + d.Name)
		}
		if d.Class == NoClass || d.Infer == nil {
			panic("ir: row " + d.Name + " lacks a class or inference")
		}
		d.Family = f.name
		defs[op] = d
		opNames[d.Name] = op
	}
}

// Ops lists every built-in op in their order.
func Ops() []Op {
	ops := make([]Op, 0, int(numOps))
	for op := OpInvalid + 1; op < OpCustom; op++ {
		if defs[op].Name != "" {
			ops = append(ops, op)
		}
	}
	return ops
}

// OpNamed finds an op by its spelling in the text form.
func OpNamed(name string) (Op, bool) { op, ok := opNames[name]; return op, ok }

// Def returns the row; OpCustom has none of its own (see Node.Def).
func (op Op) Def() *Def { return &defs[op] }

func (op Op) String() string {
	if op == OpCustom {
		return "custom"
	}
	return defs[op].Name
}

// NearestOp suggests a spelling for an unknown op; "" where none is near.
func NearestOp(name string) string { return Nearest(name, slices.Sorted(maps.Keys(opNames))) }

// Nearest is the first of the names that differ least from name, "" if all differ in more than two
// letters. A name that differs in case alone comes first.
func Nearest(name string, names []string) string {
	best, dist := "", 3
	for _, n := range names {
		if strings.EqualFold(name, n) {
			return n
		}
		d := editDistance(name, n)
		if d < dist || d == dist && best != "" && commonPrefix(name, n) > commonPrefix(name, best) {
			best, dist = n, d
		}
	}
	return best
}

func commonPrefix(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost = 1 + min(prev, row[j], row[j+1])
			}
			prev, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
