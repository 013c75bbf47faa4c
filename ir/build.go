package ir

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Builder appends nodes to a graph. After the first mistake, later calls return nil values, and Err
// reports it with the position of its call.
//
// Op methods are next to the rows of their family. After a mistake they accept nil operands and
// return nil. They never panic.
type Builder struct {
	*built
	section Section
	scope   string
	next    string // name for the first result of the next node
	pos     Pos
	where   func() Pos
	pin     Pin
	of      *Node
	loss    string
	guarded bool
}

// built is the state that all builders of one graph share.
type built struct {
	g      *Graph
	names  *nameTable
	suffix map[string]int // by base name: the last suffix that was used
	sites  int64          // highest random site
	blocks supply[nodeBlock]
	values supply[Value] // of variables, and of nodes with several results
	err    error
}

// NewBuilder starts an empty graph whose nodes go to the forward section.
func NewBuilder(name string) *Builder { return Edit(&Graph{Name: name}) }

// Graph returns the graph being built.
func (b *Builder) Graph() *Graph { return b.g }

// Err returns the first mistake, nil when there was none.
func (b *Builder) Err() error { return b.err }

// Fail records a mistake at the current position, unless there was one before.
func (b *Builder) Fail(format string, args ...any) {
	if b.err == nil {
		b.err = &Error{Pos: b.position(), Msg: b.g.named(fmt.Sprintf(format, args...))}
	}
}

// needsSizes fails because dimensions of t have no sizes. The message says which op needs them.
func (b *Builder) needsSizes(t Type, format string, args ...any) {
	if b.err == nil {
		b.err = b.g.SizesError(b.position(), t, fmt.Sprintf(format, args...))
	}
}

func (b *Builder) position() Pos {
	if b.where != nil {
		return b.where()
	}
	return b.pos
}

// Locate makes the builder ask f for the source line of each call.
func (b *Builder) Locate(f func() Pos) { b.where = f }

// In returns a builder of the same graph for another section. All builders of
// a graph share its names and its first mistake.
func (b *Builder) In(s Section) *Builder { c := *b; c.section = s; return &c }

// Scope returns a builder whose names start with name and a dot.
func (b *Builder) Scope(name string) *Builder {
	c := *b
	c.scope = b.scope + name + "."
	return &c
}

// ScopeName returns the prefix that names get, "" at the top.
func (b *Builder) ScopeName() string { return b.scope }

// Named returns a builder whose next node's first result is called name.
func (b *Builder) Named(name string) *Builder { c := *b; c.next = name; return &c }

// Pinned returns a builder whose nodes carry a precision pin.
func (b *Builder) Pinned(p Pin) *Builder { c := *b; c.pin = p; return &c }

// Deriving returns a builder whose nodes come from forward node n: they take
// its position and pin, and belong to the sweep of loss.
func (b *Builder) Deriving(n *Node, loss string) *Builder {
	c := *b
	c.of, c.loss, c.where = n, loss, nil
	if n != nil {
		c.pos, c.pin = n.Pos, n.Pin
	}
	return &c
}

// Site returns a fresh random site number, unique in the graph.
func (b *Builder) Site() int64 {
	b.sites++
	return b.sites
}

// Declare adds a variable, named by the scope and then the given name.
func (b *Builder) Declare(kind VarKind, name string, t Type, init *Init, a Attrs) *Value {
	full := b.scope + name
	if b.allowed(full) {
		if err := CheckName(name); err != nil {
			b.Fail("%s: %v", kind, err)
		} else if err := CheckName(full); err != nil { // its scope
			b.Fail("%s: %v", kind, err)
		} else if old := b.names.get(full); old != nil {
			b.Fail("%s %s: the name is taken by %s", kind, quoteName(full), describe(old))
		} else if err := CheckDims(t.Shape.Dims()); err != nil {
			b.Fail("%s %s: %v", kind, quoteName(full), err)
		} else if err := checkInit(t, init); err != nil {
			b.Fail("%s %s: %v", kind, quoteName(full), err)
		}
	}
	if b.err != nil {
		return nil
	}
	v := &b.values.take(1, b.g)[0]
	*v = Value{Name: full, Type: t, Kind: kind, Init: init, Attr: a, Pos: b.position()}
	b.g.Vars = append(b.g.Vars, v)
	b.names.set(full, v)
	return v
}

func describe(v *Value) string {
	if v.IsVar() {
		return v.Kind.String() + " " + v.String()
	}
	return v.Def.Def().Name + " " + v.String()
}

