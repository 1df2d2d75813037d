package expiry

import (
	"sync"
	"time"
)

// mostKnown bounds the number of files in a cache. A full cache is emptied.
const mostKnown = 1000

// Cache remembers when the certificates in files expire, as long as the files do not change.
type Cache struct {
	mu    sync.Mutex
	known map[string]known
}

// known is the result for a file, and the file's state at that time.
type known struct {
	changed time.Time
	size    int64
	end     time.Time
	err     error
}

// Of returns the result of the function Of for a file with this time of change and size. The file
// is read only if either has changed.
func (c *Cache) Of(file string, changed time.Time, size int64, read func() ([]byte, error)) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, there := c.known[file]; there && k.changed.Equal(changed) && k.size == size {
		return k.end, k.err
	}
	text, err := read()
	if err != nil {
		return time.Time{}, err
	}
	if c.known == nil || len(c.known) >= mostKnown {
		c.known = map[string]known{}
	}
	end, err := Of(text)
	c.known[file] = known{changed, size, end, err}
	return end, err
}
