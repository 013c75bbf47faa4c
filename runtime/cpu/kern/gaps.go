package kern

// Tiles read a result's pixels without packing where halves of them are contiguous in the padded image: rows of whole vectors.
// Other rows are read together with the pixels between them, which are computed and not stored. For those to be few, the zeros
// behind a row are those before the next one. Where the stride is 2, even and odd rows lie apart, as even and odd pixels do, so
// that rows of results lie side by side.

// gapPacking is about how many rows of a product take as long as packing its columns.
const gapPacking = 12

// gapped returns the size of the padded image of c where its rows are read together, and how many pixels lie between the
// results of two rows; else the size as it is, and 0.
func (m *Machine) gapped(c *Conv, size [3]int) (shared [3]int, gap int) {
	per, px := c.K/c.Groups, volume(c.Out)
	if m.ending == nil || c.ChannelsLast || c.depthwise() || c.TF32 || c.PostOp != nil || m.usesVNNI(c.X.Type, c.W.Type) || c.Out[2]%m.vw == 0 ||
		m.pixelsAsRows(c, false, per, c.N*px) {
		return size, 0
	}
	switch shared = size; {
	case c.Stride == [3]int{1, 1, 1} && c.In != size:
		shared[2] = c.In[2] + max(c.Pad[2], size[2]-c.Pad[2]-c.In[2])
		gap = shared[2] - c.Out[2]
	case c.Stride == [3]int{1, 2, 2}:
		gap = ceilDiv(size[2], 2) - c.Out[2]
	}
	if cols := m.columns(px + gap*(c.Out[0]*c.Out[1]-1)); gap < 1 || cols*per >= m.columns(px)*(per+gapPacking) {
		return size, 0
	}
	return shared, gap
}

// columns is the number of columns of the tiles that n columns take.
func (m *Machine) columns(n int) int {
	whole := n / m.nr * m.nr
	if n > whole {
		whole += m.width(n - whole)
	}
	return whole
}
