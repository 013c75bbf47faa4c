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
	"ampc/internal/casts"
	"ampc/internal/file"
	"ampc/ir"
)

// saver writes a run's checkpoints while it continues. One at a time is written;
// the one before is kept.
type saver struct {
	*folder
	every time.Duration                          // 0: at the end only
	free  func(dir string) (n int64, known bool) // disk space
	began time.Time                              // the last save, or the run
	busy  chan outcome                           // of the save at work; nil: none
	step  int                                    // of the run's checkpoint on the disk; 0: there is none
	drawn func(err error)                        // is told that curves were written, or why not; in wait and poll
}

// outcome is what a save came to.
type outcome struct {
	step  int
	err   error
	drawn error // what became of the curves
}

const (
	roomBeside = 64 << 10         // what a save needs beside the tensors
	patience   = 10 * time.Minute // for which the last save waits for room
	tryEvery   = 10 * time.Second
)

func newSaver(f *folder, every time.Duration) *saver {
	return &saver{folder: f, every: every, free: file.Free, began: time.Now(), drawn: func(error) {}}
}

// saveTo has the trainer save to a folder.
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

// due says whether it is time to save.
func (s *saver) due() bool {
	return s != nil && s.every > 0 && s.busy == nil && time.Since(s.began) >= s.every
}

// start writes a snapshot and curves while its caller continues. Curves come
// first, so that they are there for every step of a checkpoint; where they
// cannot be written the checkpoint is nevertheless.
func (s *saver) start(snap *ampc.Snapshot, step int, files curveFiles) {
	s.began = time.Now()
	s.busy = make(chan outcome, 1)
	go func() {
		if s.foreign {
			dropEvents(s.dir)
		}
		drawn := files.write(s.dir)
		s.busy <- outcome{step, s.write(snap), drawn}
	}()
}

// wait waits for the save at work, if there is one.
func (s *saver) wait() error {
	if s == nil || s.busy == nil {
		return nil
	}
	return s.took(<-s.busy)
}

// poll is wait for a save that is over; it does not wait for one at work.
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

// failed is the error of a save that came to nothing.
func (s *saver) failed(step int, err error) error {
	return fmt.Errorf("step %d: not saved: %w; %s", step, err, s.kept())
}

// kept says what there is to go back to.
func (s *saver) kept() string {
	if s.step == 0 {
		return "nothing of this run is saved"
	}
	return fmt.Sprintf("the checkpoint of step %d is kept", s.step)
}

// write puts a snapshot in place of the checkpoint, which becomes the one before.
func (s *saver) write(snap *ampc.Snapshot) error {
	if name := snap.NotFinite(); name != "" {
		return fmt.Errorf("%s is not finite any more", name)
	}
	next := filepath.Join(s.dir, nextFile)
	if err := snap.WriteFile(next); err != nil {
		return err
	}
	if err := s.rotate(next); err != nil {
		return err
	}
	if s.foreign {
		s.foreign = false
		os.Remove(filepath.Join(s.dir, previousFile))
	}
	return nil
}

var errNoRoom = errors.New("the disk is full")

// room looks for space for a checkpoint of that size. Where there is none, the
// one before has to go.
func (s *saver) room(bytes int64) error {
	need := bytes + roomBeside
	free, known := s.free(s.dir)
	if known && free < need {
		os.Remove(filepath.Join(s.dir, previousFile))
		free, _ = s.free(s.dir)
	}
	if known && free < need {
		return fmt.Errorf("%s: %w: %s free, a checkpoint takes %s", s.dir, errNoRoom, casts.Size(free), casts.Size(need))
	}
	return nil
}

// snapshot is the model as it is, with where its training stands.
func (t *trainer) snapshot() (*ampc.Snapshot, error) {
	run, err := t.settings()
	if err != nil {
		return nil, err
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
			return nil, err
		}
	}
	return t.model.Snapshot()
}

// checkpoint begins to save the step that was made last.
func (t *trainer) checkpoint() error {
	snap, err := t.snapshot()
	if err == nil {
		err = t.saver.room(snap.Bytes())
	}
	if err != nil {
		return t.saver.failed(t.done, err)
	}
	files := t.curves.files()
	if !t.explained {
		var b bytes.Buffer
		if err := t.step.Graph().Print(&b, ir.Reasons); err != nil {
			return err
		}
		files.graph = b.Bytes()
	}
	t.saver.start(snap, t.done, files)
	return nil
}

// saveDue saves where it is time to. A save that fails does not end the run,
// which would lose more.
func (t *trainer) saveDue() {
	err := t.saver.poll()
	if err == nil && t.saver.due() {
		err = t.checkpoint()
	}
	if err != nil {
		t.saver.began = time.Now()
		t.bar.note("%v; training continues", err)
	}
}

// save saves the last step and waits until it is on the disk. Where there is no
// room it waits for some, unless something wants the run to end.
func (t *trainer) save(ctx context.Context) error {
	if err := t.saver.wait(); err != nil {
		t.bar.note("%v", err)
	}
	if t.saver.step == t.done { // it is there already
		return t.curves.files().write(t.saver.dir)
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
