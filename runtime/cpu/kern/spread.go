package kern

import "math/bits"

// Processors is a set of processors, or of NUMA nodes, by number, one bit each.
type Processors [MaxProcessors / 64]uint64

// MaxProcessors is one more than the largest number in a set.
const MaxProcessors = 1024

// Add adds a number that a set can have, and no other.
func (s *Processors) Add(cpu int) {
	if cpu >= 0 && cpu < 64*len(s) {
		s[cpu/64] |= 1 << (cpu % 64)
	}
}

// Has reports whether the set has a number.
func (s *Processors) Has(cpu int) bool {
	return cpu >= 0 && cpu < 64*len(s) && s[cpu/64]>>(cpu%64)&1 > 0
}

// And is the numbers that both sets have.
func (s Processors) And(o Processors) Processors {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// Or is the numbers that either set has.
func (s Processors) Or(o Processors) Processors {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Len is how many numbers the set has.
func (s *Processors) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// settle moves worker w, which has slept, away from the processor of another worker of the pool.
// Linux may wake a thread on the processor that its waker occupies: if other processors are busy,
// or in a virtual machine, because an idle processor there looks like one that the host has taken
// away. The two workers would take turns, and sleep too often for the system to separate them.
func (p *Pool) settle(w int) {
	if !p.team.eager.Load() {
		return
	}
	var taken Processors
	if w > 0 {
		taken.Add(p.place.cpu())
	}
	for _, v := range *p.crew.Load() {
		if v != w {
			taken.Add(p.team.place[v].cpu())
		}
	}
	cpu := processor()
	if taken.Has(cpu) {
		leaveProcessors(&taken)
		cpu = processor()
	}
	if w > 0 {
		p.team.place[w].set(cpu)
	}
}
