package kern

// The input gradient of a strided convolution, phase by phase: the pixels i of x with the same
// remainder of i/Stride use the same taps, and these read adjacent pixels of dy. So each phase is a
// product of its own over some of the taps; no term is zero except at the edges. The phases are
// computed one after the other and then interleaved.

// phased reports whether the gradient is computed phase by phase.
func (c *Conv) phased() bool {
	return volume(c.Stride) > 1 && !c.depthwise() && c.Epilogue.Residual.absent() && !c.Epilogue.Accumulate
}

// phase is the set of pixels whose positions have the same remainder modulo the stride: their number and the offset of
// their values.
type phase struct {
	rest, size [3]int
	buf        Buf
}

// phasedGrad computes the gradient of x.
func (m *Machine) phasedGrad(c *Conv) {
	t := &m.conv
	t.c = c
	var lo, size [3]int
	for a := range 3 {
		reach, s := (c.Kernel[a]-1)*c.Dilation[a], c.Stride[a]
		lo[a] = max(0, ceilDiv(reach-c.Pad[a], s))
		size[a] = lo[a] + max(c.Out[a], (c.In[a]-1+c.Pad[a])/s+1)
	}
	ones := [3]int{1, 1, 1}
	var g grid
	if dy := c.dense(c.Y, c.K, c.Out); m.padsToVNNI(c.Y.Type, c.K) {
		g = m.padVNNI(dy, c.K, c.Out, lo, size, 1)
	} else {
		g = m.pad(dy, c.K, c.Out, lo, ones, size, 1, m.paddedType(c.Y.Type, c.Out, 0), 0)
	}
	padded := m.packsWeights(&g)
	if padded {
		m.packWeights(true, g.vnni)
	}
	t.phases = t.phases[:0]
	mem := t.phaseMem.bytes(c.X.Type, c.N*c.C*volume(c.In))
	at := 0
	for i := range volume(c.Stride) {
		ph := phase{rest: [3]int{i / (c.Stride[1] * c.Stride[2]), i / c.Stride[2] % c.Stride[1], i % c.Stride[2]}}
		for a := range 3 {
			ph.size[a] = max(0, ceilDiv(c.In[a]-ph.rest[a], c.Stride[a]))
		}
		n := c.N * c.C * volume(ph.size)
		ph.buf = Buf{mem.Type, mem.Data[at*mem.Type.Size() : (at+n)*mem.Type.Size()]}
		if at += n; n == 0 {
			continue
		}
		t.phases = append(t.phases, ph)
		t.patch, t.pixel = &t.table[0], &t.table[1]
		weights := m.phaseTables(&g, &ph, lo, padded)
		if len(t.patch.s) == 0 && c.Epilogue.plain() {
			if !m.pool.team.dry {
				clear(ph.buf.Data)
			}
			continue
		}
		m.convProduct(&g, ph.buf, c.C, ph.size, ones, weights)
	}
	t.m, t.mode, t.dst = m, phaseMode, c.dense(c.X, c.C, c.In)
	units := c.C
	if c.ChannelsLast {
		units = c.In[0] * c.In[1]
	}
	t.runParts(units, 2*len(c.X.Data), 0)
}

// packsWeights reports whether the products of the phases read weights that packWeights has reordered, because some
// taps of a phase are far apart in memory.
func (m *Machine) packsWeights(g *grid) bool {
	c := m.conv.c
	return c.Weights == OIX && !c.ChannelsLast && volume(c.Kernel) > 1 && (g.vnni || !m.usesVNNI(c.Y.Type, c.W.Type))
}

// phaseTables lists the positions in g of the taps that a phase uses, and returns the table of
// their weights, which may have been padded.
func (m *Machine) phaseTables(g *grid, ph *phase, lo [3]int, padded bool) tableSource {
	t, c := &m.conv, m.conv.c
	es, ws := g.buf.Type.Size(), c.W.Type.Size()
	so, si, sx := c.weightStrides()
	lane, depth := &t.table[2], &t.table[3]
	lane.strided(1, 0, c.C/c.Groups, si*ws)
	t.patch.reset()
	depth.reset()
	per, taps, each := c.K/c.Groups, volume(c.Kernel), 1
	if g.vnni {
		each = 2
	}
	for i := range per / each * taps {
		k, tap := i/taps, i%taps
		if c.ChannelsLast {
			k, tap = i%per, i/per
		}
		from, meets := c.meets(ph, tap, lo)
		if !meets {
			continue
		}
		t.patch.s = append(t.patch.s, (k*g.channel+g.at(from[0], from[1], from[2]))*es)
		if padded {
			depth.s = append(depth.s, 4*(k*c.vnniRow(m.Path)+tap*m.tw))
			continue
		}
		for e := range each {
			depth.s = append(depth.s, ((k*each+e)*so+tap*sx)*ws)
		}
	}
	if padded {
		return m.swappedWeights()
	}
	return tableSource{p: m.Path, buf: c.W, item: [2]int{0, per * so}, inner: c.Groups, lane: lane.s, depth: depth.s, byLane: si == 1, tf32: c.TF32, zip: g.vnni}
}

