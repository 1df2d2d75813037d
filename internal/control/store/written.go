package store

import (
	"os"
	"strings"
	"time"
)

// LastWritten returns when the state in a directory was last stored or opened; zero if there is
// none. Call it before Open, which writes.
func LastWritten(dir string) (last time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return last // Open reports what is wrong with it
	}
	for _, e := range entries {
		if e.Name() != snapshotName && !strings.HasPrefix(e.Name(), journalPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
