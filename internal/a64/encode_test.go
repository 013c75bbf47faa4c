package a64

import (
	"bytes"
	"fmt"
	"testing"

	"ampc/internal/goasm"
)

// samples are three forms of an instruction.
func samples(o Op) (list []Inst) {
	e := &encodings[o]
	for k, r := range [][3]Reg{{0, 1, 2}, {31, 17, 24}, {9, 30, 5}} {
		i := Inst{Op: o, Dst: r[0], A: r[1], B: r[2]}
		switch e.form {
		case left, right:
			i.Imm = [...]uint8{1, 23, 31}[k]
		case load, store:
			i.Mem = &Mem{Base: r[1], Disp: [...]int32{0, 1, 4095}[k] * e.size}
			i.A = i.Dst // only stores read it
		}
		list = append(list, i)
	}
	return list
}

// words are what the GNU assembler makes of the samples: of "fadd v0.4s, v1.4s, v2.4s", and so on.
var words = [numOps][3]uint32{
	FADD:    {0x4e22d420, 0x4e38d63f, 0x4e25d7c9},
	FSUB:    {0x4ea2d420, 0x4eb8d63f, 0x4ea5d7c9},
	FMUL:    {0x6e22dc20, 0x6e38de3f, 0x6e25dfc9},
	FDIV:    {0x6e22fc20, 0x6e38fe3f, 0x6e25ffc9},
	FMIN:    {0x4ea2f420, 0x4eb8f63f, 0x4ea5f7c9},
	FMAX:    {0x4e22f420, 0x4e38f63f, 0x4e25f7c9},
	FMLA:    {0x4e22cc20, 0x4e38ce3f, 0x4e25cfc9},
	FMLS:    {0x4ea2cc20, 0x4eb8ce3f, 0x4ea5cfc9},
	FCMEQ:   {0x4e22e420, 0x4e38e63f, 0x4e25e7c9},
	FCMGE:   {0x6e22e420, 0x6e38e63f, 0x6e25e7c9},
	FCMGT:   {0x6ea2e420, 0x6eb8e63f, 0x6ea5e7c9},
	CMTST:   {0x4ea28c20, 0x4eb88e3f, 0x4ea58fc9},
	ADD:     {0x4ea28420, 0x4eb8863f, 0x4ea587c9},
	SUB:     {0x6ea28420, 0x6eb8863f, 0x6ea587c9},
	AND:     {0x4e221c20, 0x4e381e3f, 0x4e251fc9},
	BIC:     {0x4e621c20, 0x4e781e3f, 0x4e651fc9},
	ORR:     {0x4ea21c20, 0x4eb81e3f, 0x4ea51fc9},
	EOR:     {0x6e221c20, 0x6e381e3f, 0x6e251fc9},
	BSL:     {0x6e621c20, 0x6e781e3f, 0x6e651fc9},
	UZP1:    {0x4e821820, 0x4e981a3f, 0x4e851bc9},
	UZP1H:   {0x4e421820, 0x4e581a3f, 0x4e451bc9},
	UZP2H:   {0x4e425820, 0x4e585a3f, 0x4e455bc9},
	FMULD:   {0x6e62dc20, 0x6e78de3f, 0x6e65dfc9},
	UZP2:    {0x4e825820, 0x4e985a3f, 0x4e855bc9},
	TRN2:    {0x4e826820, 0x4e986a3f, 0x4e856bc9},
	UMULL:   {0x2ea2c020, 0x2eb8c23f, 0x2ea5c3c9},
	NOT:     {0x6e205820, 0x6e205a3f, 0x6e205bc9},
	FADDD:   {0x4e62d420, 0x4e78d63f, 0x4e65d7c9},
	FCVTLD:  {0x0e617820, 0x0e617a3f, 0x0e617bc9},
	FCVTL2D: {0x4e617820, 0x4e617a3f, 0x4e617bc9},
	FSQRT:   {0x6ea1f820, 0x6ea1fa3f, 0x6ea1fbc9},
	FRINTN:  {0x4e218820, 0x4e218a3f, 0x4e218bc9},
	FRINTM:  {0x4e219820, 0x4e219a3f, 0x4e219bc9},
	FRINTP:  {0x4ea18820, 0x4ea18a3f, 0x4ea18bc9},
	FCVTNS:  {0x4e21a820, 0x4e21aa3f, 0x4e21abc9},
	SCVTF:   {0x4e21d820, 0x4e21da3f, 0x4e21dbc9},
	FCVTL:   {0x0e217820, 0x0e217a3f, 0x0e217bc9},
	FCVTN:   {0x0e216820, 0x0e216a3f, 0x0e216bc9},
	FCVTN2:  {0x4e216820, 0x4e216a3f, 0x4e216bc9},
	FCVTND:  {0x0e616820, 0x0e616a3f, 0x0e616bc9},
	FCVTN2D: {0x4e616820, 0x4e616a3f, 0x4e616bc9},
	SHLL:    {0x2e613820, 0x2e613a3f, 0x2e613bc9},
	XTN:     {0x0e612820, 0x0e612a3f, 0x0e612bc9},
	XTNS:    {0x0ea12820, 0x0ea12a3f, 0x0ea12bc9},
	XTNB:    {0x0e212820, 0x0e212a3f, 0x0e212bc9},
	UXTL:    {0x2f10a420, 0x2f10a63f, 0x2f10a7c9},
	UXTLB:   {0x2f08a420, 0x2f08a63f, 0x2f08a7c9},
	DUP:     {0x4e040420, 0x4e04063f, 0x4e0407c9},
	MOV:     {0x4ea11c20, 0x4eb11e3f, 0x4ebe1fc9},
	SHL:     {0x4f215420, 0x4f37563f, 0x4f3f57c9},
	USHR:    {0x6f3f0420, 0x6f29063f, 0x6f2107c9},
	SSHR:    {0x4f3f0420, 0x4f29063f, 0x4f2107c9},
	LDRQ:    {0x3dc00020, 0x3dc0063f, 0x3dffffc9},
	STRQ:    {0x3d800020, 0x3d80063f, 0x3dbfffc9},
	LDRD:    {0xfd400020, 0xfd40063f, 0xfd7fffc9},
	STRD:    {0xfd000020, 0xfd00063f, 0xfd3fffc9},
	LDRS:    {0xbd400020, 0xbd40063f, 0xbd7fffc9},
	STRS:    {0xbd000020, 0xbd00063f, 0xbd3fffc9},
}

