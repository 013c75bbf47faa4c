package kern

import (
	"fmt"
	"math"
	"strings"
)

// Path is one set of implementations of all kernels. It is immutable and safe for concurrent use.
type Path struct {
	name   string
	lanes  int // float32 lanes of a vector
	mr, nr int // largest register tile: rows, columns
	vw     int // columns of the narrow tile
	tw     int // lanes that one call of trans takes at most
	kc     int // depth of a packed block, a multiple of chain
	chain  int // sumDepth, less in tests
	mc     int // elements of a packed block of A

	tile     [2][]tileFunc  // by tile width (vw, nr), then rows-1
	indirect []indirectFunc // by rows-1; nil where there are none
	// packing holds the tiles that pack B, by rows-1. It is nil where there are none, and so are the elements of few rows.
	packing [numTypes][]packingFunc
	// indirectFetch prefetches n rows that an indirectFunc will read.
	indirectFetch func(n int, b0, b1 *byte, offs *int)
	ending        []endingFunc    // by rows-1; nil where there are none
	unpacked      []unpackedFunc  // by rows-1; nil where there are none
	fetching      [2]fetchingFunc // of stairRows rows, by tile width (vw, nr); nil where there are none
	stairRows     int             // rows of products of attention that have a depth of their own where keys are hidden
	vnni          *vnniKernels    // nil where bf16 is only multiplied as f32
	amx           *amxKernels     // nil where there are no tile registers; else vnni is not nil
	wino          *winoKernels    // nil if convolutions are computed only by their definition
	six           *sixKernels     // nil where tiles are never larger
	// winoLeast are the smallest numbers of channels of the image, channels of the result and tiles
	// for which convolutions use wino, and the smallest number of cubes for which they also
	// transform the depth of volumes.
	winoLeast struct{ depth, rows, tiles, cubes int }
	sixLeast  int // the smallest number of channels for which those of bf16 use six
	rows      [numTypes]rowsFunc
	pick      [numTypes]pickFunc
	trans     [numTypes]transFunc
	panels    [numTypes]panelsFunc // nil where rowsFuncs pack one panel after the other

	tileBias, tileShift func(h int, tile, x *float32) // add a row to, or an element of x to each of, h rows of nr
	put                 [numTypes]putFunc
	finish              [numTypes]finishFunc // by type of the results; nil if the passes of an epilogue run one after the other
	// touch fetches n bytes of each of h rows, row bytes apart, into the cache; nil in Go.
	touch func(h int, p *byte, row, n int)

	// addRuns adds rows of runs of part, row bytes apart, to dst + outer[i] + starts[j], lengths[j] elements each;
	// entries of outer are step bytes apart, offsets in bytes.
	addRuns  func(rows, runs int, dst, part *float32, row int, outer *int, step int, starts, lengths *int)
	addRows  [numTypes]addRowsFunc  // nil in Go and for NEON
	foldRows [numTypes]foldRowsFunc // nil where addRows is
	foldMost int                    // rows in caches that foldRows sums faster than addRows
	// maxTaps is MaxTaps for n vectors of windows, stride apart from tap to tap; nil in Go.
	maxTaps func(n, taps int, best *float32, index *int32, x *float32, cells *int32, stride int)

	// maxThree pools rows of n windows, up to a vector, of 3 x 3 elements, two apart, and sets nan where x has one: its results
	// are then not those of MaxWindows. nil in Go and for NEON.
	maxThree func(rows, n int, y *float32, ldy int, x *float32, ldx int, nan *uint32)
	// maxThreeBF16 is maxThree for bf16, nil where there is none.
	maxThreeBF16 func(rows, n int, y *byte, ldy int, x *byte, ldx int, nan *uint32)

	pools []poolTable // by ascending lanes; none in Go

	// unzip splits rows of 2n elements, n at most a vector, into those at even and odd places; zip is the inverse. Rows are
	// ldd apart in what is written, lds in what is read.
	unzip func(rows, n int, even, odd *float32, ldd int, src *float32, lds int)
	// unzipHalves is unzip for 16-bit elements, nil where there is none.
	unzipHalves func(rows, n int, even, odd *byte, ldd int, src *byte, lds int)
	zip         func(rows, n int, dst *float32, ldd int, even, odd *float32, lds int)

	gemv   [numTypes][4]gemvFunc  // 1, 2, 4 and 8 rows
	turned [numTypes][]turnedFunc // 1, 2, 4 rows and so on; nil where there are none

	widen   [numTypes]func(n int, dst *float32, src *byte)
	narrow  [numTypes]func(n int, dst *byte, src *float32)
	unary   [numUnary]func(n int, dst, src *float32)
	binary  [numBinary]func(n int, dst, a, b *float32)
	ternary [numTernary]func(n int, dst, a, b, c *float32)

	fence func() // orders streaming stores; nil if there are none

	composes bool // kernels of formulas are composed at load

	sum, max, min func(n int, x *float32) float32
	foldChains    foldChainsFunc
	count         countFunc
	dot           func(n int, a, b *float32) float32
	sumSq         func(n int, x *float32, mean float32) float32 // sum of (x-mean)^2
	normBack      normBackFunc                                  // nil: by other kernels
	queries       int                                           // columns of the three after the next
	rowDots       rowDotsFunc
	scaleLanes    func(n int, s *float32, ld int, lanes *float32) // multiply rows by one row
	scaleEach     scaleEachFunc                                   // nil where unpacked is
	softLanes     softFunc
	softLanesGrad softGradFunc
	expAxpb       func(n int, dst, src *float32, a, b float32)                    // dst = exp(a*src+b)
	exp2Axpb      func(n int, dst, src *float32, a, b float32)                    // dst = 2^(a*src+b)
	softGrad      func(n int, dst, dp, prob *float32, a, b float32)               // dst = (dp+b)*prob*a
	axpb          func(n int, dst, src *float32, a, b float32)                    // dst = a*src+b, fused
	axpy          func(n int, dst, src, y *float32, a float32)                    // dst = a*src+y, fused
	affine        func(n int, dst, src, gamma, beta *float32, rstd, mean float32) // dst = (src-mean)*rstd*gamma+beta
	normGrad      func(n int, dst, dy, xhat *float32, a, b, c float32)            // dst = a*dy+b*xhat+c
	probe         func(iters int)
	probeFlop     float64 // flop of one iteration of probe
}

