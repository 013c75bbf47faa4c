package main

import (
	"reflect"
	"testing"

	"ampc/lower"
	"ampc/models"
)

// TestBenchFeeds: benchmarks draw distinct batches, the same ones every time.
func TestBenchFeeds(t *testing.T) {
	z, err := models.Open("mlp?batch=4")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	g := z.Model.Graph()
	var vars []lower.Var
	for _, v := range g.Vars {
		vars = append(vars, lower.Var{Name: v.Name, Type: v.Type, Kind: v.Kind})
	}
	feeds := benchFeeds(g, vars, 2)
	if !reflect.DeepEqual(feeds, benchFeeds(g, vars, 2)) {
		t.Error("two calls give other batches")
	}
	for i, a := range feeds {
		if len(a) != 2 || reflect.DeepEqual(a[0], a[1]) {
			t.Errorf("step %d has %d micro-batches, want 2 that differ", i, len(a))
		}
		for j := range i {
			if reflect.DeepEqual(a, feeds[j]) {
				t.Errorf("steps %d and %d have the same batch", j, i)
			}
		}
	}
}
