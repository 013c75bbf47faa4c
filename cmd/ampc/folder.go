package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ampc/internal/file"
)

// What a training run writes to its folder.
const (
	checkpointFile = "checkpoint.safetensors"
	previousFile   = "checkpoint-before.safetensors" // the one before
	nextFile       = "checkpoint-next.safetensors"   // written whole, not yet renamed
	graphFile      = "step.ir"
	curvesFile     = "curves.svg"
	curvesLines    = "curves.jsonl" // the numbers behind the picture
	curvesTable    = "curves.csv"
	lockFile       = ".lock"
)

// checkpoints are the files that a run can continue from, the newest first.
// Curves without one are of a run that was killed in its first save.
var checkpoints = []string{checkpointFile, nextFile, previousFile}

// written are all files of a run.
var written = append([]string{curvesLines, curvesTable, curvesFile, graphFile}, checkpoints...)

// folder is where a run writes, locked against other runs.
type folder struct {
	dir  string
	lock *os.File
	made bool // by this run

	foreign bool // it holds a run that this one replaces
	mine    bool // it holds the run that this one continues with
}

// defaultFolder is where a run without --out goes; further ones take out-2, out-3 and so on.
const defaultFolder = "out"

// claim locks a folder, makes it where it is not there, and puts in order what
// a killed run left.
func claim(dir string) (*folder, error) {
	_, err := os.Stat(dir)
	f := &folder{dir: dir, made: err != nil}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, file.Error(dir, err)
	}
	f.lock, err = file.Lock(filepath.Join(dir, lockFile))
	if errors.Is(err, file.ErrLocked) {
		return nil, fmt.Errorf("%s: another ampc train is running there: %w", dir, err)
	} else if err != nil {
		return nil, err
	}
	file.Sweep(dir, written...)
	if err := f.settle(); err != nil {
		f.release()
		return nil, err
	}
	return f, nil
}

// settle finishes what a run was killed at while it put a new checkpoint in
// place of the one before.
func (f *folder) settle() error {
	next := filepath.Join(f.dir, nextFile)
	if _, err := os.Stat(next); err != nil {
		return nil
	}
	return f.rotate(next)
}

// rotate makes next the checkpoint, and the checkpoint the one before. A process
// that is killed meanwhile leaves next, and settle continues from there.
func (f *folder) rotate(next string) error {
	current := filepath.Join(f.dir, checkpointFile)
	if err := os.Rename(current, filepath.Join(f.dir, previousFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return file.Error(current, err)
	}
	if err := os.Rename(next, current); err != nil {
		return file.Error(current, err)
	}
	return nil
}

// holdsWork says whether the folder has what a run must not overwrite.
func holdsWork(dir string) bool {
	return slices.ContainsFunc(checkpoints, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// release gives the folder up. One that was made for a run that then wrote
// nothing disappears.
func (f *folder) release() {
	if f.made && !holdsWork(f.dir) {
		os.Remove(filepath.Join(f.dir, lockFile))
		os.Remove(f.dir) // fails where there is something else
	}
	f.lock.Close()
}

// fresh claims the first of out, out-2, out-3, ... that holds no work and that
// no run is at.
func fresh() (*folder, error) {
	for n := 1; ; n++ {
		dir := defaultFolder
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", defaultFolder, n)
		}
		if holdsWork(dir) {
			continue
		}
		f, err := claim(dir)
		switch {
		case errors.Is(err, file.ErrLocked):
			continue
		case err != nil:
			return nil, err
		case !holdsWork(dir): // another run may have come and gone meanwhile
			return f, nil
		}
		f.release()
	}
}

// newest is the folder of the run that was saved last among those that runs
// without --out took.
func newest() (string, error) {
	dirs, _ := filepath.Glob(defaultFolder + "-*")
	best, at := "", time.Time{}
	for _, dir := range append(dirs, defaultFolder) {
		if number, ok := strings.CutPrefix(dir, defaultFolder+"-"); ok && strings.Trim(number, "0123456789") != "" {
			continue
		}
		for _, name := range checkpoints {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(at) {
				best, at = dir, info.ModTime()
			}
		}
	}
	if best == "" {
		return "", fmt.Errorf("--resume: no checkpoint in %s or %s-2, ... here: give its folder, as in --resume=DIR", defaultFolder, defaultFolder)
	}
	return best, nil
}

// place claims the folder of a run, and for one that continues takes over what it
// was, its model included.
func (f *trainFlags) place(spec string, given func(flag string) bool) (*folder, string, error) {
	switch {
	case f.resume != "":
		return f.goOn(spec, given)
	case f.out == "":
		d, err := fresh()
		return d, spec, err
	}
	d, err := f.take(f.out)
	return d, spec, err
}

// take claims a folder that holds no run, or one that --force gives up.
func (f *trainFlags) take(dir string) (*folder, error) {
	d, err := claim(dir)
	if err != nil {
		return nil, err
	}
	if d.foreign = holdsWork(dir); d.foreign && !f.force {
		d.release()
		return nil, fmt.Errorf("%s: holds %s: continue with --resume, replace it with --force, or choose another --out", dir, held(dir))
	}
	return d, nil
}

// held is what a folder holds, for people.
func held(dir string) string {
	o, err := original(dir)
	if err != nil {
		return "the files of a run"
	}
	return fmt.Sprintf("step %d of %s", o.done, o.spec)
}

// goOn finds the checkpoint that --resume means, and the folder to continue in.
func (f *trainFlags) goOn(spec string, given func(flag string) bool) (*folder, string, error) {
	from := f.resume
	if from == resumeNewest {
		from = f.out
	}
	if from == "" {
		var err error
		if from, err = newest(); err != nil {
			return nil, "", err
		}
	}
	info, err := os.Stat(from)
	if err != nil {
		return nil, "", file.Error(from, err)
	}
	home := from
	if !info.IsDir() {
		home = filepath.Dir(from)
	}
	d, err := f.home(home, info.IsDir() || slices.Contains(checkpoints, filepath.Base(from)))
	if err != nil {
		return nil, "", err
	}
	o, err := original(from)
	if err == nil {
		spec, err = f.adopt(o, spec, given)
	}
	if err != nil {
		d.release()
		return nil, "", err
	}
	return d, spec, nil
}

// home is the folder of a run that continues: the one that --out names, the one
// that it was in if that is the folder of a run, or a new one.
func (f *trainFlags) home(old string, run bool) (*folder, error) {
	a, err := os.Stat(old)
	if err != nil {
		return nil, file.Error(old, err)
	}
	b, err := os.Stat(f.out)
	switch same := err == nil && os.SameFile(a, b); {
	case same || f.out == "" && run:
		d, err := claim(old)
		if err == nil {
			d.mine = true
		}
		return d, err
	case f.out == "":
		return fresh()
	}
	return f.take(f.out)
}
