package translate

import "errors"

// maxSize bounds the size of a Service on all balancers together. Endpoints, source ranges and
// texts of probes are repeated for each port, so a Service of a megabyte could exhaust the
// controller's memory.
const maxSize = 16 << 20

// ErrTooLarge reports that a Service exceeds maxSize.
var ErrTooLarge = errors.New("endpoints and source ranges of all ports together take more than 16 MiB: distribute the ports among several Services")

// count adds the size of an entry.
func (in *Input) count(bytes int) error {
	if in.size += bytes; in.size > maxSize {
		return ErrTooLarge
	}
	return nil
}
