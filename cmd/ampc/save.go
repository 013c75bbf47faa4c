package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"ampc"
	"ampc/internal/file"
	"ampc/ir"
)

// saver writes a run's checkpoints while the run continues. At most one save is in progress. The
// previous checkpoint is kept.
type saver struct {
	*folder
	every time.Duration                          // 0: at the end only
	free  func(dir string) (n int64, known bool) // disk space
	began time.Time                              // the last save, or the run
	busy  chan outcome                           // of the save at work; nil: none
	step  int                                    // of the run's checkpoint on the disk; 0: there is none
	drawn func(err error)                        // is told that curves were written, or why not; in wait and poll
}

// outcome is the result of a save.
type outcome struct {
	step  int
	err   error
	drawn error // what became of the curves
}

const (
	saveOverhead = 64 << 10         // space that a save needs in addition to the tensors, in bytes
	patience     = 10 * time.Minute // how long the last save waits for free space
	tryEvery     = 10 * time.Second
)

func newSaver(f *folder, every time.Duration) *saver {
	return &saver{folder: f, every: every, free: file.Free, began: time.Now(), drawn: func(error) {}}
}

// saveTo makes the trainer save to a folder.
func (t *trainer) saveTo(dir *folder) {
	t.saver = newSaver(dir, t.flags.saveEvery)
	t.curves.logs = logsIn(dir.dir, 0)
	t.saver.drawn = func(err error) {
		t.explained = t.explained || err == nil
		if err != nil {
			t.bar.note("step %d: %v", t.done, err)
		}
	}
}

// due reports whether a save is due.
func (s *saver) due() bool {
	return s != nil && s.every > 0 && s.busy == nil && time.Since(s.began) >= s.every
}

// start begins to write a snapshot and curves while its caller continues. Curves are written first,
// so that they cover every step of a checkpoint. If they cannot be written, the checkpoint is
// written all the same.
func (s *saver) start(snap *ampc.Snapshot, step int, files curveFiles) {
	s.began = time.Now()
	s.busy = make(chan outcome, 1)
	go func() {
		drawn := s.draw(files)
		s.busy <- outcome{step, s.write(snap), drawn}
	}()
}

// draw writes curves.
func (s *saver) draw(files curveFiles) error {
	if s.replaces {
		dropEvents(s.dir)
	}
	return files.write(s.dir)
}

// wait waits for the save in progress, if there is one.
func (s *saver) wait() error {
	if s == nil || s.busy == nil {
		return nil
	}
	return s.took(<-s.busy)
}

// poll is wait for a finished save. It does not wait for one in progress.
func (s *saver) poll() error {
	if s == nil || s.busy == nil {
		return nil
	}
	select {
	case o := <-s.busy:
		return s.took(o)
	default:
		return nil
	}
}

func (s *saver) took(o outcome) error {
	s.busy = nil
	s.drawn(o.drawn)
	if o.err == nil {
		s.step = o.step
		return nil
	}
	return s.failed(o.step, o.err)
}

// failed returns the error of a failed save.
func (s *saver) failed(step int, err error) error {
	return fmt.Errorf("step %d: not saved: %w; %s", step, err, s.kept())
}

// kept describes the checkpoint that remains after a failed save.
func (s *saver) kept() string {
	if s.step == 0 {
		return "nothing of this run is saved"
	}
	return fmt.Sprintf("the checkpoint of step %d is kept", s.step)
}

// write replaces the checkpoint by a snapshot, and keeps the old one as the previous checkpoint.
func (s *saver) write(snap *ampc.Snapshot) error {
	if name := snap.NotFinite(); name != "" {
		return fmt.Errorf("%s is not finite any more", name)
	}
	next := filepath.Join(s.dir, nextFile)
	if err := snap.WriteFile(next); err != nil {
		return err
	}
	return s.replace(next)
}

