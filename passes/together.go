package passes

import "sync"

// together runs fs at the same time and waits for all of them. What one of them writes, no other one
// reads or writes. It panics as the first of them that does.
func together(fs ...func()) {
	var all sync.WaitGroup
	caught := make([]any, len(fs))
	for i, f := range fs {
		all.Go(func() {
			defer func() { caught[i] = recover() }()
			f()
		})
	}
	all.Wait()
	for _, r := range caught {
		if r != nil {
			panic(r)
		}
	}
}
