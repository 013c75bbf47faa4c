package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

func TestCurves(t *testing.T) {
	for name, c := range map[string]*curves{"empty": {}, "one point": {}, "scaled": {title: "gpt, mixed-f16"}, "unscaled": {}} {
		switch name {
		case "one point":
			c.add(1, 2.5, 65536, false)
		case "scaled":
			for i := range 50 {
				c.add(i, 4/float64(i+1), math.Exp2(float64(16+i%3)), i%10 == 0)
			}
			c.add(50, math.NaN(), 1, true)
			c.add(51, math.Inf(1), 1, true)
			c.held = plotter.XYs{{X: 1, Y: 2}, {X: 50, Y: math.NaN()}}
		case "unscaled":
			c.add(1, 3, 0, false)
			c.add(2, 2, 0, true)
		}
		svg, err := c.svg()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d := xml.NewDecoder(bytes.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: not XML: %v", name, err)
			}
		}
		if strings.Contains(string(svg), "NaN") {
			t.Errorf("%s: a NaN reached the picture", name)
		}
		if got, want := strings.Contains(string(svg), "loss scale"), name == "scaled" || name == "one point"; got != want {
			t.Errorf("%s: scale drawn: %t, want %t", name, got, want)
		}
		if name == "scaled" && !strings.Contains(string(svg), "skipped") {
			t.Error("skipped steps are not in the legend")
		}
	}
}
