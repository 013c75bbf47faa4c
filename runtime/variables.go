package runtime

import (
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
)

// InitialBytes evaluates the initializer of a declaration.
func InitialBytes(v *lower.Var, seed int64) ([]byte, error) {
	if v.Init != nil && v.Init.Func == "file" && v.Type.DType != ir.Bool {
		return eval.FileBytes(v.Type, v.Init) // every bit pattern is a valid element of these dtypes
	}
	t, err := eval.InitVar(&ir.Value{Name: v.Name, Type: v.Type, Kind: v.Kind, Init: v.Init, Attr: v.Attr}, seed)
	if err != nil {
		return nil, err
	}
	return t.Bytes(), nil
}
