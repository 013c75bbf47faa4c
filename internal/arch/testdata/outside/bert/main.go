// Command bert fine-tunes a published BERT on labelled text: bert FOLDER TEXT.tsv OUT.safetensors.
// FOLDER holds config.json, a tokenizer and the weights; a line of TEXT.tsv is a class, a tab and a
// text. The first tenth of the lines is kept for the accuracy.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"ampc"
	"ampc/pretrained"
	"ampc/tokenizer"
	"ampc/weights"
)

const batch, length, classes, epochs = 8, 16, 2, 4

func main() {
	config, tok := must(pretrained.ReadBERT(os.Args[1])), must(tokenizer.Open(os.Args[1]))
	lines := strings.Split(strings.TrimSpace(string(must(os.ReadFile(os.Args[2])))), "\n")
	held, train := lines[:len(lines)/10], lines[len(lines)/10:]

	m := ampc.New("bert", ampc.Seed(1))
	defer m.Close()
	ids, mask := m.Input("ids", ampc.I32, batch, length), m.Input("mask", ampc.F32, batch, length)
	logits := config.Classify(m, pretrained.BERTInput{IDs: ids, Mask: mask}, classes)
	loss := m.CrossEntropy(logits, m.Input("labels", ampc.I32, batch))
	step := must(m.Train(ampc.TrainConfig{
		Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(1e-3), Policy: ampc.MixedBF16(),
	}, ampc.Loss{Value: loss}))
	eval := must(step.Eval(logits))
	fmt.Println(must(weights.Load(m, os.Args[1], config.Weights()...)))

	for range epochs {
		rand.Shuffle(len(train), func(i, k int) { train[i], train[k] = train[k], train[i] })
		for at := 0; at+batch <= len(train); at += batch {
			x, attend, y := encode(tok, train[at:at+batch])
			must(step.Run(context.Background(), ampc.Feed{"ids": x, "mask": attend, "labels": y}))
		}
	}
	right := 0
	for at := 0; at < len(held); at += batch {
		part := held[at:min(at+batch, len(held))]
		x, attend, y := encode(tok, part)
		r := must(eval.Run(context.Background(), ampc.Feed{"ids": x, "mask": attend}))
		z := must(r.Value(logits))
		for i := range part {
			if (z.At(2*i+1) > z.At(2*i)) == (y[i] == 1) {
				right++
			}
		}
	}
	fmt.Printf("accuracy %.2f\n", float64(right)/float64(len(held)))
	must(0, weights.Save(m, os.Args[3], weights.As(ampc.BF16)))
}

// encode makes a batch of lines; rows that are missing are padding.
func encode(tok *tokenizer.Tokenizer, lines []string) (ids []int32, mask []float32, labels []int32) {
	texts, labels := make([]string, batch), make([]int32, batch)
	for i, line := range lines {
		class, text, _ := strings.Cut(line, "\t")
		texts[i], labels[i] = text, int32(must(strconv.Atoi(class)))
	}
	ids, mask = tok.Batch(length, texts...)
	return ids, mask, labels
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
