package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"ampc/fit"
	"ampc/internal/sight"
)

// picture draws curves and wants well-formed XML without a number that is none.
func picture(t *testing.T, name string, c *curves) string {
	t.Helper()
	svg := c.svg()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: not XML: %v", name, err)
		}
	}
	if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
		t.Errorf("%s: what is not finite reached the picture", name)
	}
	return string(svg)
}

func TestCurves(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]*curves{"empty": {}, "one point": {}, "scaled": {title: "gpt <1>, mixed-f16"}, "unscaled": {}, "extreme": {}, "flat": {}} {
		switch name {
		case "one point":
			c.add(at(1, 2.5, 0, 65536, false, nan))
		case "scaled":
			for i := range 50 {
				c.add(at(i, 4/float64(i+1), 1e-3, math.Exp2(float64(16+i%3)), i%10 == 0, nan))
			}
			c.add(at(50, math.NaN(), 1e-3, 1, true, math.Inf(1)))
			c.add(at(51, math.Inf(1), 1e-3, 1, true, 3))
		case "unscaled":
			c.add(at(1, 3, 0, 0, false, nan))
			c.add(at(2, 2, 0, 0, true, nan))
		case "extreme":
			for i := range 9 {
				c.add(at(i, math.MaxFloat64*float64(i%3-1), 0, math.Exp2(float64(-149+30*i)), false, -1e308))
			}
		case "flat":
			for i := range 9 {
				c.add(at(1000000+i, 0, 0, 1, false, nan))
			}
		}
		svg := picture(t, name, c)
		if got, want := strings.Contains(svg, "loss scale"), name != "empty" && name != "unscaled"; got != want {
			t.Errorf("%s: scale drawn: %t, want %t", name, got, want)
		}
		if got, want := strings.Contains(svg, ">skipped<"), name == "scaled"; got != want {
			t.Errorf("%s: skipped steps in the legend: %t", name, got)
		}
	}
}

// A long run is a smooth line of a size that does not grow with its steps.
func TestLongCurvesAreThinned(t *testing.T) {
	c := &curves{}
	for i := range 20000 {
		c.add(at(i+1, 3+math.Sin(float64(i)), 1e-3, math.Exp2(float64(10+i%9)), i%7 == 0, math.NaN()))
	}
	svg := picture(t, "long", c)
	if len(svg) > 60_000 {
		t.Errorf("%d bytes", len(svg))
	}
	if !strings.Contains(svg, "mean and range of every 50 steps") {
		t.Error("the legend does not say what is drawn")
	}
	for _, p := range c.losses()[0].line {
		if math.Abs(p[1]-3) > 0.1 {
			t.Fatalf("at step %g the mean of a sine is %g, want about 3", p[0], p[1])
		}
	}
}

// The files of numbers hold every step once, whether they were written at once, in parts, or after a resume that had to
// take some steps back. A folder of an older run, whose table has other columns, is read and written anew.
func TestCurveNumbers(t *testing.T) {
	whole, parts := t.TempDir(), t.TempDir()
	nan := math.NaN()
	all := []point{at(1, 2.5, 1e-3, 65536, false, nan), at(2, math.Inf(1), 1e-3, 65536, true, nan), at(3, 2.25, 2e-3, 32768, false, 2.75), at(4, 1, 1e-3, 0, false, nan), at(5, 0.1, 1e-3, 0, false, nan)}
	all[0].memory, all[4].norm, all[4].pace, all[4].epoch = 4096, 0.5, 12.5, 1
	on := func(dir string) *curves { return &curves{unit: "images", logs: logsIn(dir, 0)} }
	c := on(whole)
	c.points = all
	if err := c.files().write(whole); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(parts, curvesTable), []byte("step,loss,lr,scale,skipped,held_out\n1,2.5,0.001,65536,false,\n"), 0o666)
	os.WriteFile(filepath.Join(parts, curvesLines), []byte(`{"step":1,"loss":2.5,"lr":0.001,"scale":65536,"skipped":false,"held_out":null}`+"\n"), 0o666)
	for _, cut := range [][2]int{{1, 3}, {3, 5}} {
		c := on(parts)
		if err := c.load(parts, cut[0]); err != nil {
			t.Fatal(err)
		}
		if len(c.points) != cut[0] {
			t.Fatalf("%d points are loaded, want %d", len(c.points), cut[0])
		}
		c.points[0].memory = 4096 // older logs do not have it
		for _, p := range all[len(c.points):cut[1]] {
			c.add(p)
			if err := c.files().write(parts); err != nil {
				t.Fatal(err)
			}
		}
		c.logs.close()
	}
	for _, name := range []string{curvesLines, curvesTable} {
		want, got := read(t, whole, name), read(t, parts, name)
		if !bytes.Equal(want, got) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if want := `step,epoch,loss,lr,scale,skipped,grad_norm,held_out,images/s,memory
1,0,2.5,0.001,65536,0,,,,4096
2,0,,0.001,65536,1,,,,
3,0,2.25,0.002,32768,0,,2.75,,
4,0,1,0.001,,0,,,,
5,1,0.1,0.001,,0,0.5,,12.5,
`; string(read(t, whole, curvesTable)) != want {
		t.Errorf("%s, want %s", read(t, whole, curvesTable), want)
	}
	path := filepath.Join(whole, curvesLines) // torn by a kill in the middle of line 3
	if err := os.WriteFile(path, read(t, path)[:bytes.Index(read(t, path), []byte(`"step":3`))+20], 0o644); err != nil {
		t.Fatal(err)
	}
	c = on(whole)
	if err := c.load(whole, 100); err != nil || len(c.points) != 2 {
		t.Errorf("%d points of a torn file (%v), want 2", len(c.points), err)
	}
}

