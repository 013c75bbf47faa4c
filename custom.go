package ampc

import (
	"fmt"
	"regexp"
	"slices"
	"sync"

	"ampc/ir"
)

// CustomOp is an op that the user defines; Model.Apply applies it. Use a CustomOp
// by pointer and do not change it after its first use. A copy is another op, which
// may be changed until its own first use. A panic in Infer, Grad or Kernel becomes
// an error.
type CustomOp struct {
	Name     string // in dumps: @name
	Doc      string // one sentence
	Operands []CustomOperand
	Results  []CustomResult
	Attrs    []CustomAttr
	Class    Class  // how a policy treats it; "": ClassKeep
	Why      string // the class's reason, which dumps show
	Scaling  Scaling

	// Infer checks the operands of a call and returns the types of its results,
	// or one sentence that says what does not fit. A result of ClassKeep is f32 where
	// Infer gives it a 16-bit dtype, as that of an operand may be under a policy.
	Infer func(c *CustomCall) ([]Type, error)
	// Grad returns the gradient of each operand (the zero Tensor: none flows) given
	// those of the results (the zero Tensor: none arrives). A gradient has the shape
	// of its operand. nil: no gradient flows through the op, and NoGrad says why.
	Grad   func(b *Backward, c *CustomCall, d []Tensor) []Tensor
	NoGrad string
	// Kernel computes the op in memory. in and out hold one slice per operand and
	// result in row-major order: []float32 for float dtypes, widened when read and
	// rounded when stored, and []int64 for all others.
	Kernel func(c *CustomCall, in, out []any) error

	row *customRow
}

// customRow is the row of the CustomOp that owner points to: a copy of the op has
// the pointer too, but is not the owner.
type customRow struct {
	owner *CustomOp
	def   *ir.Def
}

var customRows sync.Mutex // guards CustomOp.row of all ops

// CustomOperand is one operand of a CustomOp.
type CustomOperand struct {
	Name     string
	Kind     Kind  // which dtypes it takes; 0: KindFloat
	Class    Class // where it is not the op's: ClassFixed stays f32
	ReadsLow bool  // takes 16 bits although the op computes in f32
	Optional bool  // may be the zero Tensor
	Variadic bool  // this and all further operands; only the last
}

// CustomResult is one result of a CustomOp.
type CustomResult struct {
	Name      string
	Class     Class // where it is not the op's
	StoresLow bool  // may be stored in 16 bits although the op computes in f32
	StoresF32 bool  // may be stored in f32 although operands are low
}

// CustomAttr is an attribute of a CustomOp: a number, a truth value, a text or a
// list that is known when the model is built.
type CustomAttr struct {
	Name     string
	Default  any  // an int, float64, bool, string, []int or []float64, which is its type
	Required bool // every call gives it
	Doc      string
}

// Kind is a set of element types.
type Kind uint8

// The kinds of elements that an operand may have; they may be joined with |.
const (
	KindFloat Kind = 1 << iota // f32, f16, bf16, f64
	KindInt                    // i32, i64, u8
	KindBool
)

// Scaling says what a factor on the operands, such as a loss scale, does to the results.
type Scaling uint8

// What a loss scale on the operands does to the results. It matters where an op
// is applied to gradients.
const (
	ScaleRefused Scaling = iota // the op makes sense on unscaled values alone
	ScaleSame                   // linear in all operands together, as a sum is
	ScaleProduct                // linear in each operand, as a product is
	ScaleIgnored                // results do not depend on it, as signs
)

// CustomCall is one application of a CustomOp.
type CustomCall struct {
	g   *ir.Graph
	n   *ir.Node
	err error // the first attribute that was read and is not declared
}

// Operands returns how many operands the call has, absent optional ones included.
func (c *CustomCall) Operands() int { return len(c.n.In) }

// Operand returns operand i, the zero Tensor where it is absent.
func (c *CustomCall) Operand(i int) Tensor { return c.tensor(c.n.In[i]) }

// Result returns result i; not in Infer, where there is none yet.
func (c *CustomCall) Result(i int) Tensor { return c.tensor(c.n.Out[i]) }

func (c *CustomCall) tensor(v *ir.Value) Tensor {
	if v == nil {
		return Tensor{}
	}
	return Tensor{c.g, v}
}

// Int returns an attribute, or its default. As for the other types, reading one
// that CustomOp.Attrs does not declare with this type is an error of the call.
func (c *CustomCall) Int(name string) int { return int(c.declared(name, ir.AttrInt).Int(name)) }

// Float returns an attribute, or its default; an int counts.
func (c *CustomCall) Float(name string) float64 {
	return c.declared(name, ir.AttrFloat, ir.AttrInt).Float(name)
}

