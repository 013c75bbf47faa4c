package plan

// ports are the ports of a plan by tensor.
type ports struct {
	start  []int32 // of its reads in list
	list   []read  // in the order of the clusters
	writes [2][]writer
}

// writer is the port that writes a tensor, and how often its cluster runs.
type writer struct {
	*Port
	times int64
}

// portsOf walks the two halves of the clusters of p at the same time.
func portsOf(p *Plan) *ports {
	middle := len(p.Clusters) / 2
	first, end := [2]int{0, middle}, [2]int{middle, len(p.Clusters)}
	o := &ports{start: make([]int32, len(p.Tensors)+1)}
	var next [2][]int32 // by tensor: the number of its reads in the half, then where the next one goes
	each := func(half int, do func(q *Port, cluster int32)) {
		for k := first[half]; k < end[half]; k++ {
			for i := range p.Clusters[k].Ports {
				do(&p.Clusters[k].Ports[i], int32(k))
			}
		}
	}
	count := func(half int) {
		reads, writes := make([]int32, len(p.Tensors)), make([]writer, len(p.Tensors))
		each(half, func(q *Port, cluster int32) {
			if q.Write {
				writes[q.Tensor] = writer{q, p.Clusters[cluster].Times}
			} else {
				reads[q.Tensor]++
			}
		})
		next[half], o.writes[half] = reads, writes
	}
	p.Together(func() { count(1) }, func() { count(0) })
	sum := int32(0)
	for id := range p.Tensors {
		o.start[id] = sum
		for _, at := range next {
			at[id], sum = sum, sum+at[id]
		}
	}
	o.start[len(p.Tensors)] = sum
	o.list = make([]read, sum)
	fill := func(half int) {
		at := next[half]
		each(half, func(q *Port, cluster int32) {
			if !q.Write {
				o.list[at[q.Tensor]] = p.reading(q, cluster)
				at[q.Tensor]++
			}
		})
	}
	p.Together(func() { fill(1) }, func() { fill(0) })
	return o
}

// reads lists the reads of a tensor.
func (o *ports) reads(id int) []read {
	return o.list[o.start[id]:o.start[id+1]:o.start[id+1]]
}

// write is the last port that writes a tensor, nil if there is none, and how often it does.
func (o *ports) write(id int) (*Port, int64) {
	w := o.writes[1][id]
	if w.Port == nil {
		w = o.writes[0][id]
	}
	return w.Port, w.times
}