// initArgs gives the number of arguments each initializer takes, -1 for one per element.
var initArgs = map[string]int{"": 1, "zeros": 0, "ones": 0, "normal": 2, "uniform": 2, "trunc_normal": 2, "data": -1, "kaiming": 1, "xavier": 2}

func checkInit(t Type, i *Init) error {
	if i == nil {
		return nil
	}
	if i.Func == "file" {
		if n := t.Bytes(); n >= 0 && n != i.Size {
			return fmt.Errorf("%s needs %d bytes, the file slice has %d", t, n, i.Size)
		}
		return nil
	}
	want, ok := initArgs[i.Func]
	if !ok {
		return fmt.Errorf("unknown initializer %q", i.Func)
	}
	if want < 0 {
		if n := t.Shape.Elements(); n != int64(len(i.Args)) {
			return fmt.Errorf("%s holds %d elements, data has %d", t, n, len(i.Args))
		}
		return nil
	}
	if want != len(i.Args) {
		return fmt.Errorf("initializer %s takes %d arguments, got %d", i.Func, want, len(i.Args))
	}
	if !i.draws() {
		return fmt.Errorf("initializer %s(%v) draws nothing finite", i.Func, i.Args)
	}
	return nil
}

// draws reports whether the arguments of an initializer give finite numbers. A literal may be any
// number.
func (i *Init) draws() bool {
	for _, x := range i.Args {
		if i.Func != "" && (math.IsNaN(x) || math.IsInf(x, 0)) {
			return false
		}
	}
	switch i.Func {
	case "normal", "trunc_normal":
		return i.Args[1] >= 0
	case "uniform":
		return i.Args[0] <= i.Args[1]
	case "kaiming":
		return i.Args[0] > 0
	case "xavier":
		return i.Args[0]+i.Args[1] > 0
	}
	return true
}

// nodeBlock is a node with its lists and its first result. They are one block of memory, because
// walks of the graph read them together.
type nodeBlock struct {
	node  Node
	in    [3]*Value
	out   [1]*Value
	first [1]Value
}

// results returns the list of a node's results, which are nil, and the memory of these. k is nil
// for a node that is in no block.
func (b *built) results(k *nodeBlock, count int) ([]*Value, []Value) {
	if k == nil || count != 1 {
		return make([]*Value, count), b.values.take(count, b.g)
	}
	return k.out[:], k.first[:]
}

// block returns a node that is not in a graph yet.
func (b *built) block(op Op, custom *Def, in []*Value, a Attrs) *nodeBlock {
	k := &b.blocks.take(1, b.g)[0]
	k.node = Node{Op: op, Custom: custom, Attrs: a}
	if len(in) > 0 {
		k.node.In = slices.Clip(append(k.in[:0], in...))
	}
	return k
}

// Emit appends a node; every op method calls it. It checks arity, operand kinds and attributes,
// infers the result types and names the results. It returns one value for each result, and nil
// values after a mistake.
func (b *Builder) Emit(op Op, in []*Value, a Attrs) []*Value {
	k := b.block(op, nil, in, a)
	return slices.Clone(b.emit(&k.node, k, nil)) // the caller may change the list
}

// one is Emit for the first result.
func (b *Builder) one(op Op, in []*Value, a Attrs) *Value {
	k := b.block(op, nil, in, a)
	return b.emit(&k.node, k, nil)[0]
}

// EmitCustom appends a node of a user's op.
func (b *Builder) EmitCustom(d *Def, in []*Value, a Attrs) []*Value {
	k := b.block(OpCustom, d, in, a)
	return slices.Clone(b.emit(&k.node, k, nil))
}

// EmitWrite appends a node whose first len(next) results are the next values
// of those variables (nil: an ordinary result).
func (b *Builder) EmitWrite(op Op, in []*Value, a Attrs, next ...*Value) []*Value {
	k := b.block(op, nil, in, a)
	return slices.Clone(b.emit(&k.node, k, next))
}

// EmitNode appends a prepared node: Op, In and Attrs, and optionally Captured, Of, Pin and Why. A
// foreign node has its result types in types.
func (b *Builder) EmitNode(n *Node, next []*Value, types ...Type) []*Value {
	if n.Op == OpForeign {
		n.Out = make([]*Value, len(types))
		for i, t := range types {
			n.Out[i] = &Value{Type: t}
		}
	}
	return slices.Clone(b.emit(n, nil, next))
}

