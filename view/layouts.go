package view

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Layouts keeps the layouts of scopes, so that scopes of one form are laid out once: the equal
// blocks of a model, and the scopes that a pass leaves as they were. Its zero value is empty. It
// may be used concurrently.
type Layouts struct {
	mu    sync.Mutex
	known map[string]placed // by form
}

// form is all that the layout of a scope depends on.
type form struct {
	boxes []box
	edges [][2]int
}

func (f form) key() string { return fmt.Sprint(f.boxes, f.edges) }

// place lays out the scopes of these forms, those that are not known on all processors.
func (l *Layouts) place(forms []form) ([]placed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]placed{}
	}
	keys, open := make([]string, len(forms)), map[string]int{}
	var todo []int // indices of forms
	for i, f := range forms {
		keys[i] = f.key()
		_, known := l.known[keys[i]]
		if _, there := open[keys[i]]; !known && !there {
			open[keys[i]] = i
			todo = append(todo, i)
		}
	}
	made, failed := make([]placed, len(todo)), make([]error, len(todo))
	var next atomic.Int64
	var work sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(todo)); k = next.Add(1) - 1 {
				f := forms[todo[k]]
				made[k], failed[k] = layers(f.boxes, f.edges)
			}
		})
	}
	work.Wait()
	for k, i := range todo {
		if failed[k] != nil {
			return nil, failed[k]
		}
		l.known[keys[i]] = made[k]
	}
	out := make([]placed, len(forms))
	for i, key := range keys {
		out[i] = l.known[key]
	}
	return out, nil
}
