// Command gen writes the amd64 assembly of the CPU kernels and its Go stubs:
//
//	go generate ampc/runtime/cpu/kern
//
// It is a module of its own, so that users of ampc never see avo. Every kernel is emitted twice from one
// description, with 512-bit vectors and masks (AVX-512 F, BW, DQ, VL) and with 256-bit ones (AVX2, FMA, F16C).
package main

import (
	"flag"
	"log"
	"os"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/buildtags"
)

func main() {
	Constraint(buildtags.Term("amd64"))
	tab := &consts{at: map[bits]int{}}
	for _, v := range []*vm{{w: 16, consts: tab}, {w: 8, consts: tab}} {
		v.tiles()
		v.packing()
		v.skinny()
		v.casts()
		v.elementwise()
		v.reductions()
		v.probe()
	}
	tab.emit()
	cpuid()
	out := flag.String("tables", "", "file for the tables of the kernels")
	Generate()
	if err := os.WriteFile(*out, tables(), 0o644); err != nil {
		log.Fatal(err)
	}
}
