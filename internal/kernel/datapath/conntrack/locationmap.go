package conntrack

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

const (
	endpointRows  = uint32(bpf.TcLocationLayoutENDPOINT_ROWS)
	presentWord   = uint32(bpf.TcLocationLayoutLOCATION_PRESENT)
	firstWord     = uint32(bpf.TcLocationLayoutLOCATION_BEGIN)
	wordBytes     = 8
	groupsPerWord = 64
)

// LocationMap is the location map: for each endpoint, the groups of the table with its connections
// (bpf/table/location_map.h). Methods are safe for concurrent use.
type LocationMap struct {
	memory *ebpf.Memory
	words  uint32 // number of words of an endpoint in one edition

	mu      sync.Mutex
	present uint32 // the first word of the edition that is written
}

// LocationMapWords returns the map's number of words for a table with this number of groups.
func LocationMapWords(groups uint32) uint32 { return firstWord + 2*endpointRows*wordsFor(groups) }

func wordsFor(groups uint32) uint32 { return (groups + groupsPerWord - 1) / groupsPerWord }

// OpenLocationMap returns the location map, without locations.
func OpenLocationMap(m *ebpf.Map) (*LocationMap, error) {
	memory, err := m.Memory()
	if err != nil {
		return nil, fmt.Errorf("map where connections of endpoints are: %w", err)
	}
	w := &LocationMap{memory: memory, words: (m.MaxEntries() - firstWord) / (2 * endpointRows), present: firstWord}
	return w, w.publish()
}

// publish sets the packet path's current edition.
func (w *LocationMap) publish() error {
	var present [wordBytes]byte
	binary.NativeEndian.PutUint64(present[:], uint64(w.present)<<32|uint64(w.words))
	return w.write(presentWord, present[:])
}

func (w *LocationMap) write(word uint32, b []byte) error {
	if _, err := w.memory.WriteAt(b, int64(word)*wordBytes); err != nil {
		return fmt.Errorf("write where connections of endpoints are: %w", err)
	}
	return nil
}

// Turn must be called when the sweep has visited the whole table. The current edition has all
// connections by then: those that existed, and those that were opened meanwhile. The other one is
// cleared and becomes current.
func (w *LocationMap) Turn() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.otherEdition()
	empty := make([]byte, w.words*wordBytes)
	for row := range endpointRows {
		if err := w.write(next+row*w.words, empty); err != nil {
			return err
		}
	}
	w.present = next
	return w.publish()
}

// otherEdition returns the edition that is not written.
func (w *LocationMap) otherEdition() uint32 { return 2*firstWord + endpointRows*w.words - w.present }

// Groups returns the groups that may have connections of these endpoints, in order. In other
// groups, no connection was opened or found during the last two sweeps.
func (w *LocationMap) Groups(endpoints []uint32) (groups []uint32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]uint64, w.words)
	row := make([]byte, w.words*wordBytes)
	for _, id := range endpoints {
		for _, edition := range []uint32{w.present, w.otherEdition()} {
			at := edition + id%endpointRows*w.words
			if _, err := w.memory.ReadAt(row, int64(at)*wordBytes); err != nil {
				return nil, fmt.Errorf("read where connections of endpoints are: %w", err)
			}
			for i := range all {
				all[i] |= binary.NativeEndian.Uint64(row[i*wordBytes:])
			}
		}
	}
	for i, word := range all {
		for ; word != 0; word &= word - 1 {
			groups = append(groups, uint32(i)*groupsPerWord+uint32(bits.TrailingZeros64(word)))
		}
	}
	return groups, nil
}