// emit appends n, which is the node of block k unless that is nil.
func (b *Builder) emit(n *Node, k *nodeBlock, next []*Value) []*Value {
	none := func() []*Value { return make([]*Value, max(len(n.Def().Out), 1)) }
	if b.err != nil || !b.own(n.Def().Name, n.In...) || !b.own(n.Def().Name, n.Captured...) || !b.own(n.Def().Name, next...) {
		return none()
	}
	if b.guarded && !b.allowed(b.scope+b.next) {
		return none()
	}
	if n.Pos == (Pos{}) {
		n.Pos = b.position()
	}
	if n.Of == nil {
		n.Of = b.of
	}
	if n.Pin == Unpinned {
		n.Pin = b.pin
	}
	if b.loss != "" && !n.Has("loss") {
		n.Attrs = n.Attrs.With("loss", b.loss)
	}
	n.Attrs = n.Def().canon(n.Attrs)
	b.sites = max(b.sites, n.Attrs.site())
	err := n.checkArity(n.Def())
	var types []Type
	if err == nil {
		n.pad()
		types, err = n.check()
	}
	if err != nil {
		name := n.Def().Name
		if b.next != "" {
			name += fmt.Sprintf(" %q", b.next)
		}
		b.err = &Error{Pos: n.Pos, Msg: name + ": " + b.g.named(err.Error())}
		return none()
	}
	results, values := b.results(k, len(types))
	n.Out = results
	for i, t := range types {
		v := &values[i]
		*v = Value{Type: t, Def: n, Idx: i}
		if i < len(next) && next[i] != nil {
			b.setNext(v, next[i])
		} else {
			if v.Name = b.freshName(n, i); b.guarded && !b.allowed(v.Name) {
				return none()
			}
			b.names.set(v.Name, v)
			if err := CheckName(v.Name); err != nil {
				b.Fail("%s: %v", n.Def().Name, err)
			}
		}
		n.Out[i] = v
	}
	if b.err != nil {
		return none()
	}
	b.g.Body[b.section] = append(b.g.Body[b.section], n)
	return n.Out
}

func (b *Builder) setNext(v, variable *Value) {
	v.Name, v.Next = variable.Name, variable
	if v.Type != variable.Type {
		b.Fail("%s has type %s, which is not the type of %s", v, b.g.TypeString(v.Type), variable)
	}
	if old := b.names.setNext(variable, v); old != nil { // only the last write has the prime
		old.Next = nil
		old.Name = b.unique(variable.Name + ".w")
		b.names.set(old.Name, old)
	}
}

func (b *Builder) freshName(n *Node, i int) string {
	base := b.next
	if base == "" {
		base = n.Def().Name
	}
	base = b.scope + base
	if i > 0 {
		base += "." + n.Def().Out[min(i, len(n.Def().Out)-1)].Name
	}
	return b.unique(base)
}

// unique returns base, or base with the next free suffix _2, _3, ...
func (b *Builder) unique(base string) string {
	if b.names.get(base) == nil {
		return base
	}
	for k := max(b.suffix[base]+1, 2); ; k++ {
		name := base + "_" + strconv.Itoa(k)
		if b.names.get(name) == nil {
			b.suffix[base] = k
			return name
		}
	}
}

// Rename gives a value a name, with a suffix if the name is taken.
func (b *Builder) Rename(v *Value, name string) *Value {
	if b.err != nil || v == nil || v.Name == name || !b.own("rename", v) || !b.allowed(name) {
		return v
	}
	if err := CheckName(name); err != nil {
		b.Fail("%v", err)
		return v
	}
	var next *Value
	if v.IsVar() {
		next = b.names.next(v)
	}
	if b.names.get(v.Name) == v {
		b.names.set(v.Name, nil)
	}
	v.Name = b.unique(name)
	b.names.set(v.Name, v)
	if next != nil {
		b.names.setNext(v, next)
	}
	return v
}

// Lookup finds a value by its full name.
func (b *Builder) Lookup(name string) *Value { return b.names.get(name) }

// Return appends values to the results of the graph.
func (b *Builder) Return(v ...*Value) {
	for _, x := range v {
		if x != nil && b.own("return", x) {
			b.g.Return = append(b.g.Return, x)
		}
	}
}

// canon drops attributes that have their default value, and converts integer literals to floats
// where the row takes floats.
func (d *Def) canon(a Attrs) Attrs {
	for _, x := range a {
		def := d.attrDef(x.Name)
		if def == nil {
			continue
		}
		switch v := x.Value.(type) {
		case int64:
			if def.Kind == AttrFloat {
				x.Value = float64(v)
				a = a.With(x.Name, x.Value)
			}
		case []int64:
			if def.Kind == AttrFloats {
				w := make([]float64, len(v))
				for i, e := range v {
					w[i] = float64(e)
				}
				x.Value = w
				a = a.With(x.Name, w)
			}
		case bool:
			if !v && def.Default == nil {
				a = a.Without(x.Name)
			}
		}
		if def.Default != nil && attrEqual(normAttr(def.Default), x.Value) {
			a = a.Without(x.Name)
		}
	}
	return a
}

