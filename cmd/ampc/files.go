package main

import (
	"bytes"
	"os"
	"path/filepath"

	"ampc/ir"
)

// writeFile puts data at path as a whole or not at all.
func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp*")
	if err != nil {
		return plainError(path, err)
	}
	_, err = tmp.Write(data)
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return plainError(path, err)
	}
	return nil
}

// writable makes a directory where there is none and checks that files can be
// made in it.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return plainError(dir, err)
	}
	f, err := os.CreateTemp(dir, ".ampc*")
	if err != nil {
		return plainError(dir, err)
	}
	f.Close()
	os.Remove(f.Name())
	return nil
}

func writeGraph(path string, g *ir.Graph) error {
	var b bytes.Buffer
	if err := g.Print(&b, ir.Reasons); err != nil {
		return err
	}
	return writeFile(path, b.Bytes())
}
