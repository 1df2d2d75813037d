package dptest

import (
	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
)

const (
	tagBits     = uint32(bpf.TcTableLayoutTAG_BITS)
	tagsPerWord = uint32(bpf.TcTableLayoutTAGS_PER_WORD)
	rowLive     = uint64(1) << bpf.TcTableLayoutROW_LIVE_BIT
	rowFlags    = rowLive | uint64(3)<<bpf.TcTableLayoutROW_PLACED_SHIFT
	locked      = uint64(1) << 63
)

// ChangeConnections writes the entries for which edit returns true.
func ChangeConnections(t *conntrack.Table, edit func(bpf.TcConnectionKey, *bpf.TcConnection) bool) error {
	return changeRows(t, func(row *bpf.TcTableRow) bool { return edit(row.Key, &row.Connection) })
}

// AgeConnections makes all connections appear as opened and last used the given number of jiffies
// earlier.
func AgeConnections(t *conntrack.Table, jiffies uint32) error {
	return changeRows(t, func(row *bpf.TcTableRow) bool {
		row.Connection.Seen -= jiffies
		if row.Status&^rowFlags > uint64(jiffies) {
			row.Status -= uint64(jiffies)
		}
		return true
	})
}

// EachPlaced calls yield with the placement of each row.
func EachPlaced(t *conntrack.Table, yield func(bpf.TcPlacement)) error {
	return changeRows(t, func(row *bpf.TcTableRow) bool {
		yield(bpf.TcPlacement(row.Status >> bpf.TcTableLayoutROW_PLACED_SHIFT & 3))
		return false
	})
}

// MakeFormerLayout changes an empty table to the layout of a former version, in which each key has
// one home.
func MakeFormerLayout(states *ebpf.Map) error {
	var s bpf.TcTableState
	if err := states.Lookup(uint32(0), &s); err != nil {
		return err
	}
	s.HasHomes, s.ByClient = 0, 0
	return states.Put(uint32(0), s)
}

func changeRows(t *conntrack.Table, edit func(*bpf.TcTableRow) bool) error {
	return t.EditBuckets(func(_, _ int, b *bpf.TcTableBucket) (changed bool) {
		for r := range b.Rows {
			if row := &b.Rows[r]; row.Status&rowLive != 0 && edit(row) {
				changed = true
			}
		}
		return changed
	})
}

// HoldBuckets locks the chosen buckets, or unlocks them, like a program that holds their locks for
// long.
func HoldBuckets(t *conntrack.Table, on bool, choose func(group, bucket int, keys []bpf.TcConnectionKey) bool) error {
	return t.EditBuckets(func(group, bucket int, b *bpf.TcTableBucket) bool {
		if !choose(group, bucket, keysIn(b)) {
			return false
		}
		control := &b.Tags[len(b.Tags)-1]
		if on {
			*control |= locked
		} else {
			*control &^= locked
		}
		return true
	})
}

func keysIn(b *bpf.TcTableBucket) (keys []bpf.TcConnectionKey) {
	for i := range b.Rows {
		if r := &b.Rows[i]; r.Status&rowLive != 0 {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// FillGroups marks the free rows of all groups from first on as used, so these groups are full, or
// as free again.
func FillGroups(t *conntrack.Table, on bool, first int) error {
	return t.EditBuckets(func(group, _ int, b *bpf.TcTableBucket) bool {
		if group < first {
			return false
		}
		for r := range b.Rows {
			word, shift := &b.Tags[uint32(r)/tagsPerWord], uint32(r)%tagsPerWord*tagBits
			const mask = 1<<tagBits - 1
			switch {
			case on && *word>>shift&mask == 0:
				*word |= mask << shift
			case !on && b.Rows[r].Status&rowLive == 0:
				*word &^= mask << shift
			}
		}
		return true
	})
}