// tileFunc computes a tile of C, rows x cols: C = (C if acc != 0, else 0) + sum over k < kc of a[k*rows+i]*b[k*ldb+j],
// one fused chain in ascending k, to which C is added at the end. b has a full vector of readable lanes in every row.
// Tiles prefetch the rows of C below them in the first 4*rows depths, then, in every fourth, what next points to: step bytes on
// each time.
type tileFunc func(kc int, a, b *float32, ldb int, c *float32, ldc, cols, acc int, next uintptr, step int)

// indirectFunc is a tileFunc of nr columns for an f32 B in memory: element j of row k is at b0+offs[k] for the first half of the
// columns, at b1+offs[k] for the second, offs in bytes.
type indirectFunc func(kc int, a *float32, b0, b1 *byte, offs *int, c *float32, ldc, acc int)

// packingFunc is a tileFunc of nr columns that packs B while it multiplies: row k of B is at b+k*ldb.
type packingFunc func(kc int, a *float32, b *byte, ldb int, packed, c *float32, ldc, acc int)

// unpackedFunc is a tileFunc of nr columns whose A is not packed: element i, k of A is at a + i*row + k*step bytes. Its
// sum begins with C. It computes several panels of its rows, one below the other.
type unpackedFunc func(panels, kc int, a *byte, row, step int, b *float32, ldb int, c *float32, ldc, acc int)

// fetchingFunc is an unpackedFunc, of vw or nr columns, that prefetches what next points to at each depth, ahead bytes on each time up to last.
type fetchingFunc func(panels, kc int, a *byte, row, step int, b *float32, ldb int, c *float32, ldc, acc int, next uintptr, ahead int, last uintptr)

// scaleEachFunc multiplies n elements, a multiple of nr, of each row r by by[r].
type scaleEachFunc func(rows, n int, dst *float32, ldd int, src *float32, lds int, by *float32)

// rowDotsFunc computes dots[r] as the product of row r of a and row r of b, n elements.
type rowDotsFunc func(rows, n int, a *float32, lda int, b *float32, ldb int, dots *float32)

// softFunc turns n rows of scores times scale into exponentials less the largest of each column.
// Rows are keys, columns are queries. Rows from full on hide columns: row full hides those where
// stair is zero, and stair begins an element earlier for each next row. state has stateRows rows: the
// largest score so far (-Inf at first); the sum of exponentials so far; the factor by which this
// call multiplied that sum before it added to it; and scratch memory.
type softFunc func(n, full int, s *float32, ld int, state, stair *float32, scale float32)

// softGradFunc turns scores s into probabilities p = exp(scale*s + state[0]) and their gradients ds into gain*p*(ds + state[1]), both
// zero where a softFunc hides them.
type softGradFunc func(n, full int, s, ds *float32, ld int, state, stair *float32, scale, gain float32)

// rowsFunc widens n lanes of k rows: dst[r*ldd+j] = src[r*lds+j]. It may write up to the next full vector of each
// dst row, rows in ascending order.
type rowsFunc func(k, n int, dst *float32, ldd int, src *byte, lds int)

// panelsFunc widens rows of several panels, a row of all panels after the other. Panels have lanes elements a row at most, the
// last one has last. It may write up to the next full vector of each row, rows in ascending order, prefetches ahead rows further
// on, and moves places on. lds counts elements.
type panelsFunc func(rows, panels, lanes, last int, places *byte, dst *float32, src *byte, lds, ahead int)

// panelPlace is where a panelsFunc reads and writes the next row of a panel, and how far the row after it is, in bytes.
type panelPlace struct{ from, to, step int }

