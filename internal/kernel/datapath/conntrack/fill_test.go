package conntrack

import (
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestPutAtLastHome checks that a bucket from which many keys have spilled refuses a client's key
// at its first home, and takes it at its last one, as the packet path does.
func TestPutAtLastHome(t *testing.T) {
	t.Parallel()
	buckets := make([]element, perGroup)
	h := home{0, bpf.TcPlacementBY_CLIENT}
	control := &bucketIn(&buckets[bucketOf(h.hash)]).Tags[bpf.TcTableLayoutTAG_WORDS-1]
	*control = uint64(bpf.TcTableLayoutSPILLED_MAX) * spilledOne
	if put(buckets, h, &Entry{}, false) || *control&away == 0 {
		t.Errorf("the first home took the key, or is not marked: control word %#x", *control)
	}
	if !put(buckets, h, &Entry{}, true) {
		t.Error("the last home refused the key")
	}
}
