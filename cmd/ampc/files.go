package main

import (
	"os"

	"ampc/internal/file"
)

// checkWritable returns the first error among files that a command will write. A command calls it
// before it starts long work. An empty path is ignored.
func checkWritable(paths ...string) error {
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := file.Writable(path); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, data []byte) error {
	return file.Write(path, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}
