package arch_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/generate"
	"ampc/internal/trial"
	"ampc/pretrained"
	"ampc/tokenizer"
	"ampc/weights"
)

// bytesOfGPT2 are tokens of one byte each, as GPT-2 spells them.
func bytesOfGPT2() map[string]int {
	vocab, beyond := map[string]int{}, rune(256)
	for c := range rune(256) {
		if c < '!' || c > '~' && c < 161 || c == 173 {
			vocab[string(beyond)] = int(c)
			beyond++
		} else {
			vocab[string(c)] = int(c)
		}
	}
	return vocab
}

// folderOfGPT2 writes a folder as a published model has one, except for its weights. Tokens are bytes, and
// words where the vocabulary is larger.
func folderOfGPT2(t testing.TB, config map[string]any) (dir string) {
	t.Helper()
	dir = t.TempDir()
	vocab := bytesOfGPT2()
	for i := len(vocab); i < config["vocab_size"].(int); i++ {
		vocab[fmt.Sprint("token", i)] = i
	}
	config["model_type"] = "gpt2"
	for name, v := range map[string]any{"vocab.json": vocab, "config.json": config} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		trial.WriteFile(t, filepath.Join(dir, name), string(b))
	}
	trial.WriteFile(t, filepath.Join(dir, "merges.txt"), "#version: 0.2\n")
	return dir
}

// smallGPT2 writes the folder of a small model, and returns what it would say after each
// prompt.
func smallGPT2(t *testing.T, tokens int, prompts ...string) (dir string, said []string) {
	t.Helper()
	dir = folderOfGPT2(t, map[string]any{"vocab_size": 256, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2})
	c, err := pretrained.ReadDecoder(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := ampc.New("gpt2", ampc.Seed(5))
	defer m.Close()
	g, err := generate.New(m, c, generate.Config{Policy: ampc.MixedBF16()})
	if err != nil {
		t.Fatal(err)
	}
	if err := weights.Save(m, filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	read, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prompts {
		s, err := g.Start()
		if err != nil {
			t.Fatal(err)
		}
		ids, text := read.Encode(p), ""
		shown := generate.NewText(read.Decode, ids)
		for token, err := range s.Generate(t.Context(), generate.Options{MaxTokens: tokens}, ids) {
			if err != nil {
				t.Fatal(err)
			}
			text += shown.Add(token.ID)
		}
		said = append(said, text)
	}
	return dir, said
}

// serve starts the server and returns its address.
func serve(t testing.TB, program, folder string) (address string) {
	t.Helper()
	server := exec.Command(program, folder, "localhost:0")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// A program of a stranger's, of less than 80 lines, serves a GPT-2 over HTTP: eight
// clients at a time get the text that each would get alone, as it is made.
func TestOutsideServer(t *testing.T) {
	program := buildOutside(t, "server")
	const tokens = 30
	var prompts []string
	for i := range 8 {
		prompts = append(prompts, "Once upon a time"[:2+2*i])
	}
	folder, want := smallGPT2(t, tokens, prompts...)
	address := serve(t, program, folder)
	var group sync.WaitGroup
	for i, p := range prompts {
		group.Go(func() {
			body, err := json.Marshal(map[string]any{"prompt": p, "tokens": tokens})
			if err != nil {
				t.Error(err)
				return
			}
			r, err := http.Post("http://"+address+"/generate", "application/json", strings.NewReader(string(body)))
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != want[i] {
				t.Errorf("after %q it says %q (%v), want %q", p, got, err, want[i])
			}
		})
	}
	group.Wait()
	r, err := http.Post("http://"+address+"/generate", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusBadRequest {
		t.Error(r.Status)
	}
}

// BenchmarkServer is what eight clients at a time wait for over HTTP: GPT-2's size with random
// weights, prompts of 32 tokens and 16 new ones each; the median and the longest time to the
// first token and between tokens, as they arrive.
func BenchmarkServer(b *testing.B) {
	program := buildOutside(b, "server")
	folder := folderOfGPT2(b, map[string]any{"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12})
	c, err := pretrained.ReadDecoder(folder)
	if err != nil {
		b.Fatal(err)
	}
	m := ampc.New("gpt2")
	if _, err := generate.New(m, c, generate.Config{Length: 1, Chunk: 1}); err != nil {
		b.Fatal(err)
	}
	if err := weights.Save(m, filepath.Join(folder, "model.safetensors")); err != nil {
		b.Fatal(err)
	}
	m.Close()
	address := serve(b, program, folder)
	var lock sync.Mutex
	var first, later []float64
	for b.Loop() {
		first, later = nil, nil
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				body := fmt.Sprintf(`{"prompt":"client %d: Once upon a time ...... ","tokens":17}`, i)
				last, times := time.Now(), &first
				r, err := http.Post("http://"+address+"/generate", "application/json", strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				defer r.Body.Close()
				piece := make([]byte, 4096) // the server flushes each token
				for {
					n, err := r.Body.Read(piece)
					if n > 0 {
						lock.Lock()
						*times = append(*times, 1e3*time.Since(last).Seconds())
						lock.Unlock()
						last, times = time.Now(), &later
					}
					if err != nil {
						return
					}
				}
			})
		}
		group.Wait()
	}
	if len(first) != 8 || len(later) < 7*16 {
		b.Fatalf("%d first tokens and %d more arrived", len(first), len(later))
	}
	slices.Sort(first)
	slices.Sort(later)
	b.ReportMetric(first[len(first)/2], "ms-first-median")
	b.ReportMetric(first[len(first)-1], "ms-first-longest")
	b.ReportMetric(later[len(later)/2], "ms-next-median")
	b.ReportMetric(later[len(later)-1], "ms-next-longest")
}
