package kern

// Tiles read the pixels of a result without packing if halves of a tile's columns are contiguous in
// the padded image: rows of whole vectors. Other rows are read together with the pixels between
// them, which are computed and not stored. To keep these few, the zeros after a row are also the
// zeros before the next one. If the stride is 2, even and odd rows are stored apart, as even and
// odd pixels are, so that rows of results are adjacent.

// gapPacking is approximately the number of rows of a product that take as long as packing its
// columns.
const gapPacking = 12

// gapped returns the size of the padded image of c if its rows are read together, and the number of
// pixels between the results of two rows; otherwise size unchanged, and 0.
func (m *Machine) gapped(c *Conv, size [3]int) (shared [3]int, gap int) {
	per, px := c.K/c.Groups, volume(c.Out)
	if m.ending == nil || c.ChannelsLast || c.depthwise() || c.TF32 || c.PostOp != nil || m.usesVNNI(c.X.Type, c.W.Type) || c.Out[2]%m.vw == 0 ||
		m.pixelsAsRows(c, per, c.N*px) {
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
