package models

import "ampc"

// body is a shape in a scene of some dimensions: a ball or a box, by its center
// and what it reaches from there.
type body struct {
	center [3]float64
	reach  float64
	box    bool
}

// covers reports whether the element at a position belongs to the body.
func (b *body) covers(at [3]float64) bool {
	sum, most := 0.0, 0.0
	for axis, x := range at {
		d := x - b.center[axis]
		sum += d * d
		most = max(most, d, -d)
	}
	if b.box {
		return most <= 0.8*b.reach // about the ball's volume
	}
	return sum <= b.reach*b.reach
}

// draw puts a body somewhere into a scene of the given size, all of it inside
// where it fits.
func (t *taskBatch) draw(size [3]int, box bool) body {
	b := body{box: box}
	least := 0
	for _, n := range size {
		if n > 1 && (least == 0 || n < least) {
			least = n
		}
	}
	b.reach = max(1, float64(least)*(0.15+0.15*t.r.Float64()))
	for axis, n := range size {
		if n > 1 {
			room := max(0, float64(n-1)-2*b.reach)
			b.center[axis] = (float64(n-1)-room)/2 + room*t.r.Float64()
		}
	}
	return b
}

// eachElement calls f for the elements of a scene in row-major order.
func eachElement(size [3]int, f func(i int, at [3]float64)) {
	i := 0
	for z := range size[0] {
		for y := range size[1] {
			for x := range size[2] {
				f(i, [3]float64{float64(z), float64(y), float64(x)})
				i++
			}
		}
	}
}

// volumes are three bodies in each volume, one brightness under noise. Class 0 is
// what no body covers; balls and boxes have the other classes in turn, so that
// shape tells them apart.
func (t *taskBatch) volumes() ampc.Feed {
	o := t.z.Options
	size := [3]int{o.Int("depth"), o.Int("size"), o.Int("size")}
	voxels, channels, classes := size[0]*size[1]*size[2], o.Int("channels"), o.Int("classes")
	x, y := t.normal(o.Int("batch")*channels*voxels), make([]int32, o.Int("batch")*voxels)
	for n := range o.Int("batch") {
		for k := range 3 {
			b := t.draw(size, k%2 == 1)
			eachElement(size, func(i int, at [3]float64) {
				if b.covers(at) && classes > 1 {
					y[n*voxels+i] = int32(1 + k%2%(classes-1))
				}
			})
		}
		for i := range channels * voxels {
			v := &x[n*channels*voxels+i]
			*v *= 0.5
			if y[n*voxels+i%voxels] > 0 {
				*v += 2
			}
		}
	}
	return ampc.Feed{"x": x, "voxels": y}
}

// videos show a ball and a box that move evenly and turn back at the edges: pixels
// are 1 or 0. The model sees the first frames and is to predict the others.
func (t *taskBatch) videos() ampc.Feed {
	o := t.z.Options
	seq, ahead, side, channels := o.Int("seq"), o.Int("ahead"), o.Int("size"), o.Int("channels")
	size := [3]int{1, side, side}
	frame := channels * side * side
	var x, future []float32
	for range o.Int("batch") {
		video := make([]float32, (seq+ahead)*frame)
		for k := range 2 {
			b := t.draw(size, k == 1)
			speed := [3]float64{0, 2*t.r.Float64() - 1, 2*t.r.Float64() - 1}
			for f := range seq + ahead {
				eachElement(size, func(i int, at [3]float64) {
					if b.covers(at) {
						video[f*frame+k%channels*side*side+i] = 1
					}
				})
				b.move(&speed, side)
			}
		}
		x, future = append(x, video[:seq*frame]...), append(future, video[seq*frame:]...)
	}
	return ampc.Feed{"x": x, "future": future}
}

// move takes a step and turns back at the edge that it would cross.
func (b *body) move(speed *[3]float64, side int) {
	for axis, v := range speed {
		if next := b.center[axis] + v; next < b.reach || next > float64(side-1)-b.reach {
			speed[axis] = -v
		}
		b.center[axis] += speed[axis]
	}
}
