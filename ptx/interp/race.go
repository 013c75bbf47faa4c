package interp

// mark records the last accesses to some bytes in this launch.
type mark struct {
	writer, reader stamp
}

// shadow has the marks of a buffer, one for every grain of bytes. The grain is the size of the
// smallest access so far; a smaller access splits every mark.
type shadow struct {
	grain int // 0: no marks yet
	marks []mark
}

// coarse is the initial grain: most accesses move whole words.
const coarse = 4

func (s *shadow) clear() { clear(s.marks) }

// of returns the marks of the n bytes from off in a buffer of size bytes.
func (s *shadow) of(size int, off uint64, n int) []mark {
	if s.grain == 0 || n < s.grain {
		s.split(size, min(n, coarse))
	}
	first := int(off) / s.grain
	return s.marks[first : first+n/s.grain]
}

// split makes the grain smaller.
func (s *shadow) split(size, grain int) {
	old := *s
	s.grain, s.marks = grain, make([]mark, (size+grain-1)/grain)
	for i := range s.marks {
		if old.grain > 0 {
			s.marks[i] = old.marks[i*grain/old.grain]
		}
	}
}

// stamp is one access: the thread (its index in the grid plus one; 0: none) and the time.
type stamp struct {
	thread, block uint32
	warp          uint32
	epoch         uint32 // number of barriers that the block has passed
	warpEpoch     uint32 // number of warp barriers that the warp has passed
	atomic        bool
	lanes         bool // several readers in the warp since its last barrier
	shared        bool // readers in several warps since the block's last barrier
	everywhere    bool // readers in several blocks
}

// ordered reports whether the earlier access s happens before the current one: the same thread made
// both, a barrier of the block or of the warp lies between, or both are atomic.
func (s *stamp) ordered(now *stamp) bool {
	switch {
	case s.thread == 0 || s.atomic && now.atomic:
		return true
	case s.everywhere || s.block != now.block:
		return false
	case s.epoch != now.epoch:
		return true
	case s.shared:
		return false
	case s.thread == now.thread && !s.lanes:
		return true
	}
	return s.warp == now.warp && s.warpEpoch != now.warpEpoch
}

// read records a read and reports whether it races with the last write.
func (m *mark) read(now *stamp) (race bool) {
	if !m.writer.ordered(now) {
		return true
	}
	old := m.reader
	m.reader = *now
	switch {
	case old.ordered(now): // an access that happens after this reader also happens after that one
	case old.everywhere || old.block != now.block:
		m.reader.everywhere = true
	case old.shared || old.warp != now.warp:
		m.reader.shared = true
	default:
		m.reader.lanes = true
	}
	return false
}

// write records a write and reports whether it races with the last write or read.
func (m *mark) write(now *stamp) (race bool) {
	if !m.writer.ordered(now) || !m.reader.ordered(now) {
		return true
	}
	m.writer = *now
	return false
}
