package philox

import "testing"

// The known answers of the authors' Random123 distribution (kat_vectors).
func TestKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)}, [2]uint32{^uint32(0), ^uint32(0)},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Block(c.counter, c.key); got != c.want {
			t.Errorf("%08x: got %08x, want %08x", c.counter, got, c.want)
		}
	}
}

func TestDrawPlacesEveryField(t *testing.T) {
	d := Draw{Seed: 0x0000000200000001, Site: 4, Micro: 5, Attempt: 6}
	want := Block([4]uint32{3, 4, 5, 6}, [2]uint32{1, 2})
	for lane := range int64(4) {
		if got := d.Word(12 + lane); got != want[lane] {
			t.Errorf("element %d: got %08x, want %08x", 12+lane, got, want[lane])
		}
	}
}
