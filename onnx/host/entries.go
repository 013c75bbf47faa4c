package host

import (
	"slices"

	"ampc/ir"
)

// entries are those of a stage, in the order in which they were made. Where there are many, as for each length of what a
// decoder has cached, they are found by the type of an operand in which they differ.
type entries struct {
	all    []*entry
	by     string // such an operand, where byType is set
	byType map[ir.Type][]*entry
}

// indexed is the number of entries after which they are indexed, if they can be.
const indexed = 8

func (l *entries) add(e *entry) {
	l.all = append(l.all, e)
	if l.byType == nil {
		if len(l.all)%indexed == 0 {
			l.index()
		}
		return
	}
	if x := e.tensor(l.by); x != nil {
		l.byType[x.typ] = append(l.byType[x.typ], e)
	} else {
		l.byType = nil
	}
}

// index chooses an operand in which the last two entries differ and that all entries read.
func (l *entries) index() {
	last := l.all[len(l.all)-2:]
	for _, x := range last[1].reads {
		if y := last[0].tensor(x.name); y == nil || y.typ == x.typ {
			continue
		}
		byType := map[ir.Type][]*entry{}
		for _, e := range l.all {
			x := e.tensor(x.name)
			if x == nil {
				byType = nil
				break
			}
			byType[x.typ] = append(byType[x.typ], e)
		}
		if byType != nil {
			l.by, l.byType = x.name, byType
			return
		}
	}
}

// tensor is the operand of e of a name, nil where it is none or no tensor that is fed or computed.
func (e *entry) tensor(name string) *operand {
	i := slices.IndexFunc(e.reads, func(x operand) bool { return x.name == name })
	if i < 0 || e.reads[i].kind != Tensor || e.reads[i].init != nil {
		return nil
	}
	return &e.reads[i]
}

// candidates are the entries that may fit a frame.
func (l *entries) candidates(f *frame) []*entry {
	if l.byType == nil {
		return l.all
	}
	v, t, _ := f.find(l.by)
	if v == nil || t != nil || v.Kind != Tensor {
		return nil
	}
	return l.byType[v.Type]
}

func (l *entries) remove(e *entry) {
	without := func(list []*entry) []*entry {
		return slices.DeleteFunc(list, func(x *entry) bool { return x == e })
	}
	l.all = without(l.all)
	if l.byType == nil {
		return
	}
	typ := e.tensor(l.by).typ
	if l.byType[typ] = without(l.byType[typ]); len(l.byType[typ]) == 0 {
		delete(l.byType, typ)
	}
}
