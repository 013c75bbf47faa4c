package kern

import (
	"slices"
	"testing"
)

// A table that is kept is the one that would be made: grids, sizes, steps and taps that differ in one number share none, what is
// appended to a table afterwards goes elsewhere, and tables beyond what is kept are made anew.
func TestTablesAreKept(t *testing.T) {
	grids := []grid{{phases: 1, channel: 100, item: [2]int{700, 0}, axis: [3]int{90, 10, 1}}}
	for _, change := range []func(g *grid){func(g *grid) { g.phases, g.phase = 2, 5 }, func(g *grid) { g.channel++ }, func(g *grid) { g.item[0]++ },
		func(g *grid) { g.axis[1]++ }, func(g *grid) { g.axis[2]++ }, func(g *grid) { g.buf.Type = F16 }} {
		g := grids[0]
		change(&g)
		grids = append(grids, g)
	}
	var made []func(o *offsets)
	for i := range grids {
		for _, n := range []int{1, 2} {
			for _, size := range [][3]int{{1, 3, 4}, {1, 4, 3}} {
				for _, step := range [][3]int{{1, 1, 1}, {1, 2, 2}} {
					made = append(made, func(o *offsets) { o.pixels(&grids[i], n, size, step) },
						func(o *offsets) { o.taps(&grids[i], n, size, [3]int{}, step, false) }, func(o *offsets) { o.taps(&grids[i], n, size, [3]int{0, 1, 1}, step, true) })
				}
			}
		}
	}
	for _, s := range [][4]int{{2, 3, 4, 5}, {4, 3, 2, 5}, {4, 5, 2, 3}, {2, 5, 4, 3}} {
		made = append(made, func(o *offsets) { o.strided(s[0], s[1], s[2], s[3]) }, func(o *offsets) { o.zipped(s[0], s[1], s[2], s[3]) })
	}
	kept := keptTables{}
	fresh, o := offsets{}, offsets{kept: &kept}
	for range 3 {
		for i, f := range made {
			f(&fresh)
			if f(&o); !slices.Equal(o.s, fresh.s) {
				t.Fatalf("table %d is %v, want %v", i, o.s, fresh.s)
			}
			if o.reset(); len(o.s) > 0 {
				t.Fatal("a table that was emptied is not empty")
			}
			o.s = append(o.s, -1, -1, -1)
		}
	}
	if n := testing.AllocsPerRun(5, func() {
		for _, f := range made {
			f(&o)
		}
	}); n > 0 {
		t.Errorf("tables that are kept allocate %g times", n)
	}
	o.strided(1, 1, mostKept, 1)
	if kept.total > mostKept || !slices.Equal(o.s[:3], []int{0, 1, 2}) || len(o.s) != mostKept {
		t.Errorf("%d offsets are kept; the table too many has %d", kept.total, len(o.s))
	}
	for n := range 300 { // more than there is room for: the latest are kept, and the one that is asked for again and again
		o.strided(1, 1, 1<<16-n, 1)
		o.strided(2, 3, 4, 5)
	}
	if n := testing.AllocsPerRun(5, func() {
		o.strided(2, 3, 4, 5)
		o.strided(1, 1, 1<<16-299, 1)
	}); n > 0 || kept.total > mostKept || kept.used.Len() != len(kept.tables) {
		t.Errorf("the latest tables allocate %g times; %d offsets of %d tables are kept", n, kept.total, len(kept.tables))
	}
}
