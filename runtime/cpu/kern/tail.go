//go:build amd64 || arm64

package kern

import "unsafe"

// The functions of this file complete kernels that take a multiple of 8 elements: Go does the rest.

func after(p *float32, n int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*n)) }
func past(p *byte, n int) *byte        { return (*byte)(unsafe.Add(unsafe.Pointer(p), n)) }

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
