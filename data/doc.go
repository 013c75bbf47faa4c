// Package data reads training data and hands it out in batches, as an
// ampc.Step is fed them.
//
// A Set holds records by number: Columns, the tables that CSV, IDX and NumPy files
// are read into; images.Folder of package data/images; Windows of a file of tokens; or a
// type of your own. Map, Subset and Split make sets of sets. A Loader draws batches from a
// set: in an order that a seed gives, some batches ahead of the step, from a state that
// checkpoints keep.
//
//	digits, err := data.CSV("digits.csv", data.CSVOptions{Label: "y"})
//	...
//	train, held := data.Split(digits, 0.1, 1)
//	loader, err := data.NewLoader(train, data.Options{Batch: 64, Shuffle: true, Seed: 1, Last: data.Drop})
//	...
//	for batch, err := range loader.Epoch(ctx) {
//		...
//		r, err := step.Run(ctx, batch.Feed)
//	}
//
// Files compressed by gzip are read as they are. Parquet and GGUF are not read:
// convert them to one of these formats.
package data
