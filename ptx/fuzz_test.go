package ptx

import (
	"strings"
	"testing"
)

// FuzzParse: no text makes parser or verifier panic; what passes both prints as text that passes both and
// prints the same.
func FuzzParse(f *testing.F) {
	f.Add(sampleModule(f).Text())
	f.Add(".version 7.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 a) .maxntid 32,1,1 { .reg .b32 %r<2>; .reg .pred %p<1>;" +
		".shared .align 4 .b8 s[64]; L: mov.u32 %r0, %tid.x; @!%p0 bra L; st.shared.v2.u32 [s+-8], {%r0, %r1}; add.rn.f32 %f0, 0f3F800000, 0d0000000000000000; ret; }")
	f.Add(".version 7.0 /* a */ .target sm_70 // b\n.entry k() { .reg .b64 %d<0>; bar.sync 0; mov.u32 %r0, -1; exit; }")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil || Verify(m) != nil {
			return
		}
		printed := m.Text()
		again, err := Parse(printed)
		if err != nil {
			t.Fatalf("%v in\n%s", err, printed)
		}
		if err := Verify(again); err != nil {
			t.Fatalf("%v in\n%s", err, printed)
		}
		if got := again.Text(); got != printed {
			t.Errorf("printed first:\n%s\nthen:\n%s", printed, got)
		}
	})
}

// TestBrokenTexts cuts a text everywhere and swaps its words: errors, never a panic.
func TestBrokenTexts(t *testing.T) {
	text := sampleModule(t).Text()
	for i := range text {
		if m, err := Parse(text[:i]); err == nil {
			_ = Verify(m)
		}
	}
	words := strings.Fields(text)
	for i := range words {
		for _, w := range []string{"", ";", "%p0", "{", "[", "-", "@", "0f", ".reg", "bra", "999999999999999999999"} {
			changed := strings.Join(words[:i], " ") + " " + w + " " + strings.Join(words[i+1:], " ")
			if m, err := Parse(changed); err == nil {
				_ = Verify(m)
			}
		}
	}
}