// Flag returns an attribute, or its default.
func (c *CustomCall) Flag(name string) bool { return c.declared(name, ir.AttrBool).Flag(name) }

// Text returns an attribute, or its default.
func (c *CustomCall) Text(name string) string { return c.declared(name, ir.AttrString).Str(name) }

// Floats returns an attribute, or its default; a list of ints counts.
func (c *CustomCall) Floats(name string) []float64 {
	return c.declared(name, ir.AttrFloats, ir.AttrInts).Floats(name)
}

// Ints returns an attribute, or its default.
func (c *CustomCall) Ints(name string) []int {
	var out []int
	for _, x := range c.declared(name, ir.AttrInts).Ints(name) {
		out = append(out, int(x))
	}
	return out
}

// declared returns the node, and notes an attribute that the op does not declare
// as one of kinds.
func (c *CustomCall) declared(name string, kinds ...ir.AttrKind) *ir.Node {
	for _, a := range c.n.Def().Attrs {
		if a.Name == name && slices.Contains(kinds, a.Kind) {
			return c.n
		}
	}
	if c.err == nil {
		c.err = fmt.Errorf("attribute %q is read at %s: CustomOp.Attrs does not declare it with this type", name, userLine())
	}
	return c.n
}

// guard calls a function of the op's, which is named what. A panic in it and an
// attribute that it may not read are errors.
func (c *CustomCall) guard(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panics at %s: %v", what, userLine(), r)
		}
	}()
	err = f()
	if c.err != nil {
		return fmt.Errorf("%s: %w", what, c.err)
	}
	return err
}

// Backward builds the gradient of a CustomOp. Every op of the op set is a method
// of it.
type Backward struct{ ops }

// Named returns b with a name for the result of the next op.
func (b *Backward) Named(name string) *Backward { return &Backward{b.at(name)} }

// IR returns the row of the op in the compiler's tables, which ir.Parse wants for
// a graph that applies it.
func (op *CustomOp) IR() *ir.Def {
	customRows.Lock()
	defer customRows.Unlock()
	if op.row == nil || op.row.owner != op {
		op.row = &customRow{op, op.define()}
	}
	return op.row.def
}

// row is the compiler's own class, ir.NoClass for "".
func (c Class) row() ir.Class {
	class, _ := ir.ClassOf(string(c))
	return class
}

func (op *CustomOp) define() *ir.Def {
	d := &ir.Def{Name: op.Name, Doc: op.Doc, Flags: ir.External, Class: op.Class.row(), Why: op.Why, NoGrad: op.NoGrad}
	if d.Class == ir.NoClass {
		d.Class = ir.Keep
	}
	for _, x := range op.Operands {
		d.In = append(d.In, ir.Operand{Name: x.Name, Kinds: ir.Kinds(x.Kind), Class: x.Class.row(), ReadsLow: x.ReadsLow, Optional: x.Optional, Variadic: x.Variadic})
	}
	for _, x := range op.Results {
		d.Out = append(d.Out, ir.Result{Name: x.Name, Class: x.Class.row(), StoresLow: x.StoresLow, StoresF32: x.StoresF32})
	}
	for _, x := range op.Attrs {
		d.Attrs = append(d.Attrs, x.row())
	}
	d.Unit = [...]ir.UnitRule{ir.UnitOne, ir.UnitSame, ir.UnitProduct, ir.UnitAny}[min(op.Scaling, ScaleIgnored)]
	d.Infer = op.infer
	if op.Grad != nil {
		d.Grad = op.gradients
	} else if d.NoGrad == "" {
		d.NoGrad = "it has no gradient: give CustomOp.Grad"
	}
	if op.Kernel != nil {
		d.Kernel = func(n *ir.Node, in, out []any) error {
			c := &CustomCall{n: n}
			return c.guard("Kernel", func() error { return op.Kernel(c, in, out) })
		}
	}
	return d
}

func (op *CustomOp) infer(n *ir.Node) ([]ir.Type, error) {
	c := &CustomCall{n: n}
	var types []Type
	err := c.guard("Infer", func() (err error) { types, err = op.Infer(c); return err })
	if err != nil {
		return nil, err
	}
	if len(types) != len(op.Results) {
		return nil, fmt.Errorf("Infer returns %d types, want %d: one for each of the op's Results", len(types), len(op.Results))
	}
	out := make([]ir.Type, len(types))
	for i, t := range types {
		if t == (Type{}) {
			return nil, fmt.Errorf("Infer returns the zero Type for result %s", op.Results[i].Name)
		}
		out[i] = t.t
	}
	return out, nil
}

