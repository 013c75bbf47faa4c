package ptx

import "fmt"

// prim defines how one primitive of element code becomes instructions for one lane.
type prim struct {
	args int
	emit func(c *elementwiseGen, in Instr, r [3]Reg, lane int) Reg
}

// prims lists every primitive.
var prims = map[string]prim{
	"in":     {0, nil},
	"const":  {0, emitConst},
	"index":  {0, emitIndex},
	"add":    {2, arith(2, "add.rn", "add")},
	"sub":    {2, arith(2, "sub.rn", "sub")},
	"mul":    {2, arith(2, "mul.rn", "mul.lo")},
	"div":    {2, emitDiv},
	"fma":    {3, arith(3, "fma.rn", "mad.lo")},
	"sqrt":   {1, arith(1, "sqrt.rn", "")},
	"min":    {2, emitMinMax("min")},
	"max":    {2, emitMinMax("max")},
	"neg":    {1, arith(1, "neg", "neg")},
	"abs":    {1, arith(1, "abs", "abs")},
	"floor":  {1, emitRound("rmi")},
	"ceil":   {1, emitRound("rpi")},
	"rint":   {1, emitRound("rni")},
	"select": {3, emitSelect},
	"lt":     {2, compare("lt")},
	"le":     {2, compare("le")},
	"eq":     {2, compare("eq")},
	"ne":     {2, compare("ne")},
	"and":    {2, logic("and")},
	"or":     {2, logic("or")},
	"xor":    {2, logic("xor")},
	"not":    {1, logic("not")},
	"isnan":  {1, test("notanumber")},
	"isinf":  {1, test("infinite")},
	"conv":   {1, emitConv},
	"round":  {1, emitRoundTo},
	"philox": {3, emitPhilox},
	"exp":    {1, function((*builder).exp)},
	"expm1":  {1, function((*builder).expm1)},
	"log":    {1, function((*builder).log)},
	"log1p":  {1, function((*builder).log1p)},
	"sin":    {1, function(func(b *builder, x Reg) Reg { return b.sinCos(x, 0) })},
	"cos":    {1, function(func(b *builder, x Reg) Reg { return b.sinCos(x, 1) })},
	"tan":    {1, function((*builder).tan)},
	"atan":   {1, function((*builder).atan)},
	"erf":    {1, function((*builder).erf)},
	"tanh":   {1, function((*builder).tanh)},
	"pow": {2, func(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
		c.only32(in)
		return c.b.pow(r[0], r[1])
	}},
}

// letters is the PTX arithmetic type of a value type.
var letters = map[DType]string{Float32: "f32", Float64: "f64", Int32: "s32", Int64: "s64", Bool: "pred"}

// operandLetters derives the value type of a register from its class.
func operandLetters(r Reg) string {
	return map[Class]string{F32: "f32", F64: "f64", B32: "s32", B64: "s64", Pred: "pred"}[r.Class]
}

func isFloat(d DType) bool { return d == Float32 || d == Float64 }

// arith emits float on float types and whole on integers, with n operands.
func arith(n int, float, whole string) func(*elementwiseGen, Instr, [3]Reg, int) Reg {
	return func(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
		name := float
		if !isFloat(in.Type) {
			name = whole
		}
		var args []Arg
		for _, x := range r[:n] {
			args = append(args, x)
		}
		return c.b.Do(name+"."+letters[in.Type], args...)
	}
}

// emitDiv divides; an integer division by zero gives zero.
func emitDiv(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
	if isFloat(in.Type) {
		return c.b.Do("div.rn."+letters[in.Type], r[0], r[1])
	}
	t := letters[in.Type]
	zero := c.b.Do("setp.eq."+t, r[1], I(0))
	return c.b.Do("selp.b"+t[1:], I(0), c.b.Do("div."+t, r[0], r[1]), zero)
}

func function(f func(*builder, Reg) Reg) func(*elementwiseGen, Instr, [3]Reg, int) Reg {
	return func(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
		c.only32(in)
		return f(c.b, r[0])
	}
}

// only32 rejects types for which a transcendental function is not implemented.
func (c *elementwiseGen) only32(in Instr) {
	if in.Type != Float32 {
		c.b.fail("%s of type %s: this target has it for f32 only; keep the value in f32", in.Op, in.Type)
	}
}

