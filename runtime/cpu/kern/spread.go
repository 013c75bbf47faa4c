package kern

// processorSet is a set of processors, one bit each.
type processorSet [16]uint64

func (s *processorSet) add(cpu int) {
	if cpu >= 0 && cpu < 64*len(s) {
		s[cpu/64] |= 1 << (cpu % 64)
	}
}

func (s *processorSet) has(cpu int) bool {
	return cpu >= 0 && cpu < 64*len(s) && s[cpu/64]>>(cpu%64)&1 > 0
}

// settle moves worker w, which has slept, away from the processor of another worker of the pool.
// Linux may wake a thread on the processor that its waker occupies: if other processors are busy,
// or in a virtual machine, because an idle processor there looks like one that the host has taken
// away. The two workers would take turns, and sleep too often for the system to separate them.
func (p *Pool) settle(w int) {
	if !p.team.eager {
		return
	}
	var taken processorSet
	if w > 0 {
		taken.add(p.place.cpu())
	}
	for _, v := range *p.crew.Load() {
		if v != w {
			taken.add(p.team.place[v].cpu())
		}
	}
	cpu := processor()
	if taken.has(cpu) {
		leaveProcessors(&taken)
		cpu = processor()
	}
	if w > 0 {
		p.team.place[w].set(cpu)
	}
}