// gradients are what Grad returns, which must fit the operands.
func (op *CustomOp) gradients(b *ir.Builder, n *ir.Node, d []*ir.Value) []*ir.Value {
	c, build := &CustomCall{g: b.Graph(), n: n}, &Backward{ops{b}}
	var grads []Tensor
	err := c.guard("Grad", func() error { grads = op.Grad(build, c, build.tensors(d)); return nil })
	if err == nil {
		err = c.fits(grads)
	}
	if err != nil {
		b.Fail("%s: %v", op.Name, err)
		return nil
	}
	return values(grads)
}

// fits says what does not fit in the gradients of the call's operands.
func (c *CustomCall) fits(grads []Tensor) error {
	if len(grads) != c.Operands() {
		return fmt.Errorf("Grad returns %d gradients, want %d: one for each operand, the zero Tensor where none flows", len(grads), c.Operands())
	}
	for i, g := range grads {
		x := c.Operand(i)
		if g.Absent() || x.Absent() {
			continue
		}
		if !sameShape(g.v.Type.Shape, x.v.Type.Shape) {
			return fmt.Errorf("Grad returns %s as the gradient of operand %s, which is %s: want its shape", g, c.n.OperandDef(i).Name, x)
		}
	}
	return nil
}

// sameShape says whether two shapes may be one, as far as they are known.
func sameShape(a, b ir.Shape) bool {
	return !a.Known() || !b.Known() || slices.EqualFunc(a.Dims(), b.Dims(), func(x, y ir.Dim) bool {
		return x == y || x == ir.UnknownDim || y == ir.UnknownDim
	})
}

// attrKinds are the kinds of attributes by the types of their defaults.
func attrKind(v any) (ir.AttrKind, bool) {
	switch v.(type) {
	case int:
		return ir.AttrInt, true
	case float64:
		return ir.AttrFloat, true
	case bool:
		return ir.AttrBool, true
	case string:
		return ir.AttrString, true
	case []int:
		return ir.AttrInts, true
	case []float64:
		return ir.AttrFloats, true
	}
	return 0, false
}

func (a CustomAttr) row() ir.AttrDef {
	kind, _ := attrKind(a.Default)
	d := ir.AttrDef{Name: a.Name, Kind: kind, Required: a.Required, Doc: a.Doc}
	if !a.Required {
		d.Default = a.Default
	}
	return d
}

// wordName are the names that dumps print without quotes.
var wordName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// wrongClass says which Class is none, "" where all are.
func (op *CustomOp) wrongClass() string {
	classes := []Class{op.Class}
	for _, x := range op.Operands {
		classes = append(classes, x.Class)
	}
	for _, x := range op.Results {
		classes = append(classes, x.Class)
	}
	for _, c := range classes {
		if _, ok := ir.ClassOf(string(c)); !ok && c != "" {
			return fmt.Sprintf("its Class %q is none of low, keep, promote, clear and fixed", string(c))
		}
	}
	return ""
}

// wrong says what is missing from the op or not valid in it, "" for nothing.
func (op *CustomOp) wrong() string {
	switch {
	case op.Name == "":
		return "it has no Name"
	case !wordName.MatchString(op.Name):
		return "its Name is not a word of letters, digits, and _ . - / that starts with a letter"
	case builtin(op.Name):
		return "its Name is that of an op of ampc: choose another, by which dumps and policies tell them apart"
	case len(op.Results) == 0:
		return "it has no Results"
	case op.Infer == nil:
		return "it has no Infer"
	case op.Kernel == nil:
		return "it has no Kernel"
	}
	if wrong := op.wrongClass(); wrong != "" {
		return wrong
	}
	for _, a := range op.Attrs {
		if _, ok := attrKind(a.Default); !ok {
			return "the Default of attribute " + a.Name + " is none of int, float64, bool, string, []int and []float64"
		}
	}
	return ""
}

func builtin(name string) bool { _, ok := ir.OpNamed(name); return ok }

// Apply applies a custom op and returns its first result. Operands that it does
// not take are a mistake of the model.
func (m *Model) Apply(op *CustomOp, x ...Tensor) Tensor { return m.ApplyAll(op, nil, x...)[0] }

// ApplyAll applies a custom op with attributes by name (nil: the defaults) and
// returns all its results.
func (m *Model) ApplyAll(op *CustomOp, attrs map[string]any, x ...Tensor) []Tensor {
	none := make([]Tensor, 1)
	if op == nil {
		m.Fail("apply: no op")
		return none
	}
	if wrong := op.wrong(); wrong != "" {
		m.Fail("apply %q: %s", op.Name, wrong)
		return none
	}
	a := ir.Attrs{}
	for name, v := range attrs {
		if _, ok := attrKind(v); !ok {
			m.Fail("apply %q: attribute %s is a %T, want an int, float64, bool, string, []int or []float64", op.Name, name, v)
			return none
		}
		a = a.With(name, v)
	}
	return m.tensors(m.b.EmitCustom(op.IR(), values(x), a))
}
