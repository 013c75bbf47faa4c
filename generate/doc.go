// Package generate continues token sequences with a language model. The keys and
// values of earlier tokens stay in a cache that belongs to the sequences, so that a
// token costs one pass of one token, and any number of sequences run at the same time
// on the weights of one model.
package generate
