package store

import "slices"

// maxHistoryKeys bounds the memory for changes, in keys of all commits together (60 bytes each). A
// reader that is further behind compares everything, which by then is about as cheap.
const maxHistoryKeys = 65536

// history remembers which keys the last commits changed.
type history struct {
	first   uint64 // the revision of commits[0]
	commits [][]ID // one for each revision, without gaps
	keys    int    // in commits
}

func (h *history) reset(current uint64) { *h = history{first: current + 1} }

func (h *history) add(revision uint64, keys []ID) {
	if revision != h.first+uint64(len(h.commits)) {
		h.reset(revision - 1)
	}
	h.commits = append(h.commits, keys)
	h.keys += len(keys)
	for h.keys > maxHistoryKeys {
		h.keys -= len(h.commits[0])
		h.commits[0] = nil
		h.commits = h.commits[1:]
		h.first++
	}
}

// since returns the keys changed after rev, ordered, each once; ok is false if it is unknown.
func (h *history) since(rev uint64) (keys []ID, ok bool) {
	current := h.first + uint64(len(h.commits)) - 1
	if rev+1 < h.first || rev > current {
		return nil, false
	}
	for _, k := range h.commits[rev+1-h.first:] {
		keys = append(keys, k...)
	}
	slices.SortFunc(keys, compareIDs)
	return slices.Compact(keys), true
}
