package cpu

import (
	"context"
	"fmt"

	"ampc/ir"
	"ampc/runtime"
)

// pause is what BeforeUpdate has asked for. A nil pause does nothing.
type pause struct {
	flags [][]byte // memory of each
	set   [][]bool // by micro-batch
	any   bool
	ask   runtime.Decide
}

// BeforeUpdate implements runtime.Pauser. No step may be running. A decide that loads
// programs does so on Backend.Inside.
func (x *program) BeforeUpdate(flags []string, micro int, decide runtime.Decide) error {
	p := &pause{set: make([][]bool, micro), ask: decide}
	for _, name := range flags {
		mem, err := x.store.View(name)
		if err == nil && x.store.vars[name].t != ir.T(ir.Bool) {
			err = fmt.Errorf("%q is %s, want bool[]", name, x.store.vars[name].t)
		}
		if err != nil {
			return fmt.Errorf("cpu: a flag: %w", err)
		}
		p.flags = append(p.flags, mem)
	}
	x.pause = p
	return nil
}

// clear sets the flags to false, before a micro-batch.
func (p *pause) clear() {
	if p == nil {
		return
	}
	for _, f := range p.flags {
		f[0] = 0
	}
}

// note keeps what a micro-batch has made of the flags.
func (p *pause) note(micro int) {
	if p == nil {
		return
	}
	if p.set[micro] == nil {
		p.set[micro] = make([]bool, len(p.flags))
	}
	p.any = p.any && micro > 0
	for k, f := range p.flags {
		p.set[micro][k] = f[0] != 0
		p.any = p.any || f[0] != 0
	}
}

// decide asks what the flags are in the update, if one was set.
func (p *pause) decide(ctx context.Context, feeds []runtime.Feed) {
	if p == nil || !p.any {
		return
	}
	p.clear()
	for k, is := range p.ask(ctx, feeds, p.set[:len(feeds)]) {
		if is {
			p.flags[k][0] = 1
		}
	}
}
