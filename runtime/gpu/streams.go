package gpu

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/lower"
)

// The answers of chooseStreams, in a Choice's Name.
const (
	twoStreams = "two streams"
	oneStream  = "one stream"
)

// chooseStreams measures a Program's micro-batch on two streams and with all of it on the first, and keeps
// the faster. Both give the same bits. What the measurement writes is restored, or written by every
// step. Where ranks exchange data, or there is no memory for copies, both streams are used.
func (e *Exec) chooseStreams() error {
	b := e.b
	if !b.tune || len(b.streams) < 2 || !e.forks() || e.transfers() {
		return nil
	}
	restore, err := e.saved()
	if errors.Is(err, cuda.ErrOutOfMemory) {
		return restore()
	}
	if err != nil {
		return errors.Join(err, restore())
	}
	if err := b.startBlas(); err != nil {
		return errors.Join(err, restore())
	}
	c, err := b.choices().PickFaster(b.blas, e.work(), []string{twoStreams, oneStream}, b.stream(), func(i int) error {
		e.single = i == 1
		return errors.Join(e.part(lower.Prepare, true), e.part(lower.Micro, true))
	})
	e.single = c.Name == oneStream
	if err == nil {
		b.choose(c)
		b.keepChoices()
	}
	return errors.Join(err, restore())
}

// forks reports whether a step of the Program runs on another stream than the first.
func (e *Exec) forks() bool {
	for _, part := range []lower.Part{lower.Prepare, lower.Micro} {
		for i := range e.steps[part] {
			if e.steps[part][i].stream > 0 {
				return true
			}
		}
	}
	return false
}

// transfers reports whether the Program exchanges data with other ranks.
func (e *Exec) transfers() bool {
	for _, steps := range e.p.Parts {
		for i := range steps {
			if steps[i].Transfer != nil {
				return true
			}
		}
	}
	return false
}

// work names what is measured: the steps, with their sizes.
func (e *Exec) work() string {
	return fmt.Sprintf("streams of %s, %x", e.p.Name, sha256.Sum256([]byte(e.p.String())))[:len("streams of , ")+len(e.p.Name)+16]
}

// saved fills the inputs with zeros and copies the variables that prepare and micro write. The function
// that it returns writes these back and frees the copies.
func (e *Exec) saved() (restore func() error, err error) {
	type save struct {
		at, copy cuda.Ptr
		bytes    int64
	}
	var list []save
	d, s := e.b.d, e.b.stream()
	restore = func() error {
		var err error
		for _, x := range list {
			err = errors.Join(err, d.Copy(x.at, x.copy, x.bytes, s))
		}
		err = errors.Join(err, d.Synchronize(s))
		for _, x := range list {
			err = errors.Join(err, d.Free(x.copy))
		}
		return err
	}
	if n := e.p.Arenas[lower.InputArena]; n > 0 {
		if err := d.Fill8(e.arena, 0, n, s); err != nil {
			return restore, err
		}
	}
	seen := map[cuda.Ptr]bool{}
	for _, part := range []lower.Part{lower.Prepare, lower.Micro} {
		for i := range e.p.Parts[part] {
			for _, id := range e.p.Parts[part][i].Out {
				buf := &e.p.Buffers[id]
				if buf.Arena != lower.StateArena || seen[e.at[id]] {
					continue
				}
				seen[e.at[id]] = true
				at, err := e.b.alloc(buf.Size, "copies of variables while streams are measured")
				if err != nil {
					return restore, err
				}
				list = append(list, save{e.at[id], at, buf.Size})
				if err := d.Copy(at, e.at[id], buf.Size, s); err != nil {
					return restore, err
				}
			}
		}
	}
	return restore, nil
}
