package prove

import "strings"

var readers = [...]string{"a product", "a row that computes in f32", "a promoting row", "a row of fixed dtypes", "the caller", "a product behind it", "a promoting row behind it", "a sum of f32"}

func (k reads) String() string {
	var names []string
	for i, name := range readers {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
