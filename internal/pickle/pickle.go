// Package pickle reads Python pickles of plain data: dicts, lists, tuples, strings
// and numbers, and what the caller makes of the globals that it allows.
//
// It runs nothing. A pickle is a program for a small stack machine; the opcodes
// that build plain data are listed here, the globals by the caller, and everything
// else is refused by its name. The opcodes are those of Lib/pickletools.py of
// CPython. Memory is bounded by the length of the pickle: every opcode adds at most
// one element, and strings are copied once.
package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Tuple is a Python tuple. The other values are nil, bool, int64, float64, string,
// []byte, *List, *Dict, Func, and what a Func or Config.Persistent returns.
type Tuple []any

// List is a Python list.
type List struct{ Items []any }

// Func is a global that may be called.
type Func struct {
	Name string
	Call func(args Tuple) (any, error)
}

// Dict is a Python dict or OrderedDict: values by keys, in the order of insertion.
type Dict struct {
	Keys   []any // string, int64, float64, bool or nil
	Values []any
	at     map[any]int
}

// Set adds a key or changes its value.
func (d *Dict) Set(key, value any) error {
	switch key.(type) {
	case string, int64, float64, bool, nil:
	default:
		return fmt.Errorf("a %s is the key of a dict, want a string or a number", kind(key))
	}
	if i, ok := d.at[key]; ok {
		d.Values[i] = value
		return nil
	}
	if d.at == nil {
		d.at = map[any]int{}
	}
	d.at[key] = len(d.Keys)
	d.Keys, d.Values = append(d.Keys, key), append(d.Values, value)
	return nil
}

// Config says what a pickle may name.
type Config struct {
	// Globals are the classes and functions that may be named, as "module.name":
	// a Func, or any other value.
	Globals map[string]any
	// Persistent makes a value of a persistent id; nil: there are none.
	Persistent func(id any) (any, error)
}

// Load reads the pickle at the start of b. An error is one line with the byte at
// which it stands.
func Load(b []byte, c Config) (any, error) {
	m := &machine{Config: c, b: b, memo: map[uint32]any{}}
	v, err := m.run()
	if err != nil {
		return nil, fmt.Errorf("pickle, byte %d: %w", m.op, err)
	}
	return v, nil
}

// mark stands on the stack where MARK was.
type mark struct{}

type machine struct {
	Config
	b     []byte
	at    int // next byte
	op    int // of the opcode
	stack []any
	memo  map[uint32]any
	given int // elements of lists that were given to functions
}

func (m *machine) run() (any, error) {
	for {
		m.op = m.at
		code, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if code[0] == '.' {
			return m.pop()
		}
		do, ok := opcodes[code[0]]
		if !ok {
			return nil, refused(code[0])
		}
		if err := do(m); err != nil {
			return nil, err
		}
	}
}

