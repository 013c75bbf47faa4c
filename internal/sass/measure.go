package sass

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Traffic is what one thread does to global memory in the main part of a kernel: the loop whose
// iteration loads most, or all of a kernel that loads in no loop. Loads of addresses that all
// threads of a block share are not counted: a warp moves one sector for them.
type Traffic struct {
	Loop         bool
	Instructions int
	Loads        map[int]int // number by width in bytes
	Loaded       int         // bytes
	Stored       int         // bytes
	InFlight     int         // most bytes that are loaded and not yet waited for
}

// Measure finds the main part of a kernel and measures it.
func Measure(f *Function) Traffic {
	varying := f.varying()
	whole := f.measure(0, len(f.Code)-1, false, varying)
	best := Traffic{}
	for i, in := range f.Code {
		if in.Target < 0 || in.Target > i || in.Target == i {
			continue
		}
		t := f.measure(in.Target, i, true, varying)
		// of two loops with equal loads the inner is shorter
		if t.Loaded > best.Loaded || t.Loaded == best.Loaded && t.Instructions < best.Instructions {
			best = t
		}
	}
	if best.Loaded == 0 {
		return whole
	}
	return best
}

// load is a load that has been issued.
type load struct {
	registers []string
	bytes     int
}

// measure scans the instructions from first to last, twice if they are a loop: a load may be used
// in the next iteration. Data arrives in the order of the loads: who waits for one waits for all
// before it. A branch under a predicate is not taken.
func (f *Function) measure(first, last int, loop bool, varying []bool) Traffic {
	t := Traffic{Loop: loop, Instructions: last - first + 1, Loads: map[int]int{}}
	var pending []load
	rounds := 1
	if loop {
		rounds = 2
	}
	for round := range rounds {
		for i := first; i <= last; i++ {
			in := &f.Code[i]
			touched := append(in.reads(), in.writes()...)
			for k := len(pending) - 1; k >= 0; k-- {
				if slices.ContainsFunc(touched, func(r string) bool { return slices.Contains(pending[k].registers, r) }) {
					pending = pending[k+1:]
					break
				}
			}
			switch {
			case is(in.Op, "LDG") && varying[i]:
				n := width(in.Op)
				pending = append(pending, load{in.writes(), n})
				if round == 0 {
					t.Loads[n]++
					t.Loaded += n
				}
			case is(in.Op, "STG") && round == 0:
				t.Stored += width(in.Op)
			case in.Guard == "" && (is(in.Op, "EXIT") || is(in.Op, "BRA") && in.Target > i):
				pending = nil // what follows is reached from elsewhere
			}
			sum := 0
			for _, l := range pending {
				sum += l.bytes
			}
			t.InFlight = max(t.InFlight, sum)
		}
	}
	return t
}

// varying reports for each instruction whether a value that it reads depends on the thread's place
// in its block.
func (f *Function) varying() []bool {
	out, live := make([]bool, len(f.Code)), map[string]bool{}
	for range 2 { // the second time with what a loop leaves behind
		for i := range f.Code {
			in := &f.Code[i]
			v := is(in.Op, "S2R") && slices.ContainsFunc(in.Args, func(a string) bool { return a == "SR_TID.X" || a == "SR_LANEID" })
			for _, r := range in.reads() {
				v = v || live[r]
			}
			out[i] = v
			for _, r := range in.writes() {
				live[r] = v || in.Guard != "" && live[r]
			}
		}
	}
	return out
}

var (
	register      = regexp.MustCompile(`\b(UR|R|UP|P)(\d+)\b`)
	predicateName = regexp.MustCompile(`^U?P[T\d]$`)
)

// registersOf are the registers that an operand names, n of them from each number on.
func registersOf(operand string, n int) (list []string) {
	for _, m := range register.FindAllStringSubmatch(operand, -1) {
		count := n
		if strings.HasSuffix(m[1], "P") {
			count = 1
		}
		first, _ := strconv.Atoi(m[2])
		for k := range count {
			list = append(list, m[1]+strconv.Itoa(first+k))
		}
	}
	return list
}

// results is the number of leading operands that are written: predicates, or a register and its
// carry.
func (in *Inst) results() int {
	if is(in.Op, noResult...) {
		return 0
	}
	predicate := func(i int) bool { return i < len(in.Args) && predicateName.MatchString(in.Args[i]) }
	n := 0
	for predicate(n) {
		n++
	}
	if n > 0 && !is(in.Op, afterPredicate...) {
		return n
	}
	n++
	for is(in.Op, carrying...) && predicate(n) {
		n++
	}
	return min(n, len(in.Args))
}

// span is the number of registers of a value of the instruction.
func (in *Inst) span() int {
	switch {
	case is(in.Op, "LDG", "LDS", "LDC", "LDL", "LD", "ULDC", "STG", "STS", "STL"):
		return max(1, width(in.Op)/4)
	case strings.Contains(in.Op, ".WIDE") || is(in.Op, "CS2R", "DADD", "DMUL", "DFMA"):
		return 2
	}
	return 1
}

func (in *Inst) writes() (list []string) {
	for _, a := range in.Args[:in.results()] {
		list = append(list, registersOf(a, in.span())...)
	}
	return list
}

func (in *Inst) reads() (list []string) {
	list = registersOf(in.Guard, 1)
	for i, a := range in.Args[in.results():] {
		n := 1
		switch {
		case strings.Contains(a, ".64"):
			n = 2
		case is(in.Op, "STG", "STS", "STL") && i == 1:
			n = in.span()
		case strings.Contains(in.Op, ".WIDE") && in.results()+i == len(in.Args)-1:
			n = 2
		}
		list = append(list, registersOf(a, n)...)
	}
	return list
}
