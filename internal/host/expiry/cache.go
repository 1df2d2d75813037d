package expiry

import (
	"sync"
	"time"
)

// mostKnown bounds how many files a cache knows. A full cache is emptied.
const mostKnown = 1000

// Cache knows when the certificates of files end, as long as those are not changed.
type Cache struct {
	mu    sync.Mutex
	known map[string]known
}

// known is what a file had, and what it was then.
type known struct {
	changed time.Time
	size    int64
	end     time.Time
	err     error
}

// Of returns what Of says of a file that was changed then and has that size. It is read only if it
// is another one than before.
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
