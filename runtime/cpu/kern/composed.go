//go:build amd64 || arm64

package kern

import (
	"runtime"
	"unsafe"
)

// composed is a kernel that Path.Compose has assembled.
type composed struct {
	code      *code
	set       *instructionSet
	entry     int  // the constants end and the code begins here
	spills    int  // vectors
	generates bool // it makes random words
	most      int  // elements of a call

	single   int // the code for rows that are less than 64 elements begins here, if there are sums
	streamed int // the code with streaming stores begins here
	rounds   int // of a call to it, 0: there is none

	passes *passes // computes the elements that the code does not, nil: it computes all
}

//go:noescape
func callComposed(entry uintptr, n int, args **byte, u *float32, consts uintptr, spill *float32, rows int, sums *rowSums)

// run computes n elements, whole vectors, from the addresses of c on.
func (k *composed) run(n int, c *Call, types []Type, u *float32) {
	for {
		now := min(n, k.most)
		if k.passes != nil {
			k.passes.complete(k, now, c, u)
		} else {
			k.call(k.entry, now, c, u, 1)
		}
		if n -= now; n == 0 {
			break
		}
		c.advance(types, now)
	}
}

// room is the memory of c in which the code keeps the states of its generators, and what it spills behind them.
func (k *composed) room(c *Call) *float32 {
	if k.spills == 0 && !k.generates {
		return nil
	}
	return unsafe.SliceData(c.spill.get(k.set.generatorsBytes()/4 + 16*k.spills))
}

// byRow computes rows of n elements, whole vectors, from the addresses of c on, as many in a call as end in time.
func (k *composed) byRow(rows, n int, c *Call, types []Type, u *float32) {
	if n > k.most {
		k.byPart(rows, n, c, types, u)
		return
	}
	for {
		now := min(rows, k.most/n)
		k.call(k.entry, n, c, u, now)
		if rows -= now; rows == 0 {
			return
		}
		c.advance(types, now*n)
		u = after(u, RowScalars*now)
	}
}

// The most runs of a row that are added up at a time, and elements of them, unless one has more: the hardware prefetches as many places
// of each operand, and loading and storing chains takes no more time than that.
const (
	togetherRuns     = 4
	togetherElements = 512
)

// sumRows adds rows to chains, ofRow of them a row. A row begins every step elements from the addresses of c on, and has runs of n
// elements, one every apart elements: n is a multiple of 64, or all are fewer than 64 and are added from the first of chains on.
func (k *composed) sumRows(rows, n, runs, step, apart int, c *Call, types []Type, u *float32, chains []float32, ofRow int) {
	entry, next, most := k.entry, 4*ofRow, max(1, min(togetherRuns, min(k.most, togetherElements)/n))
	if n < lanes {
		entry, next, most = k.single, next-4*n*runs, runs
	}
	for {
		first, now := c.args, min(runs, most)
		c.sums = rowSums{runs: now, skip: apart - n, back: step - now*apart, next: next}
		k.sumRuns(entry, rows, n, step, c, types, u, chains, ofRow)
		if runs -= now; runs == 0 {
			return
		}
		c.args = first
		c.advance(types, now*apart)
	}
}

// sumRuns adds the runs of rows that c says, as many rows in a call as end in time.
func (k *composed) sumRuns(entry, rows, n, step int, c *Call, types []Type, u *float32, chains []float32, ofRow int) {
	for {
		now := min(rows, max(1, k.most/(n*c.sums.runs)))
		c.sums.chains = &chains[0]
		k.callRows(entry, n, c, u, now, &c.sums)
		if rows -= now; rows == 0 {
			c.sums.chains = nil
			return
		}
		c.advance(types, now*step)
		u, chains = after(u, RowScalars*now), chains[ofRow*now:]
	}
}

// byPart computes rows of more elements than a call takes.
func (k *composed) byPart(rows, n int, c *Call, types []Type, u *float32) {
	step := 0 // to the elements of the next call; addresses never leave the operands
	for row := range rows {
		for left := n; left > 0; left -= step {
			c.advance(types, step)
			step = min(left, k.most)
			k.call(k.entry, step, c, after(u, RowScalars*row), 1)
		}
	}
}

// streams reports whether there is code with streaming stores.
func (k *composed) streams() bool { return k.rounds > 0 }

// stream computes so many rounds of a StreamBlock from the addresses of c on, with streaming stores.
func (k *composed) stream(rounds int, c *Call, types []Type, u *float32) {
	for step := 0; rounds > 0; { // to the elements of the next call; addresses never leave the operands
		now := min(rounds, k.rounds)
		c.advance(types, step)
		k.call(k.streamed, now, c, u, 1)
		step, rounds = now*streamVisit, rounds-now
	}
}

// call runs the code at entry.
func (k *composed) call(entry, n int, c *Call, u *float32, rows int) {
	k.callRows(entry, n, c, u, rows, nil)
}

// callRows runs it for rows.
func (k *composed) callRows(entry, n int, c *Call, u *float32, rows int, sums *rowSums) {
	consts := uintptr(unsafe.Pointer(unsafe.SliceData(k.code.mem)))
	callComposed(consts+uintptr(entry), n, &c.args[0], u, consts, k.room(c), rows, sums)
	runtime.KeepAlive(k)
}

// advance points the arguments n elements further.
func (c *Call) advance(types []Type, n int) {
	for i, t := range types {
		c.args[i] = (*byte)(unsafe.Add(unsafe.Pointer(c.args[i]), n*t.Size()))
	}
}

func (k *composed) close() { k.code.release() }

// repeat fills a vector after its first n elements with the first, if the code does not cover all operands: it covers the
// vector then if it covers the elements.
func (k *composed) repeat(vector *byte, size, n, lanes int) {
	if k.passes == nil {
		return
	}
	b := unsafe.Slice(vector, size*lanes)
	for at := size * n; at < len(b); at += size {
		copy(b[at:at+size], b)
	}
}
