package sass

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// listing is a kernel as nvdisasm -c prints it: instructions as the arguments, one a line.
func listing(name, code string) string {
	var b strings.Builder
	b.WriteString("\t.headerflags\t@\"EF_CUDA_SM90\"\n\n//--------------------- .text." + name + "\n\t.section\t.text." + name + ",\"ax\",@progbits\n\t.align\t128\n        .type           " + name + ",@function\n" + name + ":\n.text." + name + ":\n")
	for _, line := range strings.Split(strings.TrimSpace(code), "\n") {
		line = strings.TrimSpace(line)
		if !strings.HasSuffix(line, ":") {
			line = "        /*0000*/                   " + line + " ;"
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func parsed(t *testing.T, code string) *Function {
	t.Helper()
	list, err := Parse([]byte(listing("k", code)))
	if err != nil || len(list) != 1 {
		t.Fatal(err, len(list))
	}
	return list[0]
}

// streamed loads two vectors in each iteration and waits for the first of them; a third load has one
// address for all threads.
const streamed = `
	S2R R0, SR_TID.X
	S2R R1, SR_CTAID.X
	IMAD.WIDE.U32 R2, R0, 0x20, R4
	IMAD.WIDE.U32 R6, R1, 0x4, R4
	.L_x_0:
	LDG.E.128 R8, [R2.64]
	LDG.E.128 R12, [R2.64+0x10]
	LDG.E R16, [R6.64]
	FADD R20, R9, R20
	FADD R21, R12, R16
	IADD3 R2, P0, R2, 0x20, RZ
	@!P1 BRA ` + "`(.L_x_0)" + `
	STG.E.64 [R2.64], R20
	EXIT
	.L_x_1:
	BRA ` + "`(.L_x_1)" + `
	$k$__cuda_sm20_div:
	LDG.E.128 R8, [R2.64]
	RET.REL.NODEC R2 ` + "`(k)"

func TestParse(t *testing.T) {
	list, err := Parse([]byte(listing("first", streamed) + listing("second", "MOV R1, c[0x0][0x28]\n EXIT")))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Name != "first" || list[1].Name != "second" {
		t.Fatalf("%d functions", len(list))
	}
	code := list[0].Code
	if len(code) != 14 {
		t.Errorf("%d instructions, want 14 without the subroutine", len(code))
	}
	want := Inst{Guard: "!P1", Op: "BRA", Args: []string{"`(.L_x_0)"}, Target: 4}
	if !reflect.DeepEqual(code[10], want) {
		t.Errorf("the branch is %+v, want %+v", code[10], want)
	}
	if !reflect.DeepEqual(list[1].Code[0], Inst{Op: "MOV", Args: []string{"R1", "c[0x0][0x28]"}, Target: -1}) {
		t.Errorf("%+v", list[1].Code[0])
	}
	for _, bad := range []string{listing("k", "lower R1"), "\t.section\t.text.k,\"ax\",@progbits\n", listing("k", "$only:\nEXIT")} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		name, code string
		want       Traffic
	}{
		// the second use waits for the second load
		{"loop", streamed, Traffic{true, 7, map[int]int{16: 2}, 32, 0, 32}},
		{"waits", "S2R R0, SR_TID.X\nLDG.E.U16 R4, [R0.64]\nIADD3 R4, R4, 0x1, RZ\nLDG.E.64 R6, [R0.64]\nSTG.E.128 [R0.64], R4\nEXIT", Traffic{false, 6, map[int]int{2: 1, 8: 1}, 10, 16, 8}},
		// what is loaded in one iteration is used in the next
		{"ahead", "S2R R0, SR_TID.X\n.L_x_0:\nFADD R9, R4, R9\nLDG.E.128 R4, [R0.64]\nLDG.E.128 R12, [R0.64+0x10]\n@P0 BRA `(.L_x_0)\nEXIT", Traffic{true, 4, map[int]int{16: 2}, 32, 0, 32}},
		// a data-dependent use of an earlier load leaves the later one in flight
		{"order", "S2R R0, SR_TID.X\nLDG.E.128 R4, [R0.64]\nLDG.E.128 R8, [R0.64+0x10]\nMOV R20, R7\nLDG.E.64 R12, [R0.64+0x20]\nMOV R21, R8\nEXIT", Traffic{false, 7, map[int]int{16: 2, 8: 1}, 40, 0, 32}},
		{"uniform", "S2R R0, SR_CTAID.X\nLDG.E R4, [R0.64]\nEXIT", Traffic{false, 3, map[int]int{}, 0, 0, 0}},
		{"paths", "S2R R0, SR_TID.X\n@P0 BRA `(.L_x_0)\nLDG.E.128 R4, [R0.64]\nEXIT\n.L_x_0:\nLDG.E R8, [R0.64]\nSTG.E [R0.64], R8\nEXIT", Traffic{false, 7, map[int]int{16: 1, 4: 1}, 20, 4, 16}},
	} {
		if got := Measure(parsed(t, c.code)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestReadsAndWrites(t *testing.T) {
	for _, c := range []struct{ code, reads, writes string }{
		{"LDG.E.128 R8, [R2.64+0x10]", "R2 R3", "R8 R9 R10 R11"},
		{"LDG.E.U16 R8, desc[UR4][R2.64]", "UR4 UR5 R2 R3", "R8"},
		{"STG.E.128 [R2.64], R8", "R2 R3 R8 R9 R10 R11", ""},
		{"IADD3 R2, P0, R4.reuse, UR4, RZ", "R4 UR4", "R2 P0"},
		{"IMAD.WIDE.U32 R24, R6, 0x8000, R26", "R6 R26 R27", "R24 R25"},
		{"ISETP.LT.U32.AND.EX P0, PT, R3, R5, PT, P1", "R3 R5 P1", "P0"},
		{"SHFL.BFLY PT, R2, R3, 0x10, 0x1f", "R3", "R2"},
		{"SEL R0, R2, R4, P0", "R2 R4 P0", "R0"},
		{"@!P2 FADD R2, R44, R3", "P2 R44 R3", "R2"},
		{"BAR.SYNC 0x0", "", ""},
	} {
		in := &parsed(t, strings.Replace(c.code, "@!P2 ", "", 1)).Code[0]
		if strings.HasPrefix(c.code, "@") {
			in.Guard = "!P2"
		}
		if r, w := strings.Join(in.reads(), " "), strings.Join(in.writes(), " "); r != c.reads || w != c.writes {
			t.Errorf("%s reads %q and writes %q, want %q and %q", c.code, r, w, c.reads, c.writes)
		}
	}
}

// The counts are those of the CUDA Occupancy Calculator.
func TestResident(t *testing.T) {
	for _, c := range []struct{ sm, registers, shared, threads, want int }{
		{90, 32, 0, 256, 8},
		{90, 33, 0, 256, 6},
		{90, 64, 0, 256, 4},
		{90, 72, 0, 64, 14},
		{90, 128, 0, 1024, 0},
		{90, 16, 0, 32, 32},
		{90, 16, 48 << 10, 256, 4},
		{80, 16, 48 << 10, 256, 3},
		{80, 63, 0, 256, 4},
		{90, 255, 0, 256, 1},
		{90, 40, 0, 96, 16},
	} {
		if got := GPUs[c.sm].Resident(c.registers, c.shared, c.threads); got != c.want {
			t.Errorf("sm_%d: %d blocks of %d threads with %d registers and %d bytes, want %d", c.sm, got, c.threads, c.registers, c.shared, c.want)
		}
	}
}

// TestWidths asks ptxas for an access of each width.
func TestWidths(t *testing.T) {
	ptxas := os.Getenv("AMPC_PTXAS")
	if ptxas == "" {
		t.Skip("AMPC_PTXAS is not set")
	}
	want := map[string]int{}
	text := ".version 7.8\n.target sm_90\n.address_size 64\n"
	for ld, n := range map[string]int{
		"ld.global.u8 %h0, [%d0]": 1, "ld.global.s8 %h0, [%d0]": 1, "ld.global.u16 %h0, [%d0]": 2,
		"ld.global.u32 %r0, [%d0]": 4, "ld.global.u64 %d2, [%d0]": 8,
		"ld.global.v2.u32 {%r0, %r1}, [%d0]": 8, "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%d0]": 16,
	} {
		name := fmt.Sprint("k", len(want))
		want[name] = n
		text += ".visible .entry " + name + "(.param .u64 p) {\n.reg .b16 %h<2>; .reg .b32 %r<4>; .reg .b64 %d<4>;\n" +
			"ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 16; add.u64 %d0, %d0, %d1;\n" +
			ld + ";\n" + store(ld) + ";\nret; }\n"
	}
	file := filepath.Join(t.TempDir(), "k.ptx")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(ptxas, "-arch=sm_90", "-o", file+".cubin", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(filepath.Dir(ptxas), "nvdisasm"), "-c", file+".cubin").Output()
	if err != nil {
		t.Skip("no nvdisasm beside AMPC_PTXAS")
	}
	list, err := Parse(out)
	if err != nil || len(list) != len(want) {
		t.Fatal(err, len(list))
	}
	for _, f := range list {
		if got := Measure(f); !maps.Equal(got.Loads, map[int]int{want[f.Name]: 1}) || got.Stored != want[f.Name] {
			t.Errorf("%s: %+v, want one load and one store of %d", f.Name, got, want[f.Name])
		}
	}
}

// store is the store, at another address, of what ld loads.
func store(ld string) string {
	op, rest, _ := strings.Cut(strings.ReplaceAll(strings.Replace(ld, "ld.", "st.", 1), ".s8", ".u8"), " ")
	value, _, _ := strings.Cut(rest, ", [")
	return op + " [%d0+4096], " + value
}

// Any text gives functions that can be measured, or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(listing("k", streamed)))
	f.Add([]byte(listing("k", "PT PT, PT\nLDG\nSTG.E.128\n@P0 BRA `(.L_x_0)\nIMAD.WIDE R255, R\nSHFL PT")))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Parse(text)
		if err != nil {
			return
		}
		for _, f := range list {
			if m := Measure(f); m.InFlight < 0 || m.Instructions > len(f.Code) {
				t.Errorf("%+v of %d instructions", m, len(f.Code))
			}
		}
	})
}
