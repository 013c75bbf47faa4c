package kern

import "unsafe"

// lineGo is a transform of up to four values in Go; internal/gen has the kernels.
type lineGo func(x [4]float32) [4]float32

func winoInGo(x [4]float32) [4]float32 {
	return [4]float32{x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3]}
}

func winoThreeGo(x [4]float32) [4]float32 {
	return [4]float32{x[0], (x[0] + x[2] + x[1]) * 0.5, (x[0] + x[2] - x[1]) * 0.5, x[2]}
}

func winoTwoGo(x [4]float32) [4]float32 {
	return [4]float32{x[0], (x[0] + x[1]) * 0.5, (x[0] - x[1]) * 0.5, x[1]}
}

func winoTapsGo(x [4]float32) [4]float32 {
	return [4]float32{x[1] + x[2] + x[0], x[1] - x[2], x[1] + x[2] - x[3]}
}

func winoPixelsGo(x [4]float32) [4]float32 {
	return [4]float32{x[1] + x[2] + x[0], x[1] - x[2] - x[3]}
}

// square transforms the columns, then the rows.
func (f lineGo) square(x [4][4]float32) (y [4][4]float32) {
	for j := range 4 {
		for i, v := range f([4]float32{x[0][j], x[1][j], x[2][j], x[3][j]}) {
			y[i][j] = v
		}
	}
	for i := range y {
		y[i] = f(y[i])
	}
	return y
}

// squareGo is a squareFunc of n x n values to side x side.
func squareGo(f lineGo, n, side int) squareFunc {
	return func(count, lanes int, dst *float32, dstep, dpoint int, src *float32, sstep, srow, odd, two int) {
		from := unsafe.Slice(src, (count-1)*sstep+(n-1)*srow+(n-1)/2*two+odd+lanes)
		to := unsafe.Slice(dst, (count-1)*dstep+(side*side-1)*dpoint+lanes)
		for k := range count {
			for l := range lanes {
				var x [4][4]float32
				for i := range n * n {
					x[i/n][i%n] = from[k*sstep+i/n*srow+i%n%2*odd+i%n/2*two+l]
				}
				y := f.square(x)
				for i := range side * side {
					to[k*dstep+i*dpoint+l] = y[i/side][i%side]
				}
			}
		}
	}
}

// pixelsGo is a pixelsFunc.
func pixelsGo(count, cols int, dst *float32, dstep, drow int, src *float32, sstep, spoint int) {
	from := unsafe.Slice(src, (count-1)*sstep+(winoPoints-1)*spoint+(cols+1)/2)
	to := unsafe.Slice(dst, (count-1)*dstep+drow+cols)
	for k := range count {
		for c := range cols {
			var x [4][4]float32
			for i := range winoPoints {
				x[i/4][i%4] = from[k*sstep+i*spoint+c/2]
			}
			y := lineGo(winoPixelsGo).square(x)
			to[k*dstep+drow+c] = y[1][c%2]
			to[k*dstep+c] = y[0][c%2]
		}
	}
}

func winoGo() *winoKernels {
	return &winoKernels{in: squareGo(winoInGo, 4, 4), three: squareGo(winoThreeGo, 3, 4), two: squareGo(winoTwoGo, 2, 4),
		taps: squareGo(winoTapsGo, 4, 3), pixels: pixelsGo}
}
