package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"ampc/internal/file"
)

// line is a point as curves.jsonl holds it. What is not finite, or was not
// there, is null.
type line struct {
	Step    int      `json:"step"`
	Loss    *float64 `json:"loss"`
	Rate    *float64 `json:"lr"`
	Scale   *float64 `json:"scale"`
	Skipped bool     `json:"skipped"`
	Held    *float64 `json:"held_out"`
}

func (p point) line() line {
	l := line{Step: p.step, Loss: orNull(p.loss), Rate: orNull(p.rate), Skipped: p.skipped, Held: orNull(p.held)}
	if p.scale > 0 {
		l.Scale = orNull(p.scale)
	}
	return l
}

func (l line) point() point {
	p := point{step: l.Step, loss: orNaN(l.Loss), rate: orNaN(l.Rate), skipped: l.Skipped, held: orNaN(l.Held)}
	if l.Scale != nil {
		p.scale = *l.Scale
	}
	return p
}

func orNull(x float64) *float64 {
	if !finite(x) {
		return nil
	}
	return &x
}

func orNaN(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

const csvHeader = "step,loss,lr,scale,skipped,held_out\n"

// csv is the line as a row of curves.csv: empty cells for what is null.
func (l line) csv() string {
	cell := func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'g', -1, 64)
	}
	return fmt.Sprintf("%d,%s,%s,%s,%t,%s\n", l.Step, cell(l.Loss), cell(l.Rate), cell(l.Scale), l.Skipped, cell(l.Held))
}

// curveFiles are the files beside a checkpoint as they are to be: they can be
// written while the run continues.
type curveFiles struct {
	lines, rows, svg []byte
	graph            []byte // the annotated IR; nil where it is there
	add              bool   // to the numbers that are there
	points           int    // that the files hold then
}

// files lays out the numbers since the last files that were written, so that
// long runs do not write everything again and again, and draws the picture.
func (c *curves) files() (curveFiles, error) {
	var lines, rows bytes.Buffer
	if c.saved == 0 {
		rows.WriteString(csvHeader)
	}
	for _, p := range c.points[c.saved:] {
		l := p.line()
		text, err := json.Marshal(l)
		if err != nil {
			return curveFiles{}, fmt.Errorf("curves: %w", err)
		}
		lines.Write(append(text, '\n'))
		rows.WriteString(l.csv())
	}
	return curveFiles{lines: lines.Bytes(), rows: rows.Bytes(), svg: c.svg(), add: c.saved > 0, points: len(c.points)}, nil
}

func (f curveFiles) write(dir string) error {
	write := writeFile
	if f.add {
		write = appendFile
	}
	if err := write(filepath.Join(dir, curvesLines), f.lines); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, curvesTable), f.rows); err != nil {
		return err
	}
	if f.graph != nil {
		if err := writeFile(filepath.Join(dir, graphFile), f.graph); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(dir, curvesFile), f.svg)
}

// wrote takes in what writing files came to. Where it failed a line may be
// there in part: everything is written next time.
func (c *curves) wrote(f curveFiles, err error) {
	c.saved = f.points
	if err != nil {
		c.saved = 0
	}
}

// flush brings the files in dir up to date.
func (c *curves) flush(dir string) error {
	f, err := c.files()
	if err == nil {
		err = f.write(dir)
		c.wrote(f, err)
	}
	return err
}

func appendFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return file.Error(path, err)
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return file.Error(path, err)
	}
	return nil
}

// load reads the points up to a step from the folder of a run; a folder
// without them has none. What stands behind a damaged line is left out.
func (c *curves) load(dir string, last int) error {
	path := filepath.Join(dir, curvesLines)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return file.Error(path, err)
	}
	defer f.Close()
	c.points, c.saved = nil, 0
	for in := bufio.NewScanner(f); in.Scan(); {
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil || l.Step > last || len(c.points) > 0 && l.Step <= c.points[len(c.points)-1].step {
			break
		}
		c.add(l.point())
	}
	return nil
}
