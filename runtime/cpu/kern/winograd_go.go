package kern

import "unsafe"

// The transforms in Go, along a line of values; see internal/gen for the kernels.

func winoInLine(x, y []float32) {
	y[0], y[1], y[2], y[3] = x[0]-x[2], x[1]+x[2], x[2]-x[1], x[1]-x[3]
}

func winoThreeLine(x, y []float32) {
	y[0], y[1], y[2], y[3] = x[0], (x[0]+x[2]+x[1])*0.5, (x[0]+x[2]-x[1])*0.5, x[2]
}

func winoTwoLine(x, y []float32) {
	y[0], y[1], y[2], y[3] = x[0], (x[0]+x[1])*0.5, (x[0]-x[1])*0.5, x[1]
}

func winoTapsLine(x, y []float32) {
	y[0], y[1], y[2] = x[1]+x[2]+x[0], x[1]-x[2], x[1]+x[2]-x[3]
}

func winoPixelsLine(x, y []float32) {
	y[0], y[1] = x[1]+x[2]+x[0], x[1]-x[2]-x[3]
}

// winoSquare transforms a square of n x n values to one of side x side.
func winoSquare(line func(x, y []float32), n, side int, x, y *[16]float32) {
	var rows [16]float32
	for j := range n {
		var in, out [4]float32
		for i := range n {
			in[i] = x[i*n+j]
		}
		line(in[:n], out[:side])
		for i := range side {
			rows[i*n+j] = out[i]
		}
	}
	for i := range side {
		line(rows[i*n:][:n], y[i*side:][:side])
	}
}

// squareGo is a squareFunc.
func squareGo(line func(x, y []float32), n, side int) squareFunc {
	return func(count, lanes int, dst *float32, dstep, dpoint int, src *float32, sstep, srow, odd, two int) {
		from := unsafe.Slice(src, (count-1)*sstep+(n-1)*srow+(n-1)/2*two+min(1, n-1)*odd+lanes)
		to := unsafe.Slice(dst, (count-1)*dstep+(side*side-1)*dpoint+lanes)
		for k := range count {
			for l := range lanes {
				var x, y [16]float32
				for i := range n * n {
					x[i] = from[k*sstep+i/n*srow+i%n%2*odd+i%n/2*two+l]
				}
				winoSquare(line, n, side, &x, &y)
				for i := range side * side {
					to[k*dstep+i*dpoint+l] = y[i]
				}
			}
		}
	}
}

func winoPixelsGo(count, cols int, dst *float32, dstep, drow int, src *float32, sstep, spoint int) {
	lanes := (cols + 1) / 2
	from := unsafe.Slice(src, (count-1)*sstep+15*spoint+lanes)
	to := unsafe.Slice(dst, (count-1)*dstep+drow+cols)
	for k := range count {
		for l := range lanes {
			var x, y [16]float32
			for i := range x {
				x[i] = from[k*sstep+i*spoint+l]
			}
			winoSquare(winoPixelsLine, 4, 2, &x, &y)
			for i := 3; i >= 0; i-- {
				if 2*l+i%2 < cols {
					to[k*dstep+i/2*drow+2*l+i%2] = y[i]
				}
			}
		}
	}
}

func winoGo() *winoKernels {
	return &winoKernels{in: squareGo(winoInLine, 4, 4), three: squareGo(winoThreeLine, 3, 4), two: squareGo(winoTwoLine, 2, 4),
		taps: squareGo(winoTapsLine, 4, 3), pixels: winoPixelsGo}
}
