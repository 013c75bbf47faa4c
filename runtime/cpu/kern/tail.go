//go:build amd64 || arm64

package kern

import "unsafe"

// The functions of this file complete kernels that take a multiple of 8 elements: Go does the rest.

func after(p *float32, n int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*n)) }
func past(p *byte, n int) *byte        { return (*byte)(unsafe.Add(unsafe.Pointer(p), n)) }

func wholeDepths(t Type, f transFunc) transFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, offs *int) {
		whole := k &^ 7
		if whole > 0 {
			f(whole, n, dst, ldd, src, offs)
		}
		if whole < k {
			transGo(t, k-whole, n, after(dst, whole*ldd), ldd, past(src, whole*t.Size()), offs)
		}
	}
}

func wholeRows(t Type, f rowsFunc) rowsFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, lds int) {
		whole := n &^ 7
		if whole > 0 {
			f(k, whole, dst, ldd, src, lds)
		}
		if whole < n {
			rowsGo(t, k, n-whole, after(dst, whole), ldd, past(src, whole*t.Size()), lds)
		}
	}
}

func wholePicks(t Type, f pickFunc) pickFunc {
	return func(k, n int, dst *float32, ldd int, src *byte, offs *int) {
		whole := n &^ 7
		if whole > 0 {
			f(k, whole, dst, ldd, src, offs)
		}
		if whole < n {
			pickGo(t, k, n-whole, after(dst, whole), ldd, past(src, whole*t.Size()), offs)
		}
	}
}

func wholeWiden(t Type, f func(n int, dst *float32, src *byte)) func(n int, dst *float32, src *byte) {
	return func(n int, dst *float32, src *byte) {
		whole := n &^ 7
		if whole > 0 {
			f(whole, dst, src)
		}
		if whole < n {
			rowsGo(t, 1, n-whole, after(dst, whole), n, past(src, whole*t.Size()), n)
		}
	}
}

func wholeNarrow(t Type, f func(n int, dst *byte, src *float32)) func(n int, dst *byte, src *float32) {
	return func(n int, dst *byte, src *float32) {
		whole := n &^ 7
		if whole > 0 {
			f(whole, dst, src)
		}
		if whole < n {
			narrowGo(t, n-whole, past(dst, whole*t.Size()), after(src, whole))
		}
	}
}

func wholeCheck(t Type, f func(n int, dst, src *byte, scale float32) uint64) func(n int, dst, src *byte, scale float32) uint64 {
	return func(n int, dst, src *byte, scale float32) uint64 {
		whole := n &^ 7
		bad := f(whole, dst, src, scale)
		if whole < n {
			bad |= scaleCheckGo(t, n-whole, past(dst, 4*whole), past(src, whole*t.Size()), scale)
		}
		return bad
	}
}

func wholeBinary(op Binary, f func(n int, dst, a, b *float32)) func(n int, dst, a, b *float32) {
	return func(n int, dst, a, b *float32) {
		whole := n &^ 7
		if whole > 0 {
			f(whole, dst, a, b)
		}
		if whole < n {
			binaryGo(binaryRows[op].f, n-whole, after(dst, whole), after(a, whole), after(b, whole))
		}
	}
}

func wholeTernary(op Ternary, f func(n int, dst, a, b, c *float32)) func(n int, dst, a, b, c *float32) {
	return func(n int, dst, a, b, c *float32) {
		whole := n &^ 7
		if whole > 0 {
			f(whole, dst, a, b, c)
		}
		if whole < n {
			ternaryGo(ternaryRows[op].f, n-whole, after(dst, whole), after(a, whole), after(b, whole), after(c, whole))
		}
	}
}
