package kern

// Parts are the tasks of a region of equal units: each is some of them, one after the other.
type Parts struct {
	box  box
	part Division
}

// Divide divides n units, which take so much work in flops together, into tasks of at most so many of them.
func (m *Machine) Divide(work, n, most int) Parts {
	b := box{items: 1, rows: n, cols: 1, cell: work / max(1, n), mostRows: most, task: taskCost}
	return Parts{b, m.divide(b, m.pool.share())}
}

// Tasks is how many there are.
func (p *Parts) Tasks() int { return p.part.Tasks }

// Workers is how many run them.
func (p *Parts) Workers() int { return p.part.Workers }

// Of are the units [lo,hi) of a task.
func (p *Parts) Of(task int) (lo, hi int) {
	return bound(task, p.part.rows, p.box.rows), bound(task+1, p.part.rows, p.box.rows)
}

// RunParts runs the task of each of the parts.
func (m *Machine) RunParts(p *Parts, t Task) { m.runDivided(&p.box, p.part, t) }
