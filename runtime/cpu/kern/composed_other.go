//go:build !amd64 && !arm64

package kern

import "ampc/internal/philox"

// composed is a kernel that is assembled in memory; there is none for this architecture.
type composed struct{}

func (*composed) run(int, *Call, []Type, *float32) {}

func (*composed) byRow(int, int, *Call, []Type, *float32) {}

func (*composed) sumRows(int, int, int, int, int, *Call, []Type, *float32, []float32, int) {}

func (*composed) repeat(*byte, int, int, int) {}

func (*composed) streams() bool { return false }

func (*composed) stream(int, *Call, []Type, *float32) {}

func (*composed) close() {}

type rare struct{}

// Compose returns nil: this architecture composes no kernels.
func (p *Path) Compose(*Formula) *Fused { return nil }

// HasBody reports whether formulas may apply the primitive of a name.
func (p *Path) HasBody(string) bool { return false }

// Checks reports whether kernels do not cover all operands of the primitive of a name.
func Checks(string) bool { return false }

// Draw has no effect: no kernels make random words.
func (c *Call) Draw(int, philox.Draw, uint64) {}

func (f *Fused) seek(*Call, int) int { return 0 }

type drawnFrom struct{}

// Composes reports whether kernels are composed for p, and if not, what refuses it.
func (p *Path) Composes() (ok bool, refused string) { return false, "" }
