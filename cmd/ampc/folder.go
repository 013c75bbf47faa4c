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

// files that a training run writes to its folder
const (
	checkpointFile = "checkpoint.safetensors"
	previousFile   = "checkpoint-before.safetensors" // the previous checkpoint
	nextFile       = "checkpoint-next.safetensors"   // completely written, not yet renamed
	graphFile      = "step.ir"
	curvesFile     = "curves.svg"
	curvesLines    = "curves.jsonl" // the numbers shown in the picture
	curvesTable    = "curves.csv"
	lockFile       = ".lock"
)

// checkpoints are the files from which a run can continue, the newest first. A folder with curves
// and no checkpoint belongs to a run that was killed during its first save.
var checkpoints = []string{checkpointFile, nextFile, previousFile}

// written lists all files of a run.
var written = append([]string{curvesLines, curvesTable, curvesFile, graphFile}, checkpoints...)

// folder is the output folder of a run, locked against other runs.
type folder struct {
	dir  string
	lock *os.File
	made bool // this run created the folder

	replaces bool // the folder holds a run that this one replaces
	mine     bool // the folder holds the run that this one continues
}

// defaultFolder is the output folder of a run without --out. Further runs use out-2, out-3 and so
// on.
const defaultFolder = "out"

// claim creates the folder if necessary, locks it, and completes an interrupted rotation of
// checkpoints.
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
	if err := f.finishRotation(); err != nil {
		f.release()
		return nil, err
	}
	f.sweepShards()
	return f, nil
}

// finishRotation completes the rotation of a process that was killed during it.
func (f *folder) finishRotation() error {
	next := filepath.Join(f.dir, nextFile)
	if _, err := os.Stat(next); err != nil {
		return nil
	}
	return f.rotate(next)
}

// rotate renames the checkpoint to the previous one, and next to the checkpoint. If the process is
// killed in between, next remains and finishRotation continues from there.
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

// hasRun reports whether the folder holds files that a run must not overwrite.
func hasRun(dir string) bool {
	return slices.ContainsFunc(checkpoints, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// release unlocks the folder. It removes a folder that this run created and wrote nothing to.
func (f *folder) release() {
	if f.made && !hasRun(f.dir) {
		os.Remove(filepath.Join(f.dir, lockFile))
		os.Remove(f.dir) // fails if the folder holds other files
	}
	f.lock.Close()
}

// claimUnused claims the first of out, out-2, out-3, ... that holds no run and that no run has
// locked.
func claimUnused() (*folder, error) {
	for n := 1; ; n++ {
		dir := defaultFolder
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", defaultFolder, n)
		}
		if hasRun(dir) {
			continue
		}
		f, err := claim(dir)
		switch {
		case errors.Is(err, file.ErrLocked):
			continue
		case err != nil:
			return nil, err
		case !hasRun(dir): // another run may have started and ended in between
			return f, nil
		}
		f.release()
	}
}

// newest returns the default folder of the run that was saved last.
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

// place claims the folder of a run. A run that continues also takes over its earlier settings,
// including its model.
func (f *trainFlags) place(spec string, given func(flag string) bool) (*folder, string, error) {
	switch {
	case f.resume != "":
		return f.continueRun(spec, given)
	case f.out == "":
		d, err := claimUnused()
		return d, spec, err
	}
	d, err := f.take(f.out)
	return d, spec, err
}

// take claims a folder that holds no run, or whose run --force replaces.
func (f *trainFlags) take(dir string) (*folder, error) {
	d, err := claim(dir)
	if err != nil {
		return nil, err
	}
	if d.replaces = hasRun(dir); d.replaces && !f.force {
		d.release()
		return nil, fmt.Errorf("%s: holds %s: continue with --resume, replace it with --force, or choose another --out", dir, describeRun(dir))
	}
	return d, nil
}

// describeRun describes the run in a folder for a message.
func describeRun(dir string) string {
	o, err := original(dir)
	if err != nil {
		return "the files of a run"
	}
	return fmt.Sprintf("step %d of %s", o.done, o.spec)
}

// continueRun finds the checkpoint that --resume names, and claims the folder to continue in.
func (f *trainFlags) continueRun(spec string, given func(flag string) bool) (*folder, string, error) {
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
	d, err := f.resumeFolder(home, info.IsDir() || slices.Contains(checkpoints, filepath.Base(from)))
	if err != nil {
		return nil, "", err
	}
	o, err := original(from)
	if err == nil {
		spec, err = f.inheritSettings(o, spec, given)
	}
	if err != nil {
		d.release()
		return nil, "", err
	}
	return d, spec, nil
}

// resumeFolder claims the folder of a continued run: the one that --out names, else the one of the
// checkpoint if it is the folder of a run, else a new one.
func (f *trainFlags) resumeFolder(old string, run bool) (*folder, error) {
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
		return claimUnused()
	}
	return f.take(f.out)
}
