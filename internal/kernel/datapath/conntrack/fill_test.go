package conntrack

import (
	"math/rand/v2"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestPutAtLastHome checks that a bucket from which many keys have spilled refuses a client's key
// at its first home, and accepts it at its last home, like the packet path.
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

// TestPutPairs checks that both directions of a connection fill a pair of rows, as those of packets
// do: otherwise a table that Fill has filled has no free pair long before it is full, and each new
// connection costs two insertions.
func TestPutPairs(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	b := &bpf.TcTableBucket{}
	for pair := range rowsPerBucket / 2 {
		h := random.Uint64() &^ hashRow
		for side := range uint64(2) {
			row := bpf.TcTableRow{Status: rowLive | uint64(pair)}
			if !putInBucket(b, h^side, row) {
				t.Fatalf("pair %d, side %d: no room", pair, side)
			}
		}
	}
	for i := uint32(0); i < rowsPerBucket; i += 2 {
		if b.Rows[i].Status != b.Rows[i+1].Status {
			t.Errorf("rows %d and %d have connections %d and %d", i, i+1, b.Rows[i].Status&^rowLive, b.Rows[i+1].Status&^rowLive)
		}
	}
	if putInBucket(b, 0, bpf.TcTableRow{}) {
		t.Error("a full bucket took another row")
	}
}
