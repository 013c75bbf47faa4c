package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/world"
)

// sharded reports whether the ranks have parts of the state, which each of them writes.
func (t *trainer) sharded() bool { return t.flags.shard && t.flags.group != nil }

// told returns what rank 0 says; nothing else is taken from the other ranks.
func (c *rankGroup) told(text string) (string, error) {
	own := make([]byte, 4096) // the longest path of Linux
	if len(text) >= len(own) {
		return "", c.agree(fmt.Errorf("a path of %d bytes is too long", len(text)))
	}
	copy(own, text)
	all := make([]byte, len(own)*c.Size())
	m := &world.Message{Name: "folder", Op: world.Gather, DType: ir.U8, Wire: ir.F32, In: [][]byte{own}, Out: [][]byte{all}}
	if err := c.Start(m); err != nil {
		return "", err
	}
	err := c.Wait(context.Background(), m)
	return string(bytes.TrimRight(all[:len(own)], "\x00")), err
}

// placeShards tells all ranks the folder to which each of them writes its shards.
func (t *trainer) placeShards() error {
	if !t.sharded() {
		return nil
	}
	dir, err := "", error(nil)
	if t.saver != nil {
		dir, err = filepath.Abs(t.saver.dir)
	}
	if err := t.flags.group.agree(err); err != nil {
		return err
	}
	t.shards, err = t.flags.group.told(dir)
	return err
}

// saveShards saves the last step. All ranks call it, and training waits for it.
func (t *trainer) saveShards() error {
	if t.shards == "" || t.saved == t.done {
		return nil
	}
	group, root := t.flags.group, t.saver != nil
	err := t.describe()
	if err == nil && root {
		err = t.saver.makeSpace(t.report.State * int64(group.Size()))
		if err == nil {
			err = t.writeCurves()
		}
	}
	err = group.agree(err)
	if err == nil {
		err = t.finite()
	}
	next := filepath.Join(t.shards, nextFile)
	if err == nil {
		err = t.model.SaveFile(next)
	}
	if root && err == nil {
		err = t.saver.replace(next)
	}
	if err = group.agree(err); err == nil {
		t.saved = t.done
	}
	if !root {
		return err
	}
	t.saver.began = time.Now()
	if err != nil {
		return t.saver.failed(t.done, err)
	}
	t.saver.step = t.done
	return nil
}

// finite returns an error on all ranks where a parameter has NaN or Inf.
func (t *trainer) finite() error {
	name, err := t.model.NotFinite()
	if err == nil && name != "" {
		err = fmt.Errorf("%s is not finite any more", name)
	}
	return err
}

// writeCurves writes the curves and the annotated IR to the folder. If it cannot, that is noted.
func (t *trainer) writeCurves() error {
	files, err := t.curveFiles()
	if err == nil {
		t.saver.drawn(t.saver.draw(files))
	}
	return err
}

// saveLast saves the last step and brings together the weights that finish evaluates, where the ranks
// have parts of them. If there is not enough space, it waits for some until the context ends. The
// error is that of ranks that do not answer; what became of the save is for finish.
func (t *trainer) saveLast(ctx context.Context) error {
	if !t.sharded() || t.done == t.started {
		return nil
	}
	group := t.flags.group
	for end := time.Now().Add(patience); ; {
		t.unsaved = t.saveShards()
		full, lost := group.any(errors.Is(t.unsaved, errNoRoom) || errors.Is(t.unsaved, syscall.ENOSPC))
		if lost != nil {
			return lost
		}
		over, lost := group.any(ctx.Err() != nil || time.Now().After(end))
		if lost != nil {
			return lost
		}
		if !full || over {
			break
		}
		if t.saver != nil {
			t.bar.note("%v; trying again for %v, until Ctrl-C", t.unsaved, time.Until(end).Round(time.Second))
		}
		time.Sleep(tryEvery)
	}
	_, _, err := t.evaluate(group.stepContext(ctx))
	return err
}

// sweepShards removes the shards of checkpoints that are gone.
func (f *folder) sweepShards() { safetensors.Sweep(filepath.Join(f.dir, nextFile)) }