func emitConst(c *elementwiseGen, in Instr, _ [3]Reg, _ int) Reg {
	switch in.Type {
	case Float32:
		return c.b.floatConst(float32(in.Imm))
	case Float64:
		return c.b.Do("mov.f64", Db(in.Imm))
	case Bool:
		return c.b.Do("setp.ne.u32", c.b.Do("mov.u32", I(in.Int)), I(0))
	}
	return c.b.Do("mov."+letters[in.Type], I(in.Int))
}

func emitIndex(c *elementwiseGen, _ Instr, _ [3]Reg, lane int) Reg {
	return c.b.Do("add.s64", c.index, I(lane))
}

func emitMinMax(which string) func(*elementwiseGen, Instr, [3]Reg, int) Reg {
	return func(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
		switch in.Type {
		case Float32:
			return c.b.pick(which, r[0], r[1])
		case Float64:
			m := c.b.Do(which+".f64", r[0], r[1])
			return c.b.Do("selp.f64", c.b.dadd(r[0], r[1]), m, c.b.Do("setp.nan.f64", r[0], r[1]))
		}
		return c.b.Do(which+"."+letters[in.Type], r[0], r[1])
	}
}

func emitRound(mode string) func(*elementwiseGen, Instr, [3]Reg, int) Reg {
	return func(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
		if !isFloat(in.Type) {
			return r[0]
		}
		c.only32(in)
		return c.b.Do("cvt."+mode+".f32.f32", r[0])
	}
}

func emitSelect(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
	b := c.b
	switch in.Type {
	case Bool: // (p and a) or (not p and b)
		return b.Do("or.pred", b.Do("and.pred", r[0], r[1]), b.Do("and.pred", b.Do("not.pred", r[0]), r[2]))
	case Int64:
		return b.Do("selp.b64", r[1], r[2], r[0])
	}
	return b.Do("selp."+letters[in.Type], r[1], r[2], r[0])
}

// compare emits an ordered comparison, except for ne, which is true if an operand is NaN.
func compare(rel string) func(*elementwiseGen, Instr, [3]Reg, int) Reg {
	return func(c *elementwiseGen, _ Instr, r [3]Reg, _ int) Reg {
		b, t := c.b, operandLetters(r[0])
		switch {
		case t == "pred" && rel == "ne":
			return b.Do("xor.pred", r[0], r[1])
		case t == "pred":
			x, y := c.boolToInt(r[0]), c.boolToInt(r[1])
			return b.Do("setp."+rel+".s32", x, y)
		case rel == "ne" && t[0] == 'f':
			return b.Do("setp.neu."+t, r[0], r[1])
		}
		return b.Do("setp."+rel+"."+t, r[0], r[1])
	}
}

func (c *elementwiseGen) boolToInt(p Reg) Reg { return c.b.Do("selp.b32", I(1), I(0), p) }

// logic works on booleans, and bitwise on integers.
func logic(op string) func(*elementwiseGen, Instr, [3]Reg, int) Reg {
	return func(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
		t := map[DType]string{Bool: "pred", Int32: "b32", Int64: "b64"}[in.Type]
		if op == "not" {
			return c.b.Do("not."+t, r[0])
		}
		return c.b.Do(op+"."+t, r[0], r[1])
	}
}

func test(what string) func(*elementwiseGen, Instr, [3]Reg, int) Reg {
	return func(c *elementwiseGen, _ Instr, r [3]Reg, _ int) Reg {
		x := r[0]
		if x.Class == F64 { // narrowing keeps NaN and Inf but may overflow, so the comparison is in f64
			if what == "notanumber" {
				return c.b.Do("setp.nan.f64", x, x)
			}
			return c.b.Do("setp.eq.f64", c.b.Do("abs.f64", x), Db(posInf))
		}
		return c.b.Do("testp."+what+".f32", x)
	}
}

// conversions has the instruction from one value type to another, by register classes.
var conversions = map[Class]map[DType]string{
	F32: {Float64: "cvt.f64.f32", Int32: "cvt.rzi.s32.f32", Int64: "cvt.rzi.s64.f32"},
	F64: {Float32: "cvt.rn.f32.f64", Int32: "cvt.rzi.s32.f64", Int64: "cvt.rzi.s64.f64"},
	B32: {Float32: "cvt.rn.f32.s32", Float64: "cvt.rn.f64.s32", Int64: "cvt.s64.s32"},
	B64: {Float32: "cvt.rn.f32.s64", Float64: "cvt.rn.f64.s64", Int32: "cvt.s32.s64"},
}

