// Package ort runs ONNX models in onnxruntime, as an oracle for tests: the npm
// package onnxruntime-node in a process of node.
package ort

import (
	"bufio"
	_ "embed" // the script, and the list of packages
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed run.js
var script string

//go:embed packages
var packages string

// Packages are the npm packages that tests want, with their versions: onnxruntime-node and models.
func Packages() []string { return strings.Fields(packages) }

// Env names the folder in whose node_modules onnxruntime-node lies.
const Env = "AMPC_ONNXRUNTIME"

// Tensor is an array, little-endian and row-major; Type is named as in JavaScript: float32, int64, bool.
type Tensor struct {
	Name string  `json:"name,omitempty"`
	Type string  `json:"type"`
	Dims []int64 `json:"dims"`
	Data []byte  `json:"data"`
}

// Runtime is a running onnxruntime.
type Runtime struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// ErrAbsent is the error of a machine without onnxruntime; it says how to install it.
var ErrAbsent = errors.New("onnxruntime-node is not there: npm install --ignore-scripts onnxruntime-node@1.30 in a folder, and " + Env + "=FOLDER")

// Start starts it.
func Start() (*Runtime, error) {
	dir := os.Getenv(Env)
	if dir == "" {
		return nil, ErrAbsent
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "onnxruntime-node")); err != nil {
		return nil, fmt.Errorf("%w (%v)", ErrAbsent, err)
	}
	r := &Runtime{cmd: exec.Command("node", "-e", script)}
	r.cmd.Dir, r.cmd.Stderr = dir, io.Discard
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReaderSize(out, 1<<20)
	return r, r.cmd.Start()
}

// Close ends it.
func (r *Runtime) Close() error {
	r.in.Close()
	return r.cmd.Wait()
}

// Run loads a model and runs it on inputs by name; nil inputs: only loads it.
func (r *Runtime) Run(model string, inputs map[string]Tensor) ([]Tensor, error) {
	path, err := filepath.Abs(model)
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(map[string]any{"model": path, "inputs": inputs})
	if err != nil {
		return nil, err
	}
	if _, err := r.in.Write(append(job, '\n')); err != nil {
		return nil, err
	}
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("onnxruntime ended: %w", err)
	}
	var got struct {
		Error   string
		Outputs []Tensor
	}
	if err := json.Unmarshal(line, &got); err != nil {
		return nil, err
	}
	if got.Error != "" {
		return nil, errors.New(got.Error)
	}
	return got.Outputs, nil
}