// opcodes are those that are run; STOP is in run.
var opcodes = map[byte]func(m *machine) error{
	0x80: func(m *machine) error { // PROTO
		v, err := m.take(1)
		if err == nil && v[0] > 5 {
			err = fmt.Errorf("protocol %d is not known, want 0 to 5", v[0])
		}
		return err
	},
	0x95: func(m *machine) error { _, err := m.take(8); return err }, // FRAME
	'(':  func(m *machine) error { return m.push(mark{}) },           // MARK
	'0':  func(m *machine) error { _, err := m.pop(); return err },   // POP
	'1':  func(m *machine) error { _, err := m.toMark(); return err },
	'N':  func(m *machine) error { return m.push(nil) },
	0x88: func(m *machine) error { return m.push(true) },
	0x89: func(m *machine) error { return m.push(false) },
	'K':  func(m *machine) error { return m.number(1, func(x uint64) any { return int64(x) }) },        // BININT1
	'M':  func(m *machine) error { return m.number(2, func(x uint64) any { return int64(x) }) },        // BININT2
	'J':  func(m *machine) error { return m.number(4, func(x uint64) any { return int64(int32(x)) }) }, // BININT
	0x8a: (*machine).long,
	'G': func(m *machine) error { // BINFLOAT
		b, err := m.take(8)
		if err != nil {
			return err
		}
		return m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	},
	0x8c: func(m *machine) error { return m.text(1) },            // SHORT_BINUNICODE
	'X':  func(m *machine) error { return m.text(4) },            // BINUNICODE
	0x8d: func(m *machine) error { return m.text(8) },            // BINUNICODE8
	'U':  func(m *machine) error { return m.text(1) },            // SHORT_BINSTRING, of Python 2
	'T':  func(m *machine) error { return m.text(4) },            // BINSTRING, of Python 2
	'C':  func(m *machine) error { return m.bytes(1) },           // SHORT_BINBYTES
	'B':  func(m *machine) error { return m.bytes(4) },           // BINBYTES
	'}':  func(m *machine) error { return m.push(&Dict{}) },      // EMPTY_DICT
	']':  func(m *machine) error { return m.push(&List{}) },      // EMPTY_LIST
	')':  func(m *machine) error { return m.push(Tuple(nil)) },   // EMPTY_TUPLE
	0x85: func(m *machine) error { return m.tuple(1) },           // TUPLE1
	0x86: func(m *machine) error { return m.tuple(2) },           // TUPLE2
	0x87: func(m *machine) error { return m.tuple(3) },           // TUPLE3
	't':  (*machine).tupleToMark,                                 // TUPLE
	'a':  func(m *machine) error { return m.appends(m.pop1) },    // APPEND
	'e':  func(m *machine) error { return m.appends(m.toMark) },  // APPENDS
	's':  func(m *machine) error { return m.setItems(m.pop2) },   // SETITEM
	'u':  func(m *machine) error { return m.setItems(m.toMark) }, // SETITEMS
	'q':  func(m *machine) error { return m.put(1) },             // BINPUT
	'r':  func(m *machine) error { return m.put(4) },             // LONG_BINPUT
	0x94: func(m *machine) error { return m.keep(uint32(len(m.memo))) },
	'h':  func(m *machine) error { return m.get(1) }, // BINGET
	'j':  func(m *machine) error { return m.get(4) }, // LONG_BINGET
	'c':  (*machine).global,
	0x93: (*machine).stackGlobal,
	'R':  (*machine).reduce,
	0x81: (*machine).reduce, // NEWOBJ calls the class, as REDUCE does
	'b':  (*machine).build,
	'Q':  (*machine).persistent,
}

// others are the opcodes that are refused, by the names of pickletools.
var others = map[byte]string{
	'I': "INT", 'L': "LONG", 0x8b: "LONG4", 'S': "STRING", 0x8e: "BINBYTES8", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER",
	0x98: "READONLY_BUFFER", 'V': "UNICODE", 'F': "FLOAT", 'l': "LIST", 0x8f: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET",
	'd': "DICT", '2': "DUP", 'g': "GET", 'p': "PUT", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 'i': "INST", 'o': "OBJ",
	0x92: "NEWOBJ_EX", 'P': "PERSID",
}

func refused(code byte) error {
	if name, ok := others[code]; ok {
		return fmt.Errorf("opcode %s is not one that plain data needs", name)
	}
	return fmt.Errorf("0x%02x is no opcode", code)
}

var errEarly = errors.New("the pickle ends early")

func (m *machine) take(n uint64) ([]byte, error) {
	if n > uint64(len(m.b)-m.at) {
		return nil, errEarly
	}
	b := m.b[m.at : m.at+int(n)]
	m.at += int(n)
	return b, nil
}

func (m *machine) unsigned(size uint64) (x uint64, err error) {
	b, err := m.take(size)
	for i, c := range b {
		x |= uint64(c) << (8 * i)
	}
	return x, err
}

func (m *machine) number(size uint64, as func(uint64) any) error {
	x, err := m.unsigned(size)
	if err != nil {
		return err
	}
	return m.push(as(x))
}