func emitConv(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg { return c.convert(r[0], in.Type) }

// convert brings a value to another value type: floats to integers toward zero, anything to bool
// by comparing with zero.
func (c *elementwiseGen) convert(x Reg, to DType) Reg {
	b, from := c.b, operandLetters(x)
	if letters[to] == from {
		return x
	}
	switch {
	case to == Bool && from[0] == 'f':
		zero := map[string]Arg{"f32": Fl(0), "f64": Db(0)}[from]
		return b.Do("setp.neu."+from, x, zero)
	case to == Bool:
		return b.Do("setp.ne."+from, x, I(0))
	case from == "pred":
		return c.convert(c.boolToInt(x), to)
	}
	name := conversions[x.Class][to]
	if name == "" {
		b.fail("no conversion from %s to %s", from, to)
		return x
	}
	y := b.Do(name, x)
	if from[0] == 'f' && !isFloat(to) && (to == Int64 || from == "f64") { // NaN becomes 0
		n := b.Do("setp.nan."+from, x, x)
		y = b.Do(map[DType]string{Int32: "selp.b32", Int64: "selp.b64"}[to], I(0), y, n)
	}
	return y
}

// fromMemory turns stored bits of type d into a value of type t.
func (c *elementwiseGen) fromMemory(x Reg, d, t DType) Reg {
	b := c.b
	switch d {
	case Float16, BFloat16:
		x = b.widen(x, d)
	case Uint8:
		x = b.Do("cvt.u32.u16", x)
	case Bool:
		x = b.Do("setp.ne.u32", b.Do("cvt.u32.u16", x), I(0))
	}
	return c.convert(x, t)
}

// toMemory turns a value of type t into the bits stored for d.
func (c *elementwiseGen) toMemory(x Reg, t, d DType) Reg {
	b := c.b
	switch d {
	case Float16, BFloat16:
		return b.narrow(c.convert(x, Float32), d)
	case Uint8: // floats saturate, integers wrap
		i := c.convert(x, Int32)
		if isFloat(t) {
			i = b.Do("min.s32", b.Do("max.s32", i, I(0)), I(255))
		}
		return b.Do("cvt.u16.u32", b.Do("and.b32", i, I(255)))
	case Bool:
		return b.Do("selp.b16", I(1), I(0), c.convert(x, Bool))
	}
	return c.convert(x, d)
}

// emitRoundTo rounds to a narrower float, or cuts an integer to a byte, and widens back.
func emitRoundTo(c *elementwiseGen, in Instr, r [3]Reg, _ int) Reg {
	switch in.To {
	case Float16, BFloat16:
		x := c.convert(r[0], Float32)
		return c.convert(c.b.widen(c.b.narrow(x, in.To), in.To), in.Type)
	case Float32:
		return c.convert(c.convert(r[0], Float32), in.Type)
	case Float64:
		return r[0]
	case Uint8:
		return c.b.Do("and.b32", r[0], I(0xff))
	}
	c.b.fail("round to %s", in.To)
	return r[0]
}

// emitPhilox generates one block of four words for four adjacent lanes.
func emitPhilox(c *elementwiseGen, in Instr, r [3]Reg, lane int) Reg {
	key := fmt.Sprintf("%d.%d.%d.%d.%d", in.A, in.B, in.C, in.Int, lane/4)
	b := c.b
	if c.lanes%4 != 0 { // element by element: the word is selected at run time
		e := b.Do("add.s64", c.index, I(lane))
		w := b.philox(b.Do("shr.u64", e, I(2)), in.Int, r)
		return b.Do("cvt.u64.u32", b.choose(w, b.Do("and.b32", b.Do("cvt.u32.u64", e), I(3))))
	}
	w, ok := c.words[key]
	if !ok {
		e := b.Do("shr.u64", b.Do("add.s64", c.index, I(lane/4*4)), I(2))
		w = b.philox(e, in.Int, r)
		c.words[key] = w
	}
	return b.Do("cvt.u64.u32", w[lane%4])
}
