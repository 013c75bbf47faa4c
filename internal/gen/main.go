// Command gen writes the assembly of the CPU kernels and its Go stubs:
//
//	go generate ampc/runtime/cpu/kern
//
// It is a module of its own, so that users of ampc never see avo. Every kernel is emitted twice from one
// description for amd64, with 512-bit vectors and masks (AVX-512 F, BW, DQ, VL) and with 256-bit ones (AVX2, FMA, F16C).
// Products of bf16 operands also come in forms for AVX512_BF16 and AMX.
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
	wide := &vm{w: 16, consts: tab}
	for _, v := range []*vm{wide, {w: 8, consts: tab}} {
		v.tiles()
		if v.wide() {
			v.vnni()
			v.endings()
			v.maxThreeBF16()
		}
		v.packing()
		v.smallM()
		v.finish()
		v.touch()
		v.casts()
		v.elementwise()
		v.fence()
		v.reductions()
		v.philox()
		v.maxTaps()
		v.pools()
		v.maxThree()
		v.addRuns()
		v.zips()
		v.winograd()
		v.attention()
		v.count()
		v.probe()
	}
	wide.winoSix()
	tab.emit()
	emitRamp()
	emitPairs()
	emitWords()
	cpuid()
	tables := flag.String("tables", "", "file for the tables of the amd64 kernels")
	arm := flag.String("arm64", "", "file for the arm64 kernels, without its extension")
	tiles := flag.String("amx", "", "file for the kernels of AMX, without its extension")
	armComposed := flag.String("arm64bodies", "", "file for those of arm64")
	composed := flag.String("bodies", "", "file for the bodies of kernels that are composed at load")
	Generate()
	if err := bf16Code(flag.Lookup("out").Value.String()); err != nil {
		log.Fatal(err)
	}
	n := neon{consts: consts{at: map[bits]int{}}}
	n.emit()
	var x amx
	x.emit()
	for name, text := range map[string]string{*tables: tableSource(), *composed: bodySource(), *armComposed: armBodySource(), *arm + ".s": n.asm.String(), *arm + ".go": n.stubs.String() + n.table(),
		*tiles + ".s": x.asm.String(), *tiles + ".go": x.stubs.String()} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
