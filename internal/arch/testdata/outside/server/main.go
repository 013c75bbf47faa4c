// Command server continues texts with a GPT-2 or Llama over HTTP: requests at the same
// time share each step.
//
//	server FOLDER ADDRESS
//	curl -N -d '{"prompt":"Once upon a time","tokens":40}' http://ADDRESS/generate
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"ampc"
	"ampc/generate"
	"ampc/pretrained"
	"ampc/tokenizer"
	"ampc/weights"
)

func main() {
	folder, address := os.Args[1], os.Args[2]
	text, err := tokenizer.Open(folder)
	check(err)
	decoder, err := pretrained.ReadDecoder(folder)
	check(err)
	model := ampc.New("server")
	g, err := generate.New(model, decoder, generate.Config{Policy: ampc.MixedBF16(), Batch: 8, Chunk: 8}) // so many requests at a time, the others wait
	check(err)
	_, err = weights.Load(model, folder, decoder.Weights()...)
	check(err)
	together, err := g.Batcher()
	check(err)
	http.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Prompt            string
			Tokens, TopK      int
			Temperature, TopP float64
			Seed              uint64
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&ask); err != nil || ask.Prompt == "" || ask.Tokens < 1 {
			http.Error(w, "want a prompt, and tokens of 1 or more", http.StatusBadRequest)
			return
		}
		o := generate.Options{MaxTokens: ask.Tokens, Sampling: generate.Sampling{Temperature: ask.Temperature, TopK: ask.TopK, TopP: ask.TopP, Seed: ask.Seed}}
		prompt := text.Encode(ask.Prompt)
		said := generate.NewText(text.Decode, prompt)
		for token, err := range together.Generate(r.Context(), o, prompt) {
			if err != nil { // the client is gone, or the text too long
				fmt.Fprintln(w, err)
				return
			}
			fmt.Fprint(w, said.Add(token.ID))
			w.(http.Flusher).Flush()
		}
	})
	l, err := net.Listen("tcp", address)
	check(err)
	fmt.Println("listening on", l.Addr())
	log.Fatal(http.Serve(l, nil))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