// at is a point of what every step has.
func at(step int, loss, rate, scale float64, skipped bool, held float64) point {
	return point{step: step, loss: loss, rate: rate, scale: scale, skipped: skipped, heldOut: held, norm: math.NaN()}
}

// A disk that was full while numbers were written leaves no line twice and none in part.
func TestLogsAfterAnError(t *testing.T) {
	dir := t.TempDir()
	c := &curves{unit: "images", logs: logsIn(dir, 0)}
	c.add(at(1, 3, 1, 1, false, 1))
	if err := c.files().write(dir); err != nil {
		t.Fatal(err)
	}
	for i := range c.logs.list {
		c.logs.list[i].Close() // what is written now fails
	}
	c.add(at(2, 2, 1, 1, false, 1))
	if err := c.files().write(dir); err == nil {
		t.Fatal("a closed file takes numbers")
	}
	f, err := os.OpenFile(filepath.Join(dir, curvesTable), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("2,0,2")
	f.Close()
	c.add(at(3, 1, 1, 1, false, 1))
	if err := c.files().write(dir); err != nil {
		t.Fatal(err)
	}
	if got, want := string(read(t, dir, curvesTable)), "step,epoch,loss,lr,scale,skipped,grad_norm,held_out,images/s,memory\n1,0,3,1,1,0,,1,,\n2,0,2,1,1,0,,1,,\n3,0,1,1,1,0,,1,,\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if rows, damaged, err := fit.ReadJSONLines(filepath.Join(dir, curvesLines)); err != nil || damaged != 0 || len(rows) != 3 {
		t.Errorf("%v, line %d (%v)", rows, damaged, err)
	}
}

// The line fits the terminal and keeps what matters most.
func TestProgressFits(t *testing.T) {
	s := status{step: 1234567, loss: 123.4567, taken: true, mean: "123.4567", scale: 65536, skipped: 12345, rate: 1234567, unit: "tokens"}
	for width := 1; width < 200; width++ {
		var b bytes.Buffer
		p := newProgress(&b, false, 0, 2000000)
		p.width, p.last = func() int { return width }, time.Time{}
		p.show(s)
		line := strings.TrimSuffix(strings.TrimPrefix(b.String(), "\r"), "\x1b[K")
		if n := utf8.RuneCountInString(line); n >= width && n > 0 {
			t.Fatalf("%d columns in a terminal of %d: %q", n, width, line)
		}
		if width >= 80 && !strings.Contains(line, "step 1234567/2000000  loss 123.4567  scale 2^16  skipped 12345") {
			t.Errorf("in %d columns: %q", width, line)
		}
	}
	var b bytes.Buffer
	p := newProgress(&b, false, 0, 40)
	for i := range 40 {
		p.show(status{step: i + 1, loss: math.NaN(), mean: "none", unit: "images"})
	}
	if n := strings.Count(b.String(), "\n"); n != 10 {
		t.Errorf("%d lines off a terminal, want 10:\n%s", n, b.String())
	}
	if want := "step 4/40  loss NaN (skipped)  skipped 0"; !strings.HasPrefix(b.String(), want) {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// What one chart of curves.svg shows differs for colour-blind readers too, and stands out from the
// white behind it.
func TestCurveColors(t *testing.T) {
	c := &curves{}
	for step := range 10 {
		c.add(point{step: step + 1, loss: 3, scale: 1024, skipped: step == 3, norm: math.NaN(), heldOut: 2})
	}
	white, err := sight.Parse("#ffffff")
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range [][]series{c.losses(), c.scales()} {
		if len(chart) != 2 {
			t.Fatalf("%d series", len(chart))
		}
		colors := map[string]sight.RGB{}
		for _, s := range chart {
			if colors[s.name], err = sight.Parse(s.color); err != nil {
				t.Fatal(err)
			}
			if x := sight.Contrast(colors[s.name], white); x < 3 {
				t.Errorf("%s on white has contrast %.2f, want 3", s.name, x)
			}
		}
		if pair, least := sight.Nearest(colors); least < 20 {
			t.Errorf("%s are %.1f apart, want 20", pair, least)
		}
	}
}