// TestWords compares every instruction with what the GNU assembler writes.
func TestWords(t *testing.T) {
	for o := range numOps {
		for k, i := range samples(o) {
			if w := i.Word(); w != words[o][k] {
				t.Errorf("op %d, sample %d: %#08x, the assembler writes %#08x", o, k, w, words[o][k])
			}
		}
	}
}

// goNames are the names of the instructions that Go's assembler knows, with the arrangement of their lanes.
var goNames = [numOps]struct{ name, lanes string }{
	FMLA: {"VFMLA", "S4"}, FMLS: {"VFMLS", "S4"}, CMTST: {"VCMTST", "S4"}, ADD: {"VADD", "S4"}, SUB: {"VSUB", "S4"},
	AND: {"VAND", "B16"}, ORR: {"VORR", "B16"}, EOR: {"VEOR", "B16"}, BSL: {"VBSL", "B16"}, MOV: {"VMOV", "B16"},
	UZP1: {"VUZP1", "S4"}, UZP2: {"VUZP2", "S4"}, TRN2: {"VTRN2", "S4"}, UZP1H: {"VUZP1", "H8"}, UZP2H: {"VUZP2", "H8"},
	SHL: {"VSHL", "S4"}, USHR: {"VUSHR", "S4"},
	LDRQ: {"FMOVQ", ""}, LDRD: {"FMOVD", ""}, LDRS: {"FMOVS", ""}, STRQ: {"FMOVQ", ""}, STRD: {"FMOVD", ""}, STRS: {"FMOVS", ""},
}