// pickFunc widens n lanes of k scattered rows: dst[r*ldd+j] = src[offs[r]+j], offs in bytes. It changes nothing else, but
// may store up to the next full vector as it is.
type pickFunc func(k, n int, dst *float32, ldd int, src *byte, offs *int)

// transFunc widens and transposes: dst[c*ldd+r] = src[offs[r]+c] for c < k and r < n; offs in bytes, c in elements.
// It may write up to the next full vector of each dst row, rows in ascending order.
type transFunc func(k, n int, dst *float32, ldd int, src *byte, offs *int)

// putFunc rounds and stores the first n elements of h rows of a tile, nr apart; dst rows are ldd elements apart.
type putFunc func(h, n int, dst *byte, ldd int, tile *float32)

// finishFunc applies an epilogue to h rows of a tile, nr apart, and stores their first n elements, a row of dst every ldd
// elements: x = tile + shift[r], y = max(limits[0], x) + limits[1], and, unless add is nil, max(limits[2], y + add) + limits[3]
// with rows of add, of the type of the results, lda apart. limits of -Inf and -0 leave a number as it is, limits of 0 and 0 make it that of Relu.
type finishFunc func(h, n int, dst *byte, ldd int, tile, shift *float32, add *byte, lda int, limits *float32)

// normBackFunc is a row of NormGrad: with xhat = (x-mean)*rstd and g = dy*gamma it adds dy*xhat to dgamma and dy to dbeta, and
// sets dx = rstd*(g - center*sum(g) - xhat*inv*sum(g*xhat)).
type normBackFunc func(n int, dx, x, dy, gamma, dgamma, dbeta *float32, mean, rstd, inv, center float32)

// addRowsFunc adds deep rows of src, step elements apart and vecs vectors long, one by one to each of so many rows of sum, or to zero
// where these have not begun. Those for the next row of sum begin lds elements on.
type addRowsFunc func(rows, deep, vecs, begun int, sum *float32, src *byte, lds, step int)

// foldRowsFunc sums the columns of rows of vecs vectors, lds elements apart, into each of so many slots, of which there are no more than
// rows: a row of sum, each vecs vectors behind the one before. Slot i sums row i and every slots-th after it, in eight chains that are
// folded as fold does.
type foldRowsFunc func(slots, rows, vecs int, sum *float32, src *byte, lds int)

// foldChainsFunc sets each of n sums to that of its 64 chains, folded as those of sum are.
type foldChainsFunc func(n int, sum, chains *float32)

// gemvFunc adds the product of 8 rows of w to 1, 2, 4 or 8 rows (m) of y, vecs vectors long: x is packed [8][m].
type gemvFunc func(vecs int, y *float32, ldy int, x *float32, w *byte, ldw int)

// gemvVNNIFunc is a gemvFunc of bf16 for 8 rows of w, or 2, x in words of two depths. Its result is not 0 if elements of w are
// subnormal.
type gemvVNNIFunc func(vecs int, y *float32, ldy int, x *float32, w *byte, ldw int) (subnormal uint64)

// turnedFunc computes rows of nr columns of a product: y = (y if acc != 0, else 0) + sum over k of x[k][row]*w[column][k], one fused
// chain in ascending k, to which y is added at the end. Rows of w are ldw elements apart. It prefetches as many elements of
// as many rows from next on.
type turnedFunc func(k int, x *float32, w *byte, ldw int, y *float32, ldy, acc int, next *byte)

// turnedVNNIFunc is a turnedFunc of bf16, x in words of two depths. Its result is not 0 if elements of w are subnormal.
type turnedVNNIFunc func(k int, x *float32, w *byte, ldw int, y *float32, ldy, acc int, next *byte) (subnormal uint64)

var negInf = float32(math.Inf(-1))

// Name is "amx", "avx512bf16", "avx512", "avx2", "neon" or "go".
func (p *Path) Name() string { return p.name }

// Paths lists the paths that this processor runs, the best first; "go" is always last.
func Paths() []*Path { return append(archPaths(), goPath()) }

// Detect returns the path that the environment variable AMPC_CPU names, or the best one if it is empty.
// AMPC_WINOGRAD=off disables Winograd's algorithm, AMPC_COMPOSE=off the kernels that are composed at load.
func Detect(getenv func(string) string) (*Path, error) {
	paths, want, wino := Paths(), getenv("AMPC_CPU"), getenv("AMPC_WINOGRAD")
	if wino != "" && wino != "on" && wino != "off" {
		return nil, fmt.Errorf("AMPC_WINOGRAD=%q: want on or off", wino)
	}
	compose := getenv("AMPC_COMPOSE")
	if compose != "" && compose != "on" && compose != "off" {
		return nil, fmt.Errorf("AMPC_COMPOSE=%q: want on or off", compose)
	}
	var names []string
	for _, p := range paths {
		if want == "" || want == p.name {
			if wino == "off" {
				p.wino = nil
			}
			p.composes = p.composes && compose != "off"
			return p, nil
		}
		names = append(names, p.name)
	}
	return nil, fmt.Errorf("AMPC_CPU=%q: this processor runs %s", want, strings.Join(names, ", "))
}
