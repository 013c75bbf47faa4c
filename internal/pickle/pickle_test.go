package pickle

import (
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func config() Config {
	return Config{
		Globals: map[string]any{"collections.OrderedDict": OrderedDict, "torch.FloatStorage": "f32"},
		Persistent: func(id any) (any, error) {
			t, ok := id.(Tuple)
			if !ok || len(t) == 0 {
				return nil, errors.New("no tuple")
			}
			return t[0], nil
		},
	}
}

// The pickles are what CPython 3 writes for the values in the comments.
func TestPlainData(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     any
	}{
		{"protocol 2: (1, -2, 300, 70000, 2**40)", "\x80\x02(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01tq\x00.",
			Tuple{int64(1), int64(-2), int64(300), int64(70000), int64(1) << 40}},
		{"-2**40", "\x80\x02\x8a\x06\x00\x00\x00\x00\x00\xff.", -(int64(1) << 40)},
		{"[None, True, False, 1.5]", "\x80\x02]q\x00(N\x88\x89G?\xf8\x00\x00\x00\x00\x00\x00e.", &List{[]any{nil, true, false, 1.5}}},
		{"protocol 4: ['a', b'b']", "\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x01a\x94C\x01b\x94e.", &List{[]any{"a", []byte("b")}}},
		{"shared: x = [1]; (x, x)", "\x80\x02]q\x00K\x01ah\x00\x86q\x01.", Tuple{&List{[]any{int64(1)}}, &List{[]any{int64(1)}}}},
	} {
		got, err := Load([]byte(c.in), config())
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v (%v), want %v", c.name, got, err, c.want)
		}
	}
}

func TestOrderedDict(t *testing.T) {
	// OrderedDict([('a', 1), ('b', 2)]) with an attribute _metadata, as a state_dict has one.
	v, err := Load([]byte("\x80\x02ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00bK\x02u}X\x09\x00\x00\x00_metadataNsb."), config())
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*Dict)
	if !reflect.DeepEqual(d.Keys, []any{"a", "b"}) || !reflect.DeepEqual(d.Values, []any{int64(1), int64(2)}) {
		t.Errorf("keys %v, values %v", d.Keys, d.Values)
	}
}

// Everything that could run code, and everything else that is not listed, is
// refused by its name.
func TestRefused(t *testing.T) {
	for in, want := range map[string]string{
		"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.":    `"os.system"`,
		"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00ls\x85R.": `"posix.system"`,
		"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.":         `"builtins.eval"`,
		"\x80\x02c__builtin__\ngetattr\n.":                  `"__builtin__.getattr"`,
		"\x80\x02ctorch\n_utils._rebuild_tensor_v2\n.":      `"torch._utils._rebuild_tensor_v2"`, // not among those of this test
		"(S'ls'\nios\nsystem\n.":                            "opcode STRING",
		"(X\x02\x00\x00\x00lsios\nsystem\n.":                "opcode INST",
		"\x80\x02]]b.":                                      "attributes of a list",
		"\x80\x02ctorch\nFloatStorage\n)R.":                 "a str is called",
		"\x80\x02K\x012.":                                   "opcode DUP",
		"\x80\x02\x82\x01.":                                 "opcode EXT1",
		"\x80\x02X\xff\xff\xff\xffab.":                      "ends early",
		"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.":   "ends early",
		"\x80\x02":          "ends early",
		"\x80\x06N.":        "protocol 6",
		"\x80\x02.":         "the stack is empty",
		"\x80\x02(.":        "a mark stands",
		"\x80\x02Nt.":       "no mark",
		"\x80\x02h\x05.":    "nothing was kept at 5",
		"\x80\x02}]K\x01s.": "a list is the key",
		"\x80\x02NK\x01a.":  "a None is appended to",
		"\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.": "a number of 9 bytes",
		"\x80\x02\xee.": "0xee is no opcode",
	} {
		if v, err := Load([]byte(in), config()); err == nil {
			t.Errorf("%q: read as %v", in, v)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

// A list that is given to OrderedDict again and again does not grow without bound.
func TestMemoryIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("\x80\x02]q\x00(")
	for range 1000 {
		b.WriteString("NN\x86")
	}
	b.WriteString("e")
	for range 20_000 {
		b.WriteString("ccollections\nOrderedDict\nh\x00\x85R0")
	}
	b.WriteString("h\x00.")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Load([]byte(b.String()), config())
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "are copied") {
		t.Errorf("error %v", err)
	}
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 400*uint64(b.Len()) {
		t.Errorf("a pickle of %d bytes allocates %d", b.Len(), grew)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("\x80\x02ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00bK\x02u}X\x09\x00\x00\x00_metadataNsb."))
	f.Add([]byte("\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000K\x04tQ."))
	f.Add([]byte("\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x01a\x94C\x01b\x94e."))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Load(b, config())
		runtime.ReadMemStats(&after)
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 64<<10+1000*uint64(len(b)) {
			t.Errorf("%d bytes allocate %d", len(b), grew)
		}
	})
}
