package dataset

import "ampc/data"

// readIDX reads images in IDX and the labels beside them.
func readIDX(path string) (*Images, error) {
	c, err := data.IDXImages(path)
	if err != nil {
		return nil, err
	}
	x, y := c.Column("x"), c.Column("y")
	m := &Images{Channels: x.Shape[0], Height: x.Shape[1], Width: x.Shape[2], Classes: y.Classes(), Labels: y.Data.([]int32)}
	pixels := x.Data.([]uint8)
	m.Pixels = make([]float32, len(pixels))
	for i, p := range pixels {
		m.Pixels[i] = float32(p)
	}
	return m, nil
}