// meets reports whether a tap contributes to the pixels of a phase, and the position on the padded image of dy for the
// first of them.
func (c *Conv) meets(ph *phase, tap int, lo [3]int) (from [3]int, ok bool) {
	at := [3]int{tap / (c.Kernel[1] * c.Kernel[2]), tap / c.Kernel[2] % c.Kernel[1], tap % c.Kernel[2]}
	for a := range 3 {
		d := ph.rest[a] + c.Pad[a] - at[a]*c.Dilation[a]
		if d%c.Stride[a] != 0 {
			return from, false
		}
		from[a] = lo[a] + d/c.Stride[a]
	}
	return from, true
}

// zipPhases stores a plane whose two phases alternate along the rows.
func (t *convTask) zipPhases(w *worker, plane, to int, even, odd *phase) {
	s, rows, n := t.c.Stride, even.size[1], even.size[2]
	for z := range even.size[0] {
		from := (plane*even.size[0] + z) * rows * n
		at := to + t.dst.at(even.rest[0]+z*s[0], even.rest[1], 0)
		t.m.zipRows(w, rows, n, t.dst.buf.From(at), s[1]*t.dst.axis[1], even.buf.From(from), odd.buf.From(from))
	}
}

// phaseImage stores planes, or rows, of the phases of an image in the image.
func (t *convTask) phaseImage(worker *worker, task int) {
	c := t.c
	n, p0, p1 := t.part(task)
	if c.ChannelsLast {
		for r := p0; r < p1; r++ {
			t.phaseRow(n, r/c.In[1], r%c.In[1])
		}
		return
	}
	zip := c.Stride[2] == 2 && c.In[2]%2 == 0 && t.m.zips(t.dst.buf.Type)
	for p := p0; p < p1; p++ {
		for i := range t.phases {
			ph, plane, to := &t.phases[i], n*c.C+p, n*t.dst.item[0]+p*t.dst.channel
			switch {
			case !zip:
				t.scatterPhase(ph, plane, to)
			case ph.rest[2] == 0:
				t.zipPhases(worker, plane, to, ph, &t.phases[i+1])
			}
		}
	}
}

// scatterPhase stores a plane of a phase at every Stride-th pixel of a plane.
func (t *convTask) scatterPhase(ph *phase, plane, to int) {
	step, w := t.c.Stride, ph.size[2]
	for j := range ph.size[0] * ph.size[1] {
		z, y := j/ph.size[1], j%ph.size[1]
		from := (plane*ph.size[0]*ph.size[1] + j) * w
		at := to + t.dst.at(ph.rest[0]+z*step[0], ph.rest[1]+y*step[1], ph.rest[2])
		if t.dst.buf.Type == F32 {
			scatter(floatsAt(t.dst.buf.at(at), (w-1)*step[2]+1), floatsAt(ph.buf.at(from), w), step[2])
		} else {
			scatter(halvesAt(t.dst.buf.at(at), (w-1)*step[2]+1), halvesAt(ph.buf.at(from), w), step[2])
		}
	}
}

// phaseRow stores the pixels of a row of an image, whose channels lie last.
func (t *convTask) phaseRow(n, z, y int) {
	c, es := t.c, t.dst.buf.Type.Size()
	for i := range t.phases {
		ph, step := &t.phases[i], c.Stride
		if ph.rest[0] != z%step[0] || ph.rest[1] != y%step[1] {
			continue
		}
		from := ((n*ph.size[0]+z/step[0])*ph.size[1] + y/step[1]) * ph.size[2] * c.C
		to := n*t.dst.item[0] + t.dst.at(z, y, ph.rest[2])
		for x := range ph.size[2] {
			copy(t.dst.buf.Data[(to+x*step[2]*c.C)*es:(to+(x*step[2]+1)*c.C)*es], ph.buf.Data[(from+x*c.C)*es:])
		}
	}
}
