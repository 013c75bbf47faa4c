package doctor

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// moment is a step of a program.
type moment struct {
	part lower.Part
	step int
}

// places finds the step that writes each buffer, the last one if there are several.
func (c *compiled) places() {
	c.source = map[lower.BufferID]moment{}
	for part := range lower.NumParts {
		for i := range c.p.Parts[part] {
			for _, id := range c.p.Parts[part][i].Out {
				if id != lower.None {
					c.source[id] = moment{part, i}
					c.source[c.p.Buffers[id].Root] = moment{part, i}
				}
			}
		}
	}
}

// at records the step that has run. At a new part it forgets all ranges, because variables have
// changed.
func (r *replay) at(part lower.Part, step int) {
	if part != r.part || r.ranges == nil {
		r.micro = 0
		r.renew()
	}
	r.part, r.step = part, step
}

// next begins another micro-batch, or part.
func (r *replay) next() {
	r.micro, r.step = r.micro+1, -1
	r.renew()
	if r.streamed {
		r.forget()
	}
}

func (r *replay) renew() {
	if !r.streamed && r.traced == nil {
		r.ranges, r.flaws = map[*ir.Value]Range{}, map[*ir.Value]flaw{}
		r.inner, r.ready = map[*ir.Value][]byte{}, map[*ir.Value]bool{}
	}
}

// sourceOf is the step that writes a buffer, and whether there is one.
func (c *compiled) sourceOf(id lower.BufferID) (moment, bool) {
	if id == lower.None {
		return moment{}, false
	}
	if at, ok := c.source[id]; ok {
		return at, true
	}
	at, ok := c.source[c.p.Buffers[id].Root]
	return at, ok
}

// made reports whether v has its value of this micro-batch by now, or can be computed from
// values that have. It is true of variables, whose value is that before the step.
func (r *replay) made(v *ir.Value) bool {
	switch {
	case v.IsVar():
		return true
	case r.without[v.Def]:
		return false
	}
	if id := r.home(v); id != lower.None {
		if at, ok := r.sourceOf(id); ok {
			return at.part < r.part || at.part == r.part && at.step <= r.step
		}
	}
	if r.streamed { // a view
		return v.Def.Def().Is(ir.View) && r.made(v.Def.In[0])
	}
	made, known := r.ready[v]
	if !known {
		made = !slices.ContainsFunc(v.Def.In, func(op *ir.Value) bool { return op != nil && !r.made(op) })
		if made {
			r.ready[v] = true
		}
	}
	return made
}
