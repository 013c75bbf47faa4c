package file

import (
	"os"
	"path/filepath"
	"strings"
)

// Sweep removes what killed processes left of Write in dir: the temporary files
// of these names. No other process may write them.
func Sweep(dir string, names ...string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		for _, name := range names {
			number, ok := strings.CutPrefix(e.Name(), "."+name+".tmp")
			if ok && number != "" && strings.Trim(number, "0123456789") == "" {
				os.Remove(filepath.Join(dir, e.Name()))
			}
		}
	}
}
