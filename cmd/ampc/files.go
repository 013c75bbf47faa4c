package main

import (
	"os"

	"ampc/internal/file"
)

// writable is the first error of files that a command will write, found before
// it works for hours: "" is none.
func writable(paths ...string) error {
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