// long is LONG1: a two's complement number of up to 255 bytes, here of 8.
func (m *machine) long() error {
	n, err := m.unsigned(1)
	if err != nil {
		return err
	}
	b, err := m.take(n)
	if err != nil {
		return err
	}
	if n > 8 {
		return fmt.Errorf("a number of %d bytes, want 8 at most", n)
	}
	x := int64(0)
	for i, c := range b {
		x |= int64(c) << (8 * i)
	}
	if n > 0 && n < 8 && b[n-1]&0x80 != 0 {
		x -= 1 << (8 * n)
	}
	return m.push(x)
}

func (m *machine) counted(size uint64) ([]byte, error) {
	n, err := m.unsigned(size)
	if err != nil {
		return nil, err
	}
	return m.take(n)
}

func (m *machine) text(size uint64) error {
	b, err := m.counted(size)
	if err != nil {
		return err
	}
	return m.push(string(b))
}

func (m *machine) bytes(size uint64) error {
	b, err := m.counted(size)
	if err != nil {
		return err
	}
	return m.push(slices.Clone(b))
}

func (m *machine) push(v any) error {
	m.stack = append(m.stack, v)
	return nil
}

// last are the n values on top of the stack, which stay there. They are valid until the next push.
func (m *machine) last(n int) ([]any, error) {
	if len(m.stack) < n {
		return nil, errors.New("the stack is empty")
	}
	top := m.stack[len(m.stack)-n:]
	if slices.ContainsFunc(top, isMark) {
		return nil, errors.New("a mark stands where a value is wanted")
	}
	return top, nil
}

func (m *machine) top() (any, error) {
	v, err := m.last(1)
	if err != nil {
		return nil, err
	}
	return v[0], nil
}

func (m *machine) pop() (any, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

func (m *machine) popN(n int) ([]any, error) {
	v, err := m.last(n)
	if err != nil {
		return nil, err
	}
	m.stack = m.stack[:len(m.stack)-n]
	return slices.Clone(v), nil
}

func isMark(v any) bool {
	_, is := v.(mark)
	return is
}

func (m *machine) pop1() ([]any, error) { return m.popN(1) }
func (m *machine) pop2() ([]any, error) { return m.popN(2) }

// toMark pops what lies above the last mark, and the mark.
func (m *machine) toMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if isMark(m.stack[i]) {
			out := slices.Clone(m.stack[i+1:])
			m.stack = m.stack[:i]
			return out, nil
		}
	}
	return nil, errors.New("there is no mark")
}

func (m *machine) tuple(n int) error {
	v, err := m.popN(n)
	if err != nil {
		return err
	}
	return m.push(Tuple(v))
}

func (m *machine) tupleToMark() error {
	v, err := m.toMark()
	if err != nil {
		return err
	}
	return m.push(Tuple(v))
}

func (m *machine) appends(items func() ([]any, error)) error {
	v, err := items()
	if err != nil {
		return err
	}
	top, err := m.top()
	if err != nil {
		return err
	}
	l, ok := top.(*List)
	if !ok {
		return fmt.Errorf("a %s is appended to, want a list", kind(top))
	}
	l.Items = append(l.Items, v...)
	return nil
}

