package data_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ampc/data"
)

// numbers is a set whose record i is the number i.
type numbers int

func (n numbers) Len() int { return int(n) }

func (n numbers) At(i int, _ *rand.Rand) (data.Example, error) {
	return data.Example{"i": int32(i)}, nil
}

func loader(t *testing.T, s data.Set, o data.Options) *data.Loader {
	t.Helper()
	l, err := data.NewLoader(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// epoch lists the records of the rest of an epoch, batch by batch.
func epoch(t *testing.T, l *data.Loader) (all [][]int32) {
	t.Helper()
	for b, err := range l.Epoch(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Feed["i"].([]int32))
	}
	return all
}

func TestLastBatch(t *testing.T) {
	for last, want := range map[data.Last]string{
		data.Short: "[[0 1 2] [3 4 5] [6]]",
		data.Pad:   "[[0 1 2] [3 4 5] [6 -100 -100]]",
		data.Drop:  "[[0 1 2] [3 4 5]]",
	} {
		l := loader(t, numbers(7), data.Options{Batch: 3, Last: last, Pad: map[string]float64{"i": -100}, Mask: "real"})
		var counts, sizes []int
		var mask []float32
		for b, err := range l.Epoch(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			counts, sizes, mask = append(counts, b.Count), append(sizes, b.Size), b.Feed["real"].([]float32)
		}
		got := epoch(t, l)
		if fmt.Sprint(got) != want || len(got) != l.Batches() {
			t.Errorf("last %d: %v, want %s in %d", last, got, want, l.Batches())
		}
		if last == data.Pad && (!slices.Equal(counts, []int{3, 3, 1}) || !slices.Equal(sizes, []int{3, 3, 3}) || !slices.Equal(mask, []float32{1, 0, 0})) {
			t.Errorf("counts %v, sizes %v, mask %v", counts, sizes, mask)
		}
	}
}

// Every epoch has each record once, in an order of its own, whatever the workers do.
func TestShuffle(t *testing.T) {
	o := data.Options{Batch: 7, Shuffle: true, Seed: 3}
	l := loader(t, numbers(100), o)
	o.Workers, o.Ahead = 5, 9
	many := loader(t, numbers(100), o)
	var before []int32
	for range 3 {
		got := epoch(t, l)
		if other := epoch(t, many); !reflect.DeepEqual(got, other) {
			t.Errorf("five workers give another order: %v, %v", got, other)
		}
		all := slices.Concat(got...)
		if slices.Equal(all, before) {
			t.Error("two epochs have one order")
		}
		before = slices.Clone(all)
		if slices.Sort(all); len(all) != 100 || all[0] != 0 || len(slices.Compact(all)) != 100 {
			t.Errorf("an epoch has %v", all)
		}
	}
	o.Seed = 4
	if reflect.DeepEqual(epoch(t, loader(t, numbers(100), o)), epoch(t, loader(t, numbers(100), data.Options{Batch: 7, Shuffle: true, Seed: 3}))) {
		t.Error("two seeds have one order")
	}
}

// A loader that is restored to the state behind any batch, as JSON holds it, continues
// with the same batches, random transformations included.
func TestStateResumes(t *testing.T) {
	noisy := data.Map(numbers(23), func(e data.Example, r *rand.Rand) (data.Example, error) {
		e["noise"] = r.Float64()
		return e, nil
	})
	o := data.Options{Batch: 4, Shuffle: true, Seed: 9, Workers: 3}
	type seen struct {
		epoch int
		feed  map[string]any
	}
	var want []seen
	var states [][]byte
	for b, err := range loader(t, noisy, o).Epochs(context.Background(), 2) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, seen{b.Epoch, b.Feed})
	}
	first := loader(t, noisy, o)
	for range first.Epochs(context.Background(), 2) {
		text, err := json.Marshal(first.State())
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, text)
	}
	for k, text := range states {
		var s data.State
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		l := loader(t, noisy, o)
		if err := l.Restore(s); err != nil {
			t.Fatal(err)
		}
		var got []seen
		for l.State().Epoch < 2 {
			for b, err := range l.Epoch(context.Background()) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, seen{b.Epoch, b.Feed})
				break // one at a time: a break leaves the loader behind the batch
			}
		}
		if !reflect.DeepEqual(got, slices.Clone(want[k+1:])) && len(got)+len(want[k+1:]) > 0 {
			t.Errorf("after batch %d: %d batches differ from the %d of one run", k, len(got), len(want)-k-1)
		}
	}
	l := loader(t, noisy, o)
	for _, bad := range []data.State{{Records: 22, Seed: 9}, {Records: 23, Seed: 8}, {Records: 23, Seed: 9, Position: 24}, {Records: 23, Seed: 9, Epoch: -1}} {
		if l.Restore(bad) == nil {
			t.Errorf("state %+v is taken", bad)
		}
	}
}

