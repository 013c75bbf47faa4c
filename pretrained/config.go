package pretrained

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ampc/internal/file"
)

// config is a config.json while it is read. The first mistake is kept.
type config struct {
	path   string
	fields map[string]any
	known  map[string]bool
	err    error
}

// harmless are the fields of config.json that change nothing of what the forward pass
// computes: names, training, generation, and how the original library runs the model.
var harmless = strings.Fields(`
	_name_or_path _attn_implementation architectures auto_map dtype torch_dtype transformers_version transformers.js_config
	use_cache gradient_checkpointing initializer_range torchscript use_bfloat16 name_or_path return_dict output_attentions
	output_hidden_states output_past finetuning_task id2label label2id num_labels _num_labels problem_type task_specific_params
	bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id
	n_ctx summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj reorder_and_upcast_attn
	attn_pdrop attention_dropout attention_probs_dropout_prob classifier_dropout directionality pooler_fc_size
	pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type pretraining_tp max_length min_length
	do_sample num_beams top_k top_p temperature repetition_penalty tokenizer_class is_llama_config
`)

// readConfig reads the config.json at path, or in the folder at path, of one of the
// model types.
func readConfig(path string, types ...string) (*config, error) {
	if is, err := os.Stat(path); err == nil && is.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	c := &config{path: path, fields: map[string]any{}, known: map[string]bool{"model_type": true}}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&c.fields); err != nil {
		return nil, fmt.Errorf("%s: not a JSON object: %w", path, err)
	}
	if is, _ := c.fields["model_type"].(string); !slices.Contains(types, is) {
		return nil, fmt.Errorf("%s: model_type is %q, want %s", path, is, strings.Join(types, " or "))
	}
	return c, nil
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(c.path+": "+format, args...)
	}
}

// field is the value of a key, nil where it is missing or null.
func (c *config) field(key string) any {
	c.known[key] = true
	return c.fields[key]
}

// count reads a number of things, 1 or more; def where it is missing, and an error if
// def is 0.
func (c *config) count(key string, def int) int {
	v := c.field(key)
	if v == nil && def > 0 {
		return def
	}
	n, ok := v.(json.Number)
	x, err := n.Int64()
	if !ok || err != nil || x < 1 || x > 1<<31-1 {
		c.fail("%s is %v, want a number of 1 or more", key, v)
		return 1
	}
	return int(x)
}

// number reads a number; def where it is missing.
func (c *config) number(key string, def float64) float64 {
	v := c.field(key)
	if v == nil {
		return def
	}
	n, ok := v.(json.Number)
	x, err := n.Float64()
	if !ok || err != nil {
		c.fail("%s is %v, want a number", key, v)
	}
	return x
}

// flag reads a truth value; def where it is missing.
func (c *config) flag(key string, def bool) bool {
	v := c.field(key)
	if v == nil {
		return def
	}
	x, ok := v.(bool)
	if !ok {
		c.fail("%s is %v, want true or false", key, v)
	}
	return x
}

// word reads one of some words; def where it is missing.
func (c *config) word(key, def string, want ...string) string {
	v := c.field(key)
	if v == nil {
		return def
	}
	s, _ := v.(string)
	if !slices.Contains(want, s) {
		c.fail("%s is %v, which is not supported: want %s", key, v, strings.Join(want, " or "))
	}
	return s
}

// only refuses a flag that is not as wanted.
func (c *config) only(key string, want bool) {
	if c.flag(key, want) != want {
		c.fail("%s is %t, which is not supported", key, !want)
	}
}

// inner is the object at a key, whose fields are read as those of the config; nil
// where there is none.
func (c *config) inner(key string) *config {
	v := c.field(key)
	if v == nil {
		return nil
	}
	fields, ok := v.(map[string]any)
	if !ok {
		c.fail("%s is %v, want an object", key, v)
		return nil
	}
	return &config{path: c.path + ": " + key, fields: fields, known: map[string]bool{}}
}

// done is the first mistake, or an unread field that may matter.
func (c *config) done() error {
	if c.err != nil {
		return c.err
	}
	for _, key := range slices.Sorted(maps.Keys(c.fields)) {
		if !c.known[key] && !slices.Contains(harmless, key) && c.fields[key] != nil {
			return fmt.Errorf("%s: %s is not known and may change results: take it out if it does not", c.path, key)
		}
	}
	return nil
}

// heads checks that width divides into heads.
func (c *config) heads(width, heads int) {
	if width%heads != 0 {
		c.err = errors.Join(c.err, fmt.Errorf("%s: width %d does not divide into %d heads", c.path, width, heads))
	}
}
