package cpu

import (
	"context"
	"fmt"

	"ampc/ir"
	"ampc/runtime"
)

// pause holds the arguments of BeforeUpdate. A nil pause does nothing.
type pause struct {
	flags    [][]byte // memory of each flag
	set      [][]bool // values by micro-batch
	any      bool
	callback runtime.Decide
}

// BeforeUpdate implements runtime.Pauser. No step may be running. A decide function that loads
// programs must use Backend.Inside.
func (x *program) BeforeUpdate(flags []string, micro int, decide runtime.Decide) error {
	p := &pause{set: make([][]bool, micro), callback: decide}
	for _, name := range flags {
		shown, err := x.store.View(name)
		if err == nil && x.store.vars[name].t != ir.T(ir.Bool) {
			err = fmt.Errorf("%q is %s, want bool[]", name, x.store.vars[name].t)
		}
		if err != nil {
			return fmt.Errorf("cpu: a flag: %w", err)
		}
		p.flags = append(p.flags, shown.Bytes())
		shown.Release() // the program holds its variables
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

// note records the values of the flags after a micro-batch.
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

// decide asks for the values of the flags in the update, if one was set.
func (p *pause) decide(ctx context.Context, feeds []runtime.Feed) {
	if p == nil || !p.any {
		return
	}
	p.clear()
	for k, is := range p.callback(ctx, feeds, p.set[:len(feeds)]) {
		if is {
			p.flags[k][0] = 1
		}
	}
}
