package loader

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRowCounts checks that the rows of a large hash are counted for at most a hundredth of the
// time, those of a small one for each reader, and that a failure is not kept.
func TestRowCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r rowCounts
		counted := uint64(0)
		took := 500 * time.Millisecond
		var failure error
		check := func(when, name string, want uint64) {
			t.Helper()
			got, err := r.of(name, func() (uint64, error) {
				counted++
				time.Sleep(took)
				return counted, failure
			})
			if got != want || !errors.Is(err, failure) {
				t.Errorf("%s: %s has %d rows and error %v, want %d and %v", when, name, got, err, want, failure)
			}
		}
		check("first", "persists", 1)
		check("at once", "persists", 1)
		check("another hash", "fragments", 2)
		time.Sleep(keptTimes*took - time.Second)
		check("shortly before its time", "persists", 1)
		time.Sleep(time.Second)
		check("in time", "persists", 3)
		took = 5 * time.Second
		time.Sleep(maxKept)
		check("a slow count", "persists", 4)
		time.Sleep(maxKept)
		check("after the longest time", "persists", 5)
		time.Sleep(maxKept)
		took = minKept / 2
		check("a quick count", "persists", 6)
		check("after a quick count", "persists", 7)
		took, failure = time.Second, errors.New("no map")
		check("a failure", "persists", 8)
		check("after a failure", "persists", 9)
	})
}
