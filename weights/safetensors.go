package weights

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ampc"
	"ampc/internal/file"
	"ampc/internal/safetensors"
)

// named are the dtypes by the names of ampc.
var named = func() map[string]ampc.DType {
	all := map[string]ampc.DType{}
	for _, d := range []ampc.DType{ampc.F32, ampc.F16, ampc.BF16, ampc.F64, ampc.I32, ampc.I64, ampc.U8, ampc.Bool, ampc.I8, ampc.I16, ampc.U16, ampc.U32, ampc.U64} {
		all[d.String()] = d
	}
	return all
}()

func (f *File) readSafetensors(path string, b []byte) error {
	s, err := safetensors.Parse(b)
	if err != nil {
		return err
	}
	if s.Shards() {
		f.closes = append(f.closes, s.Close)
		if err := s.OpenShards(path); err != nil {
			return err
		}
	}
	maps.Copy(f.meta, s.Meta)
	for _, info := range s.Tensors {
		d, ok := named[strings.ToLower(string(info.DType))]
		if !ok {
			f.skipped = append(f.skipped, fmt.Sprintf("tensor %q has elements of %s", info.Name, info.DType))
			continue
		}
		data, err := s.Slice(info)
		if err != nil {
			return err
		}
		if err := f.add(&tensor{name: info.Name, dtype: d, shape: info.Shape, data: data}); err != nil {
			return err
		}
	}
	return nil
}

// readIndex reads the shards that an index names, which lie in its folder.
func (f *File) readIndex(dir string, b []byte, key string) error {
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("not the index of a model in shards: %w", err)
	}
	if len(index.Map) == 0 {
		return fmt.Errorf("not the index of a model in shards: it has no weight_map")
	}
	shards := slices.Compact(slices.Sorted(maps.Values(index.Map)))
	all := f.tensors
	defer func() { f.tensors = all }()
	for _, shard := range shards {
		if !filepath.IsLocal(shard) || filepath.Base(shard) != shard || strings.ContainsAny(shard, `/\`) {
			return fmt.Errorf("the index names the shard %q, which is not a file beside it", shard)
		}
		f.tensors = map[string]*tensor{}
		if err := f.shard(filepath.Join(dir, shard), key); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(index.Map)) {
			if index.Map[name] != shard {
				continue
			}
			t, ok := f.tensors[name]
			if !ok {
				return fmt.Errorf("shard %s lacks the tensor %q, which the index says it has", shard, name)
			}
			all[name] = t
		}
	}
	return nil
}

// shard reads a file that an index names, which is no index itself.
func (f *File) shard(path, key string) error {
	b, err := f.mapped(path)
	if err != nil {
		return err
	}
	read := func(b []byte) error { return f.readSafetensors(path, b) }
	if strings.HasPrefix(string(b[:min(len(b), 4)]), "PK\x03\x04") {
		read = func(b []byte) error { return f.readZip(b, key) }
	}
	if err := read(b); err != nil {
		return file.Error(filepath.Base(path), err)
	}
	return nil
}