// Bad records are named in order and left out; batches stay full. Or they end the epoch.
func TestBadRecords(t *testing.T) {
	third := data.Map(numbers(20), func(e data.Example, _ *rand.Rand) (data.Example, error) {
		if i := e["i"].(int32); i%3 == 1 {
			return nil, &data.BadRecord{Path: "f", Line: int(i), Err: errors.New("odd")}
		}
		return e, nil
	})
	var told []string
	o := data.Options{Batch: 4, Workers: 4, OnBad: func(err error) error { told = append(told, err.Error()); return nil }}
	got := epoch(t, loader(t, third, o))
	if fmt.Sprint(got) != "[[0 2 3 5] [6 8 9 11] [12 14 15 17] [18]]" || len(told) != 7 || told[0] != "f:1: odd" || !slices.Contains(told, "f:19: odd") {
		t.Errorf("batches %v, told %q", got, told)
	}
	o.OnBad = nil
	for b, err := range loader(t, third, o).Epoch(context.Background()) {
		if err == nil || err.Error() != "f:1: odd" {
			t.Errorf("batch %v, error %v", b, err)
		}
	}
	o.OnBad = data.Skip
	broken := data.Map(numbers(20), func(data.Example, *rand.Rand) (data.Example, error) { return nil, errors.New("disk") })
	for _, err := range loader(t, broken, o).Epoch(context.Background()) {
		if err == nil || !strings.Contains(err.Error(), "record 0: disk") {
			t.Errorf("an error that is no bad record: %v", err)
		}
	}
	panics := data.Map(numbers(20), func(data.Example, *rand.Rand) (data.Example, error) { panic("oops") })
	for _, err := range loader(t, panics, o).Epoch(context.Background()) {
		if err == nil || !strings.Contains(err.Error(), "panic: oops") {
			t.Errorf("a panic: %v", err)
		}
	}
}

// Ranks share an epoch: each record once, equally many for all.
func TestRanks(t *testing.T) {
	var all []int32
	for rank := range 3 {
		got := slices.Concat(epoch(t, loader(t, numbers(20), data.Options{Batch: 2, Shuffle: true, Seed: 1, Rank: rank, Ranks: 3}))...)
		if len(got) != 6 {
			t.Errorf("rank %d has %v", rank, got)
		}
		all = append(all, got...)
	}
	if slices.Sort(all); len(slices.Compact(all)) != 18 {
		t.Errorf("the ranks have %v", all)
	}
}

