package lower

import "errors"

// conv refuses convolutions until they have launches.
func (c *cudaLowerer) conv() error { return errors.New("convolutions have no launches on a GPU yet") }
