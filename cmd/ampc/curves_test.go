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
			c.add(point{1, 2.5, 0, 65536, false, nan})
		case "scaled":
			for i := range 50 {
				c.add(point{i, 4 / float64(i+1), 1e-3, math.Exp2(float64(16 + i%3)), i%10 == 0, nan})
			}
			c.add(point{50, math.NaN(), 1e-3, 1, true, math.Inf(1)})
			c.add(point{51, math.Inf(1), 1e-3, 1, true, 3})
		case "unscaled":
			c.add(point{1, 3, 0, 0, false, nan})
			c.add(point{2, 2, 0, 0, true, nan})
		case "extreme":
			for i := range 9 {
				c.add(point{i, math.MaxFloat64 * float64(i%3-1), 0, math.Exp2(float64(-149 + 30*i)), false, -1e308})
			}
		case "flat":
			for i := range 9 {
				c.add(point{1000000 + i, 0, 0, 1, false, nan})
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
		c.add(point{i + 1, 3 + math.Sin(float64(i)), 1e-3, math.Exp2(float64(10 + i%9)), i%7 == 0, math.NaN()})
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
// take some steps back.
func TestCurveNumbers(t *testing.T) {
	whole, parts := t.TempDir(), t.TempDir()
	all := []point{
		{1, 2.5, 1e-3, 65536, false, math.NaN()}, {2, math.Inf(1), 1e-3, 65536, true, math.NaN()}, {3, 2.25, 2e-3, 32768, false, 2.75},
		{4, 1, 1e-3, 0, false, math.NaN()}, {5, 0.1, 1e-3, 0, false, math.NaN()},
	}
	c := &curves{points: all}
	if err := c.flush(whole); err != nil {
		t.Fatal(err)
	}
	for _, cut := range [][2]int{{1, 3}, {3, 5}} {
		c := &curves{}
		if err := c.load(parts, cut[0]); err != nil {
			t.Fatal(err)
		}
		for _, p := range all[len(c.points):cut[1]] {
			c.add(p)
			if err := c.flush(parts); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{curvesLines, curvesTable} {
		want, got := read(t, whole, name), read(t, parts, name)
		if !bytes.Equal(want, got) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if want := csvHeader + "1,2.5,0.001,65536,false,\n2,,0.001,65536,true,\n3,2.25,0.002,32768,false,2.75\n4,1,0.001,,false,\n5,0.1,0.001,,false,\n"; string(read(t, whole, curvesTable)) != want {
		t.Errorf("%s, want %s", read(t, whole, curvesTable), want)
	}
	path := filepath.Join(whole, curvesLines) // torn by a kill in the middle of line 3
	if err := os.WriteFile(path, read(t, path)[:bytes.Index(read(t, path), []byte(`"step":3`))+20], 0o644); err != nil {
		t.Fatal(err)
	}
	c = &curves{}
	if err := c.load(whole, 100); err != nil || len(c.points) != 2 {
		t.Errorf("%d points of a torn file (%v), want 2", len(c.points), err)
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
