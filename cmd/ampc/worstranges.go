package main

import (
	"math"

	"ampc"
	"ampc/fit"
)

// rangeEvery is how many steps lie between two whose values are looked at under --serve.
const rangeEvery = 20

// worstRanges are the 16-bit values of a step that come nearest to the ends of what their dtypes hold.
type worstRanges struct {
	high, low           float64 // the largest magnitude, over the largest and over the smallest number of its dtype
	highValue, lowValue string  // "": none was looked at
}

// add takes in one value. One that is not finite is beyond all others; one of zeros counts at neither
// end.
func (w *worstRanges) add(r ampc.StoredRange) {
	high := r.High
	if !r.Finite {
		high = math.Inf(1)
	}
	if high > 0 && (w.highValue == "" || high > w.high) {
		w.high, w.highValue = high, r.Value
	}
	if r.Low > 0 && (w.lowValue == "" || r.Low < w.low) {
		w.low, w.lowValue = r.Low, r.Value
	}
}

// write puts the values into a row.
func (w *worstRanges) write(r *fit.Row) {
	words := func(column, value, name string, x float64) {
		if name == "" {
			return
		}
		if r.Words == nil {
			r.Words = map[string]string{}
		}
		r.Values[column], r.Words[value] = x, name
	}
	words(highColumn, highValueColumn, w.highValue, w.high)
	words(lowColumn, lowValueColumn, w.lowValue, w.low)
}

// worstOf is what write put into a row.
func worstOf(r fit.Row) worstRanges {
	w := worstRanges{r.Values[highColumn], r.Values[lowColumn], r.Words[highValueColumn], r.Words[lowValueColumn]}
	if w.highValue != "" && math.IsNaN(w.high) {
		w.high = math.Inf(1) // null in JSON
	}
	return w
}

// watch makes the next step fill in its worst ranges, where it is its turn. stop ends that.
func (t *trainer) watch() (w *worstRanges, stop func()) {
	w = &worstRanges{}
	if !t.curves.ranges || t.done%rangeEvery != 0 || !t.step.Watch(w.add) {
		return w, func() {}
	}
	return w, func() { t.step.Watch(nil) }
}
