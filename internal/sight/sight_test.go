package sight

import (
	"math"
	"testing"
)

// White on black has the greatest contrast; red and green of equal lightness are alike to some.
func TestSight(t *testing.T) {
	colour := func(text string) RGB {
		c, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if x := Contrast(colour("#000000"), colour("#ffffff")); math.Abs(x-21) > 1e-9 {
		t.Errorf("contrast %g", x)
	}
	if d := Distance(colour("#808080"), colour("#808080")); d != 0 {
		t.Errorf("a colour is %g from itself", d)
	}
	if l := colour("#777777").lab()[0]; math.Abs(l-50) > 0.2 { // the grey of half lightness
		t.Errorf("lightness %g", l)
	}
	red, green := colour("#b04a3a"), colour("#6b7025")
	if d, full := Distance(Seen(Eyes["deuteranopia"], red), Seen(Eyes["deuteranopia"], green)), Distance(red, green); d > full/3 {
		t.Errorf("red and green are %.1f apart, without green cones %.1f", full, d)
	}
	for _, bad := range []string{"", "red", "#12345", "#1234567", "#12345g"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
