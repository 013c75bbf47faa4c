package main

import (
	"testing"

	"ampc/ir"
)

// Drawn integers number rows, elements along an axis, classes: of whatever row reads them.
func TestIndexBound(t *testing.T) {
	g, err := ir.Parse("ids.ir", []byte(`graph @ids {
  dim batch
  input %rows : i32[3]
  input %columns : i32[3]
  input %classes : i32[4]
  input %places : i64[2,7]
  input %other : i32[3]
  input %x : f32[4,7]
  input %h : f32[4,5]
  input %labels : i32[batch]
  input %z : f32[batch,6]
forward:
  %e = embedding %x, %rows : f32[3,7]
  %g = gather %x, %columns {axis=1} : f32[4,3]
  %p = gather_elements %x, %places {axis=0} : f32[2,7]
  %sum, %count = cross_entropy %h, %classes : f32[], f32[]
  %o = one_hot %other {depth=2} : f32[3,2]
  %sum_2, %count_2 = cross_entropy %z, %labels : f32[], f32[]
  return %e, %g, %p, %sum, %o
}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"rows": 4, "columns": 7, "classes": 5, "places": 4, "other": 256, "labels": 6} {
		if got := indexBound(g, name); got != want {
			t.Errorf("%s below %d, want %d", name, got, want)
		}
	}
}