// check verifies arity, operands and attributes and infers the result types.
func (n *Node) check() ([]Type, error) {
	d := n.Def()
	if err := n.checkOperands(d); err != nil {
		return nil, err
	}
	if err := n.checkAttrs(d); err != nil {
		return nil, err
	}
	types, err := d.Infer(n)
	if err != nil {
		return nil, err
	}
	for i, t := range types {
		if err := t.Shape.check(); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
	}
	if n.Op == OpCustom {
		return n.storedByCustom(types), nil
	}
	return types, nil
}

// pad extends In by nil to one entry for each operand, if the row is not variadic: rows index their
// operands, and the text omits absent ones.
func (n *Node) pad() {
	d := n.Def()
	if _, most := d.arity(); most > len(n.In) && n.Op != OpForeign {
		n.In = append(n.In[:len(n.In):len(n.In)], make([]*Value, most-len(n.In))...)
	}
}

func (n *Node) checkArity(d *Def) error {
	least, most := d.arity()
	if n.Op != OpForeign && (len(n.In) < least || most >= 0 && len(n.In) > most) {
		return fmt.Errorf("takes %s, got %d", arityWords(d, least, most), len(n.In))
	}
	return nil
}

func (n *Node) checkOperands(d *Def) error {
	if n.Op == OpForeign {
		return nil
	}
	if err := n.checkArity(d); err != nil {
		return err
	}
	for i, v := range n.In {
		o := n.OperandDef(i)
		if v == nil {
			if !o.Optional {
				return fmt.Errorf("operand %s is missing", o.Name)
			}
			continue
		}
		kinds := o.Kinds
		if kinds == 0 {
			kinds = KFloat
		}
		if !kinds.accepts(v.Type.DType) {
			return fmt.Errorf("operand %s is %s %s, want %s", o.Name, v, v.Type, kinds)
		}
	}
	return nil
}

func (k Kinds) String() string {
	var s []string
	for i, name := range []string{"a float", "an integer", "bool"} {
		if k&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	return strings.Join(s, " or ")
}

// arity returns the least and the largest number of operands. most is -1 for variadic rows.
func (d *Def) arity() (least, most int) {
	for i, o := range d.In {
		if o.Variadic {
			if !o.Optional {
				least = i + 1
			}
			return least, -1
		}
		if !o.Optional {
			least = i + 1
		}
	}
	return least, len(d.In)
}

func arityWords(d *Def, least, most int) string {
	names := make([]string, len(d.In))
	for i, o := range d.In {
		names[i] = o.Name
	}
	list := " (" + strings.Join(names, ", ") + ")"
	switch {
	case most < 0:
		return fmt.Sprintf("at least %d operands%s", least, list)
	case least == most:
		return fmt.Sprintf("%d operands%s", most, list)
	}
	return fmt.Sprintf("%d to %d operands%s", least, most, list)
}

func (n *Node) checkAttrs(d *Def) error {
	if n.Op == OpForeign {
		return nil
	}
	for _, a := range n.Attrs {
		def := d.attrDef(a.Name)
		if def == nil {
			return fmt.Errorf("has no attribute %s", a.Name)
		}
		if !def.Kind.accepts(a.Value) {
			return fmt.Errorf("attribute %s is %s, want %s", a.Name, literal(a.Value), attrKindNames[def.Kind])
		}
		if x, ok := a.Value.(float64); ok && !def.Takes.Holds(x) {
			return fmt.Errorf("attribute %s is %g, want %s", a.Name, x, def.Takes)
		}
	}
	for i := range d.Attrs {
		if d.Attrs[i].Required && !n.Has(d.Attrs[i].Name) {
			return fmt.Errorf("attribute %s is missing", d.Attrs[i].Name)
		}
	}
	return nil
}

// Retype infers n's result types again after a pass changed operands or
// attributes. Next values must keep their variables' types.
func (n *Node) Retype() error {
	types, err := n.check()
	if err != nil {
		return nodeError(n, err)
	}
	for i, v := range n.Out {
		if v.Next != nil && types[i] != v.Next.Type {
			return &Error{Pos: n.Pos, Msg: fmt.Sprintf("%s has type %s, which is not the type of %s", v, types[i], v.Next)}
		}
		v.Type = types[i]
	}
	return nil
}
