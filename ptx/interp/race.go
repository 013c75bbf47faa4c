package interp

// mark remembers who last touched a byte in this launch.
type mark struct {
	writer, reader stamp
}

// stamp is one access: the thread (its number in the grid plus one; 0 is nobody) and when.
type stamp struct {
	thread, block uint32
	warp          uint32
	epoch         uint32 // barriers the block has passed
	warpEpoch     uint32 // warp barriers the warp has passed
	atomic        bool
	lanes         bool // several readers in the warp since its last barrier
	shared        bool // readers of several warps since the block's last barrier
	everywhere    bool // readers of several blocks
}

// ordered reports whether the earlier access s happens before the access now: same thread, or a
// barrier of the block or of the warp lies between, or both are atomic.
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
	case old.ordered(now): // whoever comes after this reader comes after that one
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