func (m *machine) setItems(items func() ([]any, error)) error {
	v, err := items()
	if err != nil {
		return err
	}
	top, err := m.top()
	if err != nil {
		return err
	}
	d, ok := top.(*Dict)
	if !ok || len(v)%2 != 0 {
		return fmt.Errorf("%d keys and values for a %s, want pairs for a dict", len(v), kind(top))
	}
	for i := 0; i < len(v); i += 2 {
		if err := d.Set(v[i], v[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) put(size uint64) error {
	i, err := m.unsigned(size)
	if err != nil {
		return err
	}
	return m.keep(uint32(i))
}

func (m *machine) keep(i uint32) error {
	v, err := m.top()
	m.memo[i] = v
	return err
}

func (m *machine) get(size uint64) error {
	i, err := m.unsigned(size)
	if err != nil {
		return err
	}
	v, ok := m.memo[uint32(i)]
	if !ok {
		return fmt.Errorf("nothing was kept at %d", i)
	}
	return m.push(v)
}

func (m *machine) line() (string, error) {
	i := bytes.IndexByte(m.b[m.at:], '\n')
	if i < 0 {
		return "", errEarly
	}
	b, err := m.take(uint64(i + 1))
	return strings.TrimSuffix(string(b[:i]), "\r"), err
}

// global is GLOBAL: two lines with module and name.
func (m *machine) global() error {
	module, err := m.line()
	if err != nil {
		return err
	}
	name, err := m.line()
	if err != nil {
		return err
	}
	return m.find(module, name)
}

func (m *machine) stackGlobal() error {
	v, err := m.popN(2)
	if err != nil {
		return err
	}
	module, ok := v[0].(string)
	name, named := v[1].(string)
	if !ok || !named {
		return fmt.Errorf("a global is named by a %s and a %s, want strings", kind(v[0]), kind(v[1]))
	}
	return m.find(module, name)
}

func (m *machine) find(module, name string) error {
	full := module + "." + name
	v, ok := m.Globals[full]
	if !ok {
		return &GlobalError{full}
	}
	return m.push(v)
}

// GlobalError is the error of a pickle that names a global which is not allowed.
type GlobalError struct{ Name string }

func (e *GlobalError) Error() string {
	return fmt.Sprintf("it names %s, which is not read: a pickle may run what it names", strconv.Quote(e.Name))
}

// reduce is REDUCE: a call of a global with a tuple.
func (m *machine) reduce() error {
	v, err := m.popN(2)
	if err != nil {
		return err
	}
	f, ok := v[0].(Func)
	args, tuple := v[1].(Tuple)
	if !ok || !tuple {
		return fmt.Errorf("a %s is called with a %s, want a function with a tuple", kind(v[0]), kind(v[1]))
	}
	for _, a := range args { // a list that many calls copy would outgrow the pickle
		if l, ok := a.(*List); ok {
			m.given += len(l.Items)
		}
	}
	if m.given > len(m.b) {
		return fmt.Errorf("%s: lists of %d elements are copied, more than a pickle of %d bytes holds", f.Name, m.given, len(m.b))
	}
	out, err := f.Call(args)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return m.push(out)
}

// build is BUILD: attributes for the object below. Those of an OrderedDict, such as
// the versions in PyTorch's _metadata, are left out; nothing else has any.
func (m *machine) build() error {
	if _, err := m.pop(); err != nil {
		return err
	}
	top, err := m.top()
	if err != nil {
		return err
	}
	if _, ok := top.(*Dict); !ok {
		return fmt.Errorf("attributes of a %s, want a dict's", kind(top))
	}
	return nil
}

func (m *machine) persistent() error {
	id, err := m.pop()
	if err != nil {
		return err
	}
	if m.Persistent == nil {
		return errors.New("it names data outside of the pickle")
	}
	v, err := m.Persistent(id)
	if err != nil {
		return err
	}
	return m.push(v)
}

// kind is how messages call a value's type.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case Tuple:
		return "tuple"
	case *List:
		return "list"
	case *Dict:
		return "dict"
	case Func:
		return "function " + v.Name
	}
	return strings.TrimLeft(fmt.Sprintf("%T", v), "*")
}

// OrderedDict is the global collections.OrderedDict: empty, or of a list of pairs.
var OrderedDict = Func{"collections.OrderedDict", func(args Tuple) (any, error) {
	d := &Dict{}
	if len(args) == 0 {
		return d, nil
	}
	l, ok := args[0].(*List)
	if !ok || len(args) > 1 {
		return nil, fmt.Errorf("%d arguments, the first a %s: want none or a list of pairs", len(args), kind(args[0]))
	}
	for _, item := range l.Items {
		pair, err := pairOf(item)
		if err != nil {
			return nil, err
		}
		if err := d.Set(pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return d, nil
}}

func pairOf(v any) ([]any, error) {
	var pair []any
	switch v := v.(type) {
	case *List:
		pair = v.Items
	case Tuple:
		pair = v
	}
	if len(pair) != 2 {
		return nil, fmt.Errorf("a %s, want a pair", kind(v))
	}
	return pair, nil
}
