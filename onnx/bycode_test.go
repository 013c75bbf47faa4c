package onnx

import "ampc/ir"

// ByCode lets an elementwise op be written by its code alone, until restore is called.
func ByCode(op ir.Op) (restore func()) {
	table := exports()
	was := table[op]
	table[op] = []export{codeForm(op)}
	return func() { table[op] = was }
}
