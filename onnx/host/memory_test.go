package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// resident is the memory of this process, in bytes: its own, and mapped files.
func resident(b *testing.B) (own, files int64) {
	b.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc here that says what is resident:", err)
	}
	for line := range strings.Lines(string(status)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); n == 1 {
			own = kb << 10
		}
		if n, _ := fmt.Sscanf(line, "RssFile: %d kB", &kb); n == 1 {
			files = kb << 10
		}
	}
	return own, files
}

// BenchmarkMemory says what a session holds after two runs, as a multiple of its file:
// memory of its own, activations included, and pages of files.
func BenchmarkMemory(b *testing.B) {
	for name, g := range map[string]*onnxmodel.Graph{"bert": onnxmodel.BERT(onnxmodel.BERTBase), "resnet50": onnxmodel.ResNet50()} {
		path := filepath.Join(b.TempDir(), name+".onnx")
		if err := g.WriteFile(path); err != nil {
			b.Fatal(err)
		}
		for _, policy := range []passes.Policy{passes.F32(), passes.MixedBF16()} {
			b.Run(name+"/"+policy.Name, func(b *testing.B) {
				for b.Loop() {
					measure(b, path, policy)
				}
			})
		}
	}
}

func measure(b *testing.B, path string, policy passes.Policy) {
	file, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	backend, err := cpu.Open(0)
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	ownBefore, filesBefore := resident(b)
	s, err := host.Open(path, host.Options{Backend: backend, Config: passes.Config{Policy: policy}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	in := map[string]*host.Value{}
	for _, x := range s.Inputs() {
		switch x.Name {
		case "attention_mask":
			in[x.Name] = ones(1, 128)
		case "input_ids", "token_type_ids":
			in[x.Name] = ids(2, 1, 128)
		default:
			in[x.Name] = noise(1, 3, 224, 224)
		}
	}
	for range 2 {
		if _, err := s.Run(context.Background(), in); err != nil {
			b.Fatal(err)
		}
	}
	own, files := resident(b)
	b.ReportMetric(float64(own-ownBefore)/float64(file.Size()), "own/file")
	b.ReportMetric(float64(files-filesBefore)/float64(file.Size()), "mapped/file")
}
