package sim

import (
	"cmp"
	"slices"

	"ampc/cuda"
	"ampc/ptx/interp"
)

// Range is device memory.
type Range struct {
	At    cuda.Ptr
	Bytes int64
}

// Footprint is the memory that the operations of one step may access. They may write only in
// Writes, and read there and in Reads. Memory is compared by pages of 256 bytes, which buffers do
// not share.
type Footprint struct{ reads, writes []Range }

// NewFootprint returns the footprint of these ranges.
func NewFootprint(reads, writes []Range) *Footprint {
	return &Footprint{pages(append(slices.Clone(reads), writes...)), pages(writes)}
}

// pages widens ranges to whole pages, sorts them and joins those that meet.
func pages(list []Range) []Range {
	var out []Range
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Range) int { return cmp.Compare(a.At, b.At) })
	for _, r := range list {
		if r.Bytes <= 0 {
			continue
		}
		from := r.At / interp.PageSize * interp.PageSize
		to := (r.At + cuda.Ptr(r.Bytes) + interp.PageSize - 1) / interp.PageSize * interp.PageSize
		if n := len(out); n > 0 && out[n-1].end() >= from {
			out[n-1].Bytes = int64(max(out[n-1].end(), to) - out[n-1].At)
			continue
		}
		out = append(out, Range{from, int64(to - from)})
	}
	return out
}

func (r Range) end() cuda.Ptr { return r.At + cuda.Ptr(r.Bytes) }

// Limit restricts the operations issued from now on to a footprint, also in replays of a graph that
// captures them; nil removes the limit. An operation outside its footprint fails, although a real
// device would run it.
func (d *Device) Limit(f *Footprint) { d.held = f }

// leaves returns memory that an operation used outside the footprint.
func (f *Footprint) leaves(uses []span) (span, bool) {
	for _, u := range uses {
		list := f.reads
		if u.write {
			list = f.writes
		}
		at, found := slices.BinarySearchFunc(list, u.at, func(r Range, p cuda.Ptr) int { return cmp.Compare(r.At, p) })
		if !found {
			at--
		}
		if u.bytes > 0 && (at < 0 || u.at+cuda.Ptr(u.bytes) > list[at].end()) {
			return u, true
		}
	}
	return span{}, false
}

// keepsTo returns an error if an operation used memory outside its footprint.
func (d *Device) keepsTo(f *Footprint, what string, uses []span) error {
	if f == nil || d.opt.NoHazards {
		return nil
	}
	if u, ok := f.leaves(uses); ok {
		verb := "reads"
		if u.write {
			verb = "writes"
		}
		return d.fail(what, codeHazard, "%s %s %d bytes at %#x, which its step does not declare", what, verb, u.bytes, uint64(u.at))
	}
	return nil
}
