package ptx

// lowest version and target of features that the base PTX version lacks
var (
	base  = Flavour{60, 30}
	since = struct{ half, match, volta, turing, ampere Flavour }{
		half: Flavour{60, 53}, match: Flavour{60, 70}, volta: Flavour{62, 70}, turing: Flavour{70, 75}, ampere: Flavour{70, 80},
	}
)

const (
	ints   = "{u16,s16,u32,s32,u64,s64}"
	words  = "{u32,s32,u64,s64}"
	flts   = "{f32,f64}"
	narrow = "{b8,u8,b16,u16,b32,u32,f32}" // memory types; one access moves at most 16 bytes
	eights = "{b64,u64,f64}"
)

// instructions is the instruction set. Sources: PTX ISA 7.0 to 9.1, chapter "Instruction Set".
var instructions = []row{
	// Data movement.
	{name: "mov.{pred,b16,u16,b32,u32,s32,b64,u64,s64,f32,f64}", args: "=$1 $1", min: base, eval: evalSame},
	{name: "mov.b32#pack", args: "=b32 2*b16", kind: Pack, min: base},
	{name: "mov.b64#pack", args: "=b64 2*b32", kind: Pack, min: base},
	{name: "mov.b32#unpack", args: "=2*b16 b32", kind: Unpack, min: base},
	{name: "mov.b64#unpack", args: "=2*b32 b64", kind: Unpack, min: base},
	{name: "cvta.to.global.u64", args: "=u64 u64", min: base, eval: evalSame},
	{name: "ld.param.{u32,b32,u64,b64,f32}", args: "=$1 [p]", kind: LoadParam, min: base},
	{name: "ld.global{,.nc,.cs}{,.v2,.v4}." + narrow, args: "=v*$3~ []", kind: Load, mode: "global", min: base},
	{name: "ld.global{,.nc,.cs}{,.v2}." + eights, args: "=v*$3 []", kind: Load, mode: "global", min: base},
	{name: "st.global{,.cs}{,.v2,.v4}." + narrow, args: "[] v*$3~", kind: Store, mode: "global", min: base},
	{name: "st.global{,.cs}{,.v2}." + eights, args: "[] v*$3", kind: Store, mode: "global", min: base},
	{name: "ld.shared{,.v2,.v4}." + narrow, args: "=v*$2~ []", kind: Load, mode: "shared", min: base},
	{name: "ld.shared{,.v2}." + eights, args: "=v*$2 []", kind: Load, mode: "shared", min: base},
	{name: "st.shared{,.v2,.v4}." + narrow, args: "[] v*$2~", kind: Store, mode: "shared", min: base},
	{name: "st.shared{,.v2}." + eights, args: "[] v*$2", kind: Store, mode: "shared", min: base},
	{name: "selp.{b16,b32,b64,u32,s32,f32,f64}", args: "=$1 $1 $1 pred", min: base, eval: evalSelect},
	{name: "prmt.b32", args: "=b32 b32 b32 b32", min: base, eval: evalPermute},

	// Integer arithmetic.
	{name: "add." + ints, args: "=$1 $1 $1", min: base, eval: evalAdd},
	{name: "sub." + ints, args: "=$1 $1 $1", min: base, eval: evalSub},
	{name: "mul.lo." + ints, args: "=$1 $1 $1", min: base, eval: evalMul},
	{name: "mul.hi." + words, args: "=$1 $1 $1", min: base, eval: evalMulHi},
	{name: "mul.wide.{u16,s16,u32,s32}", args: "=wide:$1 $1 $1", min: base, eval: evalMulWide},
	{name: "mad.lo." + words, args: "=$1 $1 $1 $1", min: base, eval: evalMad},
	{name: "mad.wide.{u32,s32}", args: "=wide:$1 $1 $1 wide:$1", min: base, eval: evalMadWide},
	{name: "div." + words, args: "=$1 $1 $1", min: base, eval: evalDiv},
	{name: "rem." + words, args: "=$1 $1 $1", min: base, eval: evalRem},
	{name: "min." + ints, args: "=$1 $1 $1", min: base, eval: evalOrder(false)},
	{name: "max." + ints, args: "=$1 $1 $1", min: base, eval: evalOrder(true)},
	{name: "neg.{s16,s32,s64}", args: "=$1 $1", min: base, eval: evalInt(func(a, _ int64) int64 { return -a })},
	{name: "abs.{s16,s32,s64}", args: "=$1 $1", min: base, eval: evalInt(func(a, _ int64) int64 { return max(a, -a) })},

	// Bits. The predicate forms combine conditions.
	{name: "and.{pred,b16,b32,b64}", args: "=$1 $1 $1", min: base, eval: evalBits(func(a, b uint64) uint64 { return a & b })},
	{name: "or.{pred,b16,b32,b64}", args: "=$1 $1 $1", min: base, eval: evalBits(func(a, b uint64) uint64 { return a | b })},
	{name: "xor.{pred,b16,b32,b64}", args: "=$1 $1 $1", min: base, eval: evalBits(func(a, b uint64) uint64 { return a ^ b })},
	{name: "not.{pred,b16,b32,b64}", args: "=$1 $1", min: base, eval: evalBits(func(a, _ uint64) uint64 { return ^a })},
	{name: "shl.{b16,b32,b64}", args: "=$1 $1 u32", min: base, eval: evalShl},
	{name: "shr.{u16,s16,b32,u32,s32,b64,u64,s64}", args: "=$1 $1 u32", min: base, eval: evalShr},
	{name: "shf.{l,r}.wrap.b32", args: "=b32 b32 b32 u32", min: base, eval: evalFunnel},
	{name: "bfe.{u32,s32}", args: "=$1 $1 u32 u32", min: base, eval: evalExtract},
	{name: "popc.b32", args: "=u32 b32", min: base, eval: evalPopc},
	{name: "clz.b32", args: "=u32 b32", min: base, eval: evalClz},
	{name: "brev.b32", args: "=b32 b32", min: base, eval: evalBrev},

	// floating point: the rounding is always explicit, and nothing but ex2 flushes subnormals
	{name: "add.rn." + flts, args: "=$1 $1 $1", min: base, eval: evalFloat(addF)},
	{name: "sub.rn." + flts, args: "=$1 $1 $1", min: base, eval: evalFloat(subF)},
	{name: "mul.rn." + flts, args: "=$1 $1 $1", min: base, eval: evalFloat(mulF)},
	{name: "div.rn." + flts, args: "=$1 $1 $1", min: base, eval: evalFloat(divF)},
	{name: "fma.rn." + flts, args: "=$1 $1 $1 $1", min: base, eval: evalFMA},
	{name: "sqrt.rn." + flts, args: "=$1 $1", min: base, eval: evalFloat(sqrtF)},
	{name: "ex2.approx.ftz.f32", args: "=f32 f32", min: base, eval: evalExp2},
	{name: "rcp.rn." + flts, args: "=$1 $1", min: base, eval: evalFloat(rcpF)},
	{name: "min." + flts, args: "=$1 $1 $1", min: base, eval: evalMinMax(false, false)},
	{name: "max." + flts, args: "=$1 $1 $1", min: base, eval: evalMinMax(true, false)},
	{name: "min.NaN.{f32}", args: "=$1 $1 $1", min: since.ampere, eval: evalMinMax(false, true)},
	{name: "max.NaN.{f32}", args: "=$1 $1 $1", min: since.ampere, eval: evalMinMax(true, true)},
	{name: "neg." + flts, args: "=$1 $1", min: base, eval: evalSign(func(a, s uint64) uint64 { return a ^ s })},
	{name: "abs." + flts, args: "=$1 $1", min: base, eval: evalSign(func(a, s uint64) uint64 { return a &^ s })},
	{name: "copysign." + flts, args: "=$1 $1 $1", min: base, eval: evalCopysign},
	{name: "testp.{finite,infinite,number,notanumber}.f32", args: "=pred f32", min: base, eval: evalTest},

	// comparison; the u forms are true if an operand is NaN
	{name: "setp.{eq,ne,lt,le,gt,ge}." + ints, args: "=pred $2 $2", min: base, eval: evalCompare},
	{name: "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}." + flts, args: "=pred $2 $2", min: base, eval: evalCompareF},

	// Conversion.
	{name: "cvt.{u16,s16,u32,s32,u64,s64}.{u8,s8,u16,s16,u32,s32,u64,s64}", args: "=$1 $2~", min: base, eval: evalCvtInt},
	{name: "cvt.rn.{f32,f64}.{u8,s8,u16,s16,u32,s32,u64,s64}", args: "=$1 $2~", min: base, eval: evalIntToFloat},
	{name: "cvt.{rzi,rni,rmi,rpi}.{s32,u32,s64,u64}.{f32,f64}", args: "=$2 $3", min: base, eval: evalFloatToInt},
	{name: "cvt.{rzi,rni,rmi,rpi}.f32.f32", args: "=f32 f32", min: base, eval: evalRoundInt},
	{name: "cvt.f64.f32", args: "=f64 f32", min: base, eval: evalWiden},
	{name: "cvt.rn.f32.f64", args: "=f32 f64", min: base, eval: evalNarrow},
	{name: "cvt.rn.f16.f32", args: "=f16 f32", min: since.half, eval: evalToHalf},
	{name: "cvt.f32.f16", args: "=f32 f16", min: since.half, eval: evalFromHalf},
	{name: "cvt.rn.bf16.f32", args: "=bf16 f32", min: since.ampere, eval: evalToBrain},
	{name: "cvt.rn.f16x2.f32", args: "=f16x2 f32 f32", min: since.ampere, eval: evalPairHalf},
	{name: "cvt.rn.bf16x2.f32", args: "=bf16x2 f32 f32", min: since.ampere, eval: evalPairBrain},

	// Control and synchronization.
	{name: "bra{,.uni}", args: "L", kind: Branch, min: base},
	{name: "{ret,exit}", kind: Exit, min: base},
	{name: "bar.sync", args: "#", kind: Barrier, min: base},
	{name: "bar.warp.sync", args: "b32", kind: WarpBarrier, min: base},
	{name: "{membar.gl,fence.acq_rel.gpu}", kind: Fence, min: since.volta},
	{name: "shfl.sync.{bfly,down,up,idx}.b32", args: "=b32 b32 u32 u32 u32", kind: Shuffle, mode: "$1", min: base},
	{name: "vote.sync.{any,all,uni}.pred", args: "=pred pred u32", kind: Vote, mode: "$1", min: base},
	{name: "vote.sync.ballot.b32", args: "=b32 pred u32", kind: Ballot, min: base},
	{name: "match.any.sync.b32", args: "=b32 b32 u32", kind: Match, min: since.match},
	{name: "activemask.b32", args: "=b32", kind: ActiveMask, min: since.volta},
	{name: "redux.sync.{add,min,max}.{u32,s32}", args: "=$2 $2 u32", kind: Redux, min: since.ampere, eval: evalCombine},

	// Read-modify-write.
	{name: "atom.{global,shared}.{add}.{u32,s32,u64,f32}", args: "=$3 [] $3", kind: Atomic, mode: "$1", min: base, eval: evalAtomic},
	{name: "atom.{global,shared}.{min,max}.{u32,s32,u64,s64}", args: "=$3 [] $3", kind: Atomic, mode: "$1", min: base, eval: evalAtomic},
	{name: "atom.{global,shared}.{and,or,xor,exch}.{b32,b64}", args: "=$3 [] $3", kind: Atomic, mode: "$1", min: base, eval: evalAtomic},
	{name: "atom.{global,shared}.{cas}.{b32,b64}", args: "=$3 [] $3 $3", kind: Atomic, mode: "$1", min: base, eval: evalAtomic},
	{name: "red.{global,shared}.{add}.{u32,s32,u64,f32}", args: "[] $3", kind: Reduction, mode: "$1", min: base, eval: evalAtomic},
	{name: "red.{global,shared}.{min,max}.{u32,s32,u64,s64}", args: "[] $3", kind: Reduction, mode: "$1", min: base, eval: evalAtomic},
	{name: "red.{global,shared}.{and,or,xor}.{b32,b64}", args: "[] $3", kind: Reduction, mode: "$1", min: base, eval: evalAtomic},
}