// What is made ahead is bounded, and nothing stays behind a range that is left.
func TestPrefetchIsBounded(t *testing.T) {
	var made atomic.Int32
	counted := data.Map(numbers(1000), func(e data.Example, _ *rand.Rand) (data.Example, error) { made.Add(1); return e, nil })
	before := runtime.NumGoroutine()
	for range loader(t, counted, data.Options{Batch: 10, Ahead: 3, Workers: 2}).Epoch(context.Background()) {
		for last := int32(-1); last != made.Load(); time.Sleep(10 * time.Millisecond) {
			last = made.Load()
		}
		break
	}
	if n := made.Load(); n < 30 || n > 70 {
		t.Errorf("%d records were read for one batch of 10 with three ahead", n)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := errors.New("stopped")
	var last error
	for _, err := range loader(t, counted, data.Options{Batch: 10}).Epoch(ctx) {
		cancel(stop)
		last = err
	}
	if !errors.Is(last, stop) {
		t.Errorf("the range of a context that ends has error %v", last)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestCollate(t *testing.T) {
	for want, s := range map[string]data.Set{
		`field "v": is a []float32 of 0 in one record and a []float32 of 1 in another`: data.Map(numbers(2), func(e data.Example, _ *rand.Rand) (data.Example, error) {
			return data.Example{"v": make([]float32, e["i"].(int32))}, nil
		}),
		`field "v": is a struct {}, which makes no batch`: data.Map(numbers(2), func(data.Example, *rand.Rand) (data.Example, error) { return data.Example{"v": struct{}{}}, nil }),
		`records have different fields: ["a"] and ["a" "b"]`: data.Map(numbers(2), func(e data.Example, _ *rand.Rand) (data.Example, error) {
			if e["i"] == int32(0) {
				return data.Example{"a": 1.5}, nil
			}
			return data.Example{"a": 1.5, "b": 1}, nil
		}),
	} {
		for _, err := range loader(t, s, data.Options{Batch: 2}).Epoch(context.Background()) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
	}
	own := data.Options{Batch: 2, Collate: func(r []data.Example) (map[string]any, error) {
		return map[string]any{"i": []int32{int32(len(r))}}, nil
	}}
	if got := epoch(t, loader(t, numbers(3), own)); fmt.Sprint(got) != "[[2] [1]]" {
		t.Errorf("collated by hand: %v", got)
	}
}

func TestLoaderRefuses(t *testing.T) {
	for want, o := range map[string]data.Options{
		"Batch is 0":             {},
		"Last is 7":              {Batch: 1, Last: 7},
		"Rank is 2 of 2":         {Batch: 1, Rank: 2, Ranks: 2},
		"OnBad is set":           {Batch: 1, Ranks: 2, OnBad: data.Skip},
		"no batch is left":       {Batch: 5, Last: data.Drop},
		"3 records for 4 ranks":  {Batch: 1, Ranks: 4},
		"Workers is -1":          {Batch: 1, Workers: -1},
		"Collate fill the batch": {Batch: 1, Last: data.Pad, Collate: func([]data.Example) (map[string]any, error) { return nil, nil }},
	} {
		if _, err := data.NewLoader(numbers(3), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestSets(t *testing.T) {
	list := func(s data.Set) (all []int32) {
		for i := range s.Len() {
			e, err := s.At(i, nil)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e["i"].(int32))
		}
		return all
	}
	train, held := data.Split(numbers(10), 0.3, 5)
	again, _ := data.Split(numbers(10), 0.3, 5)
	if !slices.Equal(list(train), list(again)) || train.Len() != 7 || held.Len() != 3 || !slices.IsSorted(list(train)) {
		t.Errorf("split into %v and %v", list(train), list(held))
	}
	both := append(list(train), list(held)...)
	if slices.Sort(both); len(slices.Compact(both)) != 10 {
		t.Errorf("split into %v", both)
	}
	for n, want := range map[int][2]int{0: {0, 0}, 1: {1, 0}, 2: {1, 1}} {
		for _, share := range []float64{0, 0.5, 1} {
			if train, held := data.Split(numbers(n), share, 1); train.Len() != want[0] || held.Len() != want[1] {
				t.Errorf("share %g of %d: %d and %d", share, n, train.Len(), held.Len())
			}
		}
	}
	if _, held := data.Every(numbers(10), 3); !slices.Equal(list(held), []int32{2, 5, 8}) {
		t.Errorf("each third is %v", list(held))
	}
	if got := list(data.Join(numbers(2), numbers(0), data.Subset(numbers(9), []int{8, 4}))); !slices.Equal(got, []int32{0, 1, 8, 4}) {
		t.Errorf("joined: %v", got)
	}
}
