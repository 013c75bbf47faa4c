package file

import (
	"os"
	"sync"
)

// unfinished are the temporary files of every Write at work, by name.
var unfinished sync.Map

// Discard removes the temporary files of every Write at work, for a process that
// is about to exit: those calls fail, and the files that stand are as they were.
func Discard() {
	unfinished.Range(func(name, _ any) bool {
		os.Remove(name.(string))
		return true
	})
}
