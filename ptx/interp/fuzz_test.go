package interp

import (
	"errors"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// FuzzRun: a text that the verifier accepts runs, or faults; it never panics.
func FuzzRun(f *testing.F) {
	f.Add(head + "ld.global.u32 %r4, [%d1]; st.shared.u32 [%r2], %r4; bar.sync 0; shfl.sync.bfly.b32 %r5, %r4, 1, 31, 0xffffffff; ret;\n}\n")
	f.Add(head + "setp.lt.u32 %p0, %r0, 7; @%p0 bra L; div.u32 %r4, %r0, %r3; atom.global.add.u32 %r5, [%d1+64], %r4; L: exit;\n}\n")
	for _, c := range ptxtest.Cases() {
		if c.Size == 31 && !testing.Short() {
			l, err := c.Build(ptx.SM80)
			if err != nil {
				f.Fatal(err)
			}
			f.Add((&ptx.Module{Flavour: ptx.SM80, Kernels: []*ptx.Kernel{l.Kernel}}).Text())
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ptx.Parse(text)
		if err != nil || ptx.Verify(m) != nil {
			return
		}
		for _, k := range m.Kernels {
			p, err := Compile(k)
			if err != nil {
				continue
			}
			mem, cfg := NewMemory(), Config{Grid: [3]int{2, 1, 1}, Block: 64}
			for range k.Params {
				addr := mem.Alloc(4096)
				if err := mem.Fill(addr, 1, 4096); err != nil {
					t.Fatal(err)
				}
				cfg.Args = append(cfg.Args, addr)
			}
			var fault *Fault
			if _, err := p.Run(mem, cfg, Options{MaxSteps: 2000}); err != nil && !errors.As(err, &fault) {
				t.Errorf("%v is not a fault", err)
			}
		}
	})
}
