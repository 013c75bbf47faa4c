package gpu

import (
	"context"
	"fmt"
	"slices"

	"ampc/cuda"
	"ampc/ir"
	"ampc/runtime"
)

// pause holds the arguments of BeforeUpdate.
type pause struct {
	flags  []cuda.Ptr
	noted  cuda.Ptr // one byte for each flag after each micro-batch
	decide runtime.Decide
}

// BeforeUpdate implements runtime.Pauser. A step is two graphs then. The host waits for the first, and reads the flags.
func (e *Exec) BeforeUpdate(flags []string, micro int, decide runtime.Decide) error {
	p := &pause{decide: decide}
	for _, name := range flags {
		v, err := e.store.find(name, int(ir.T(ir.Bool).Bytes()))
		if err != nil {
			return fmt.Errorf("%s: a flag: %w", e.b.name, err)
		}
		p.flags = append(p.flags, v.at)
	}
	err := e.b.do(func() (err error) {
		p.noted, err = e.own(int64(micro*len(flags)), "flags of micro-batches")
		return err
	})
	if err != nil {
		return err
	}
	e.pause = p
	return nil
}

var _ runtime.Pauser = (*Exec)(nil)

// clear issues the operations that set the flags to false.
func (e *Exec) clear() error {
	for _, flag := range e.pause.flags {
		if err := e.b.d.Fill8(flag, 0, 1, e.b.stream()); err != nil {
			return err
		}
	}
	return nil
}

// note issues the copies of the flags after micro-batch i.
func (e *Exec) note(i int) error {
	p := e.pause
	for k, flag := range p.flags {
		if err := e.b.d.Copy(p.noted+cuda.Ptr(i*len(p.flags)+k), flag, 1, e.b.stream()); err != nil {
			return err
		}
	}
	return nil
}

// stepWithPause runs a step that pauses before its update. Other calls may run in between.
func (e *Exec) stepWithPause(ctx context.Context, feeds []runtime.Feed) (runtime.Future, error) {
	v := variant{micro: len(feeds), stages: gradients}
	noted := make([]byte, len(feeds)*len(e.pause.flags))
	err := e.b.do(func() error {
		if err := e.makeRoom(v.micro); err != nil {
			return err
		}
		if err := e.stage(feeds); err != nil {
			return err
		}
		v.casts = e.stale()
		if err := e.run(v); err != nil {
			return err
		}
		return e.b.download(noted, e.pause.noted)
	})
	if err != nil {
		_, err = e.issued(err)
		return nil, err
	}
	flags := e.decide(ctx, feeds, noted)
	v.stages = update
	t, err := e.issued(e.b.do(func() error {
		if err := e.clear(); err != nil {
			return err
		}
		for k, set := range flags {
			if set {
				if err := e.b.d.Fill8(e.pause.flags[k], 1, 1, e.b.stream()); err != nil {
					return err
				}
			}
		}
		if err := e.run(v); err != nil {
			return err
		}
		return e.keep()
	}))
	if err != nil {
		return nil, err
	}
	return t, nil
}

// decide asks for the values of the flags in the update, if one was set.
func (e *Exec) decide(ctx context.Context, feeds []runtime.Feed, noted []byte) []bool {
	if !slices.ContainsFunc(noted, func(b byte) bool { return b != 0 }) {
		return nil
	}
	set := make([][]bool, len(feeds))
	for i := range set {
		for k := range e.pause.flags {
			set[i] = append(set[i], noted[i*len(e.pause.flags)+k] != 0)
		}
	}
	return e.pause.decide(ctx, feeds, set)
}