// text is the instruction in the words of Go's assembler, empty if it knows none.
func (i Inst) text() string {
	n := goNames[i.Op]
	v := func(r Reg) string { return fmt.Sprintf("V%d.%s", r, n.lanes) }
	switch e := &encodings[i.Op]; {
	case n.name == "":
		return ""
	case e.form == three:
		return fmt.Sprintf("%s %s, %s, %s", n.name, v(i.B), v(i.A), v(i.Dst))
	case e.form == two:
		return fmt.Sprintf("%s %s, %s", n.name, v(i.A), v(i.Dst))
	case e.form == load:
		return fmt.Sprintf("%s %s, F%d", n.name, i.Mem.text(), i.Dst)
	case e.form == store:
		return fmt.Sprintf("%s F%d, %s", n.name, i.A, i.Mem.text())
	default:
		return fmt.Sprintf("%s $%d, %s, %s", n.name, i.Imm, v(i.A), v(i.Dst))
	}
}

func (m *Mem) text() string { return fmt.Sprintf("%d(R%d)", m.Disp, m.Base) }

// TestAssembler compares the instructions that Go's assembler knows, and code that counts and jumps, with what it writes.
func TestAssembler(t *testing.T) {
	var c Code
	var lines []string
	for o := range numOps {
		for _, i := range samples(o) {
			if i.Mem != nil && (i.Mem.Base > 17 || i.Mem.Disp > 4094*8) { // R30 is Go's; it splits far displacements
				continue
			}
			if s := i.text(); s != "" {
				c.Do(i)
				lines = append(lines, s)
			}
		}
	}
	for _, r := range []Reg{0, 5, 17, 19, 26} {
		c.Add(r, 16)
		c.Sub(r, 127)
		c.Advance(r, 4095)
		lines = append(lines, fmt.Sprintf("ADDS $16, R%d", r), fmt.Sprintf("SUBS $127, R%d", r), fmt.Sprintf("ADD $4095, R%d", r))
		for _, m := range []Mem{{Base: 1}, {Base: 0, Disp: 8}, {Base: 20, Disp: 160}} {
			c.Pointer(r, m)
			lines = append(lines, fmt.Sprintf("MOVD %s, R%d", m.text(), r))
		}
	}
	for _, r := range [][2]Reg{{0, 1}, {26, 0}, {5, 19}} {
		c.Move(r[0], r[1])
		c.AddTimes(r[0], r[1], 0)
		c.AddTimes(r[0], r[1], 2)
		lines = append(lines, fmt.Sprintf("MOVD R%d, R%d", r[1], r[0]), fmt.Sprintf("ADD R%d, R%d", r[1], r[0]), fmt.Sprintf("ADD R%d<<2, R%d", r[1], r[0]))
	}
	back, skip := c.Here(), c.Skip()
	lines = append(lines, "back:", "BLT end")
	for range 40 {
		i := Inst{Op: ADD, Dst: 1, A: 2, B: 3}
		c.Do(i)
		lines = append(lines, i.text())
	}
	c.Back(back)
	c.Land(skip)
	c.Return()
	lines = append(lines, "BGE back", "end:", "RET")
	want := bytes.TrimRight(goasm.Bytes(t, "arm64", lines), "\x00") // no word ends in zeros
	got := c.Bytes()
	if len(got) != len(want) {
		t.Fatalf("%d bytes, the assembler writes %d", len(got), len(want))
	}
	for k := 0; k < len(got); k += 4 {
		if string(got[k:k+4]) != string(want[k:k+4]) {
			t.Errorf("byte %d: % x, the assembler writes % x", k, got[k:k+4], want[k:k+4])
		}
	}
}
