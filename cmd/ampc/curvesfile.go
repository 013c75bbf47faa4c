package main

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"ampc/fit"
)

// The columns of a run's logs beside step and epoch.
const (
	lossColumn    = "loss"
	rateColumn    = "lr"
	scaleColumn   = "scale"
	skippedColumn = "skipped"
	normColumn    = "grad_norm"
	heldColumn    = "held_out"
	memoryColumn  = "memory" // bytes of the arenas, in the first row of each start
	paceSuffix    = "/s"     // behind the unit: tokens/s

	highColumn, highValueColumn = "range_high", "range_high_value"
	lowColumn, lowValueColumn   = "range_low", "range_low_value"
)

// columns are those of the logs.
func (c *curves) columns() []string {
	list := []string{lossColumn, rateColumn, scaleColumn, skippedColumn, normColumn, heldColumn, c.unit + paceSuffix, memoryColumn}
	if c.ranges {
		list = append(list, highColumn, highValueColumn, lowColumn, lowValueColumn)
	}
	return list
}

// row is a point as the logs hold it: what was not computed is not there.
func (c *curves) row(p point) fit.Row {
	r := fit.Row{Step: p.step, Epoch: p.epoch, Time: p.time, Values: map[string]float64{lossColumn: p.loss, rateColumn: p.rate, skippedColumn: 0}}
	if p.skipped {
		r.Values[skippedColumn] = 1
	}
	for name, x := range map[string]float64{normColumn: p.norm, heldColumn: p.heldOut} {
		if !math.IsNaN(x) {
			r.Values[name] = x
		}
	}
	for name, x := range map[string]float64{scaleColumn: p.scale, c.unit + paceSuffix: p.pace, memoryColumn: float64(p.memory)} {
		if x > 0 {
			r.Values[name] = x
		}
	}
	p.worst.write(&r)
	return r
}

// pointOf is what a row says.
func (c *curves) pointOf(r fit.Row) point {
	value := func(name string) float64 {
		if x, there := r.Values[name]; there {
			return x
		}
		return math.NaN()
	}
	above := func(name string) float64 { return max(r.Values[name], 0) }
	p := point{step: r.Step, epoch: r.Epoch, loss: value(lossColumn), rate: value(rateColumn), skipped: r.Values[skippedColumn] == 1,
		norm: value(normColumn), heldOut: value(heldColumn), pace: above(c.unit + paceSuffix), memory: int64(above(memoryColumn))}
	if s := value(scaleColumn); s > 0 { // null in older logs where nothing scales the loss
		p.scale = s
	}
	p.worst = worstOf(r)
	return p
}

// runLogs are the logs of a run in its folder: package fit writes them.
type runLogs struct{ list []runLog }

// runLog is one of them.
type runLog struct {
	fit.Log
	open  bool
	saved int // points that it holds
}

// logsIn are the logs of a run in dir, of whose points the event files have the first
// so many. The numbers of the others are written anew: those of older runs have other
// columns.
func logsIn(dir string, events int) *runLogs {
	return &runLogs{[]runLog{{Log: fit.JSONLines(filepath.Join(dir, curvesLines))}, {Log: fit.CSV(filepath.Join(dir, curvesTable))},
		{Log: fit.TensorBoard(dir), saved: events}}}
}

// write adds the points that the logs do not have. After an error it begins where they
// were whole.
func (l *runLogs) write(c *curves, points []point) error {
	var failed error
	for i := range l.list {
		if err := l.list[i].write(c, points); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (l *runLog) write(c *curves, points []point) (err error) {
	if !l.open {
		step := 0
		if l.saved > 0 {
			step = points[l.saved-1].step
		}
		if err := l.Begin(c.columns(), step); err != nil {
			return err
		}
		l.open = true
	}
	defer func() {
		if err != nil {
			l.Close()
			l.open = false
		}
	}()
	for _, p := range points[l.saved:] {
		if err := l.Write(c.row(p)); err != nil {
			return err
		}
	}
	if err = l.Flush(); err == nil {
		l.saved = len(points)
	}
	return err
}

// close closes the logs.
func (l *runLogs) close() {
	for i := range l.list {
		if l.list[i].open {
			l.list[i].Close()
			l.list[i].open = false
		}
	}
}

// curveFiles has the new content of the files beside a checkpoint. It does not change while the run
// continues.
type curveFiles struct {
	curves *curves
	points []point // so far
	svg    []byte
	graph  []byte // the annotated IR; nil where it is there
}

// files lays out the numbers and draws the picture.
func (c *curves) files() curveFiles {
	n := len(c.points)
	return curveFiles{curves: c, points: c.points[:n:n], svg: c.svg()}
}

func (f curveFiles) write(dir string) error {
	if f.curves == nil {
		return nil
	}
	if err := f.curves.logs.write(f.curves, f.points); err != nil {
		return err
	}
	if f.graph != nil {
		if err := writeFile(filepath.Join(dir, graphFile), f.graph); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(dir, curvesFile), f.svg)
}

// load reads the points up to a step from the folder of a run; a folder
// without them has none. What stands behind a damaged line is left out.
func (c *curves) load(dir string, last int) error {
	rows, _, err := fit.ReadJSONLines(filepath.Join(dir, curvesLines))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	c.points = nil
	for _, r := range rows {
		if r.Step > last {
			break
		}
		c.add(c.pointOf(r))
	}
	return nil
}

// eventFiles are TensorBoard's in the folder of a run.
func eventFiles(dir string) []string {
	list, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*")) // dir has no pattern that is malformed, or there are none
	return list
}

// dropEvents removes the event files of a run that another one replaces: TensorBoard
// would show both as one.
func dropEvents(dir string) {
	for _, path := range eventFiles(dir) {
		os.Remove(path)
	}
}
