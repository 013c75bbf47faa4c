package arch_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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

// smallGPT2 writes a folder as a published model has one, and returns what it would say after
// each prompt.
func smallGPT2(t *testing.T, tokens int, prompts ...string) (dir string, said []string) {
	t.Helper()
	dir = t.TempDir()
	vocab := bytesOfGPT2()
	for name, v := range map[string]any{"vocab.json": vocab, "config.json": map[string]any{"model_type": "gpt2", "vocab_size": len(vocab), "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		trial.WriteFile(t, filepath.Join(dir, name), string(b))
	}
	trial.WriteFile(t, filepath.Join(dir, "merges.txt"), "#version: 0.2\n")
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
	server := exec.Command(program, folder, "localhost:0")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
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
