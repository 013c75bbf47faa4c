//go:build linux && amd64 && !nocuda

package cuda

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compileC builds a shared library from source, or skips where there is no C compiler.
func compileC(t *testing.T, name, source string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to build the recording library")
	}
	dir := t.TempDir()
	c, so := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
	if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-o", so, c).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return so
}

const recorderHead = `#include <stdint.h>
#include <stddef.h>
#include <string.h>
typedef int CUresult, CUdevice, status;
typedef const char *string;
typedef unsigned long long CUdeviceptr;
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct o *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUgraph, *CUgraphExec, *CUgraphNode, *handle;
static uint64_t rec[40];
static char last[64];
uint64_t *recorded(void) { return rec; }
const char *called(void) { return last; }
`

// prototype is one line of prototypes.h.
type prototype struct {
	name, ret string
	types     []string
}

func prototypes(t *testing.T) (text []string, list []prototype) {
	t.Helper()
	b, err := os.ReadFile("testdata/prototypes.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		head, params, ok := strings.Cut(strings.TrimSuffix(line, ")"), "(")
		if !ok || strings.HasPrefix(line, "/*") {
			continue
		}
		ret, name, _ := strings.Cut(head, " ")
		p := prototype{name: name, ret: ret}
		var names []string
		if params != "void" {
			for _, prm := range strings.Split(params, ", ") {
				i := strings.LastIndexAny(prm, " *")
				p.types = append(p.types, prm[:i+1])
				names = append(names, prm[i+1:])
			}
		}
		list = append(list, p)
		text = append(text, recordingBody(line, p, names))
	}
	return text, list
}

// recordingBody is a C function that stores its arguments, converted by C's own rules.
func recordingBody(line string, p prototype, names []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s {\n\tstrcpy(last, %q);\n", line, p.name)
	at := 0
	for i, n := range names {
		if strings.TrimSpace(p.types[i]) == structID {
			fmt.Fprintf(&b, "\tmemcpy(rec + %d, &%s, 128);\n", at, n)
			at += 16
			continue
		}
		if strings.Contains(p.types[i], "*") || cLetter(p.types[i]) == 'p' {
			n = "(uintptr_t)" + n
		}
		fmt.Fprintf(&b, "\trec[%d] = (uint64_t)(int64_t)%s;\n", at, n)
		at++
	}
	switch p.ret {
	case "void":
	case "string":
		b.WriteString("\treturn \"text\";\n")
	case "size_t":
		b.WriteString("\treturn 0x1122334455667788;\n")
	default:
		b.WriteString("\treturn -77;\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// handles are the C types, beside those that end in a star, that travel as a pointer.
var handles = map[string]bool{"string": true, "handle": true, "CUcontext": true, "CUmodule": true, "CUfunction": true, "CUstream": true, "CUevent": true,
	"CUgraph": true, "CUgraphExec": true, "CUgraphNode": true, "void": true}

// structID is the C type that travels by value.
const structID = "ncclUniqueId"

// cLetter is the table's letter for a C type, '?' for one that a call by words cannot pass: a float or
// a struct by value go in registers of their own.
func cLetter(typ string) byte {
	typ = strings.TrimSpace(typ)
	switch {
	case strings.HasSuffix(typ, "*"):
		return 'p'
	case typ == "unsigned int":
		return 'u'
	case typ == "unsigned char":
		return 'c'
	case typ == structID:
		return 'D'
	case typ == "CUdeviceptr":
		return 'd'
	case typ == "int" || typ == "CUresult" || typ == "CUdevice" || typ == "status":
		return 'i'
	case typ == "size_t" || strings.HasPrefix(typ, "uint64") || strings.HasPrefix(typ, "int64") || typ == "unsigned long long":
		return 'l'
	}
	if !handles[typ] {
		return '?'
	}
	return 'p'
}

func libraryOf(name string) string {
	for prefix, lib := range map[string]string{"cublasLt": libBlas, "cudnn": libDNN, "nccl": libNCCL, "nvrtc": libRTC} {
		if strings.HasPrefix(name, prefix) {
			return lib
		}
	}
	return libDriver
}

// TestTableMatchesPrototypes compares the table's spelling with the C declarations.
func TestTableMatchesPrototypes(t *testing.T) {
	_, list := prototypes(t)
	want := map[string]string{}
	for _, p := range list {
		var args []byte
		for _, typ := range p.types {
			args = append(args, cLetter(typ))
		}
		want[p.name] = string(args)
	}
	for _, s := range symbols {
		proto, ok := want[s.name]
		if !ok {
			t.Errorf("%s has no prototype", s.name)
		} else if proto != s.args {
			t.Errorf("%s: table says %q, the prototype %q", s.name, s.args, proto)
		}
		if strings.Contains(proto, "?") {
			t.Errorf("%s takes something by value that is neither a number, a pointer nor an id: bind it by its signature", s.name)
		}
		if s.lib != libraryOf(s.name) {
			t.Errorf("%s is listed under %s", s.name, s.lib)
		}
		delete(want, s.name)
	}
	for name := range want {
		t.Errorf("%s is in no row of the table", name)
	}
}

// TestSentinelsArrive calls every function through the real binding and compares what C received:
// order, width and sign of each argument.
func TestSentinelsArrive(t *testing.T) {
	text, list := prototypes(t)
	so := compileC(t, "recorder", recorderHead+strings.Join(text, ""))
	libs := map[string]*library{}
	for _, name := range []string{libDriver, libBlas, libDNN, libNCCL, libRTC} {
		libs[name] = openLibrary(name, []string{so})
		if !libs[name].loaded() {
			t.Fatalf("%s: %v", name, libs[name].tried)
		}
	}
	recorded, called := recorderSymbols(t, so)
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range list {
		args, want := make([]uintptr, len(p.types)), make([]uint64, 0, len(p.types))
		var id NcclID
		by := -1 // the argument that is the struct
		for i, typ := range p.types {
			v := r.Uint64()
			args[i] = uintptr(v)
			switch cLetter(typ) {
			case 'i':
				v = uint64(int64(int32(v)))
			case 'u':
				v = uint64(uint32(v))
			case 'c':
				v = uint64(uint8(v))
			case 'D':
				by = i
				for w := range len(id) / 8 {
					v = r.Uint64()
					binary.LittleEndian.PutUint64(id[8*w:], v)
					want = append(want, v)
				}
				continue
			}
			want = append(want, v)
		}
		lib := libs[libraryOf(p.name)]
		var got uintptr
		if by < 0 {
			got = lib.call(p.name, args...)
		} else {
			got = lib.callWithID(p.name, args[:by], &id, args[by+1:])
		}
		if name := cString(called()); name != p.name {
			t.Fatalf("called %s, C saw %s", p.name, name)
		}
		for i, v := range wordsAt(recorded(), len(want)) {
			if v != want[i] {
				t.Errorf("%s word %d: C received %#x, want %#x", p.name, i+1, v, want[i])
			}
		}
		if p.ret == "size_t" && got != 0x1122334455667788 || cLetter(p.ret) == 'i' && int32(got) != -77 {
			t.Errorf("%s returned %#x", p.name, got)
		}
	}
}
