package translate

import "errors"

// maxSize bounds what a Service takes on all balancers together. Endpoints, source ranges and texts
// of probes are repeated for each port, so a Service of a megabyte could take the controller's
// memory, and so all other Services.
const maxSize = 16 << 20

// ErrTooLarge says that a Service takes more than that.
var ErrTooLarge = errors.New("endpoints and source ranges of all ports together take more than 16 MiB: distribute the ports among several Services")

// count adds the size of an entry.
func (in *Input) count(bytes int) error {
	if in.size += bytes; in.size > maxSize {
		return ErrTooLarge
	}
	return nil
}
