package ptx

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// ptxas finds NVIDIA's assembler: $AMPC_PTXAS or the PATH.
func ptxas(t *testing.T) string {
	t.Helper()
	path := os.Getenv("AMPC_PTXAS")
	if path == "" {
		path, _ = exec.LookPath("ptxas")
	}
	if path == "" {
		t.Skip("no ptxas in PATH and AMPC_PTXAS is not set")
	}
	return path
}

// assemble runs ptxas on text and returns its report.
func assemble(t *testing.T, ptxas, text string, sm int) (report string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "k.ptx")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(ptxas, "-v", fmt.Sprintf("-arch=sm_%d", sm), "-o", filepath.Join(filepath.Dir(file), "k.cubin"), file).CombinedOutput()
	return string(out), err
}

// sampleArgs makes operands that fit an instruction's slots.
func sampleArgs(b *builder, op *Op, sh Reg, base Reg, l label) []Arg {
	fresh := func(typ string) Reg {
		r := b.reg(typeInfo[typ].class)
		switch r.Class {
		case Pred:
			b.To(r, "setp.eq.u32", b.Do("mov.u32", I(1)), I(0))
		case F32:
			b.To(r, "mov.f32", Fl(1))
		case F64:
			b.To(r, "mov.f64", Db(1))
		default:
			b.To(r, "mov."+r.Class.String(), I(1))
		}
		return r
	}
	var args []Arg
	for i, s := range op.Slots {
		switch {
		case s.Role == Mem && op.Mode == "shared":
			args = append(args, Addr{Base: sh})
		case s.Role == Mem:
			args = append(args, Addr{Base: base})
		case s.Role == ParamMem:
			args = append(args, Addr{Sym: "in"})
		case s.Role == Target:
			args = append(args, l)
		case s.Role == Const:
			args = append(args, I(0))
		case s.Vec > 0:
			var v Vec
			for range s.Vec {
				v = append(v, fresh(s.Type))
			}
			args = append(args, v)
		case op.warpWide() && s.Role == Src && i == len(op.Slots)-1:
			args = append(args, I(0xffffffff))
		default:
			args = append(args, fresh(s.Type))
		}
	}
	return args
}

// TestEveryInstructionAssembles checks the spelling of the whole table against ptxas.
func TestEveryInstructionAssembles(t *testing.T) {
	bin := ptxas(t)
	fl := SM90
	var names []string
	for name := range ops {
		names = append(names, name)
	}
	sort.Strings(names)
	m := &Module{Flavour: fl}
	for i, name := range names {
		op := ops[name]
		b := newBuilder(fl, fmt.Sprintf("k%d", i), 32)
		base := b.param("in")
		sh := b.shared("sh", 16, 64)
		l := b.newLabel()
		b.emit(op.spelling(), sampleArgs(b, op, sh, base, l))
		b.place(l)
		k, err := b.kernel()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m.Kernels = append(m.Kernels, k)
	}
	if out, err := assemble(t, bin, m.Text(), 90); err != nil {
		t.Errorf("ptxas: %v\n%s", err, firstLines(out, 40))
	}
}

// TestMinimumTargets checks the table's version and target columns: text of the lowest flavour
// that has an instruction assembles.
func TestMinimumTargets(t *testing.T) {
	bin := ptxas(t)
	byMin := map[Flavour][]*Op{}
	for _, op := range ops {
		fl := op.Min
		if fl == base || fl == since.half {
			fl = Flavour{60, 53}
		}
		byMin[fl] = append(byMin[fl], op)
	}
	for fl, list := range byMin {
		m := &Module{Flavour: fl}
		for i, op := range list {
			b := newBuilder(fl, fmt.Sprintf("k%d", i), 32)
			base, sh, l := b.param("in"), b.shared("sh", 16, 64), b.newLabel()
			b.emit(op.spelling(), sampleArgs(b, op, sh, base, l))
			b.place(l)
			k, err := b.kernel()
			if err != nil {
				t.Fatalf("%s: %v", op.Name, err)
			}
			m.Kernels = append(m.Kernels, k)
		}
		if out, err := assemble(t, bin, m.Text(), fl.SM); err != nil {
			t.Errorf("%s: %v\n%s", fl, err, firstLines(out, 20))
		}
	}
}

func firstLines(s string, n int) string {
	lines := strings.SplitN(s, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "\n")
}