// replace makes next the checkpoint, and the old one the previous one.
func (s *saver) replace(next string) error {
	if err := s.rotate(next); err != nil {
		return err
	}
	if s.replaces {
		s.replaces = false
		os.Remove(filepath.Join(s.dir, previousFile))
	}
	s.sweepShards()
	return nil
}

var errNoRoom = errors.New("the disk is full")

// makeSpace checks that there is space for a checkpoint of the given size. If there is not, it
// removes the previous checkpoint.
func (s *saver) makeSpace(bytes int64) error {
	need := bytes + saveOverhead
	free, known := s.free(s.dir)
	if known && free < need {
		os.Remove(filepath.Join(s.dir, previousFile))
		s.sweepShards()
		free, _ = s.free(s.dir)
	}
	if known && free < need {
		return fmt.Errorf("%s: %w: %s free, a checkpoint takes %s", s.dir, errNoRoom, ir.Bytes(free), ir.Bytes(need))
	}
	return nil
}

// describe puts the progress of training into the metadata of checkpoints.
func (t *trainer) describe() error {
	run, err := t.settings()
	if err != nil {
		return err
	}
	meta := map[string]string{
		"spec": t.spec, "position": strconv.FormatInt(t.position, 10), "steps": strconv.Itoa(t.done),
		"skipped": strconv.Itoa(t.skipped), "seed": strconv.FormatInt(t.flags.seed, 10), "run": run,
	}
	for k, v := range t.meta {
		meta[k] = v
	}
	for k, v := range meta {
		if err := t.model.SetMeta(k, v); err != nil {
			return err
		}
	}
	return nil
}

// curveFiles are the curves, and the annotated IR where it has not been written.
func (t *trainer) curveFiles() (curveFiles, error) {
	files := t.curves.files()
	if t.explained {
		return files, nil
	}
	var b bytes.Buffer
	err := t.step.Graph().Print(&b, ir.Reasons)
	files.graph = b.Bytes()
	return files, err
}

// checkpoint begins to save the last step; ranks that have parts of the state save it at once, together.
func (t *trainer) checkpoint() error {
	if t.sharded() {
		return t.saveShards()
	}
	var snap *ampc.Snapshot
	err := t.describe()
	if err == nil {
		snap, err = t.model.Snapshot()
	}
	if err == nil {
		err = t.saver.makeSpace(snap.Bytes())
	}
	if err != nil {
		return t.saver.failed(t.done, err)
	}
	files, err := t.curveFiles()
	if err != nil {
		return err
	}
	t.saver.start(snap, t.done, files)
	return nil
}

// saveDue saves if a save is due. A failed save does not end the run, because that would lose more
// work.
func (t *trainer) saveDue() {
	err := t.saver.poll()
	due := err == nil && t.saver.due()
	if t.sharded() {
		var lost error
		due, lost = t.flags.group.any(due)
		err = errors.Join(err, lost)
	}
	if due {
		err = t.checkpoint()
	}
	if err != nil {
		if t.saver != nil {
			t.saver.began = time.Now()
		}
		t.bar.note("%v; training continues", err)
	}
}

// save saves the last step and waits until it is on disk. If there is not enough space, it waits
// for some until the context ends.
func (t *trainer) save(ctx context.Context) error {
	if err := t.saver.wait(); err != nil {
		t.bar.note("%v", err)
	}
	if t.saver.step == t.done { // it is there already
		return t.curves.files().write(t.saver.dir)
	}
	if t.sharded() { // see saveLast
		return t.unsaved
	}
	for end := time.Now().Add(patience); ; {
		err := t.checkpoint()
		if err == nil {
			err = t.saver.wait()
		}
		full := errors.Is(err, errNoRoom) || errors.Is(err, syscall.ENOSPC)
		if !full || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		t.bar.note("%v; trying again for %v, until Ctrl-C", err, time.Until(end).Round(time.Second))
		select {
		case <-ctx.Done():
		case <-time.After(tryEvery):
		}
	}
}
