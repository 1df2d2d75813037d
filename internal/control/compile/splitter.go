package compile

import (
	"math/bits"

	"loxilb/internal/kernel/datapath/bpf"
)

const (
	// sampleSize is the number of rules that are compared to find a split.
	sampleSize = 96
	// A split puts a rule in at most this many children, on the average.
	maxCopies = 2
	// After a useful split, a rule shares its child with at most this part of the list, on the
	// average.
	maxShared = 0.5
	// maxWidth bounds the children of a node.
	maxWidth = 12
	// headSize is the number of first rules considered if no split is useful.
	headSize = 16
	// overlapWidth and guardWidth bound the children of a node whose rules overlap.
	overlapWidth = 2
	guardWidth   = 8
)

// bitRange is a range of bits of a packet's word. A node that is split by it has a child for each
// value of these bits.
type bitRange struct{ word, shift, width int }

// child returns the region of the bit range's word at child n of a node.
func (b bitRange) child(at region, n uint32) region {
	mask := (uint32(1)<<b.width - 1) << b.shift
	return region{known: at.known | mask, value: at.value&^mask | n<<b.shift}
}

// separatesPorts reports whether the bit range separates packets with and without ports.
func (b bitRange) separatesPorts() bool {
	return 1<<b.shift == bpf.TcRuleWordRULE_NO_PORT && isPorts(b.word)
}

func isPorts(word int) bool { return word == portWords[0] || word == portWords[1] }

// children returns the regions of all words at child n of a node.
func (b bitRange) children(at regions, n uint32) regions {
	at[b.word] = b.child(at[b.word], n)
	if b.separatesPorts() {
		for _, w := range portWords {
			at[w] = region{known: ^uint32(0xffff)}
			if n == 1 {
				at[w] = region{known: ^uint32(0), value: uint32(bpf.TcRuleWordRULE_NO_PORT)}
			}
		}
	}
	return at
}

// splitter finds bit ranges, and splits lists of rules by them. This is the approach of HiCuts
// ("Classifying Packets with Hierarchical Intelligent Cuttings", 2000).
type splitter struct {
	rules  []bpf.TcRule
	steps  int // steps so far; a step processes one rule
	sample []uint16
	ranges [][2]uint32 // ranges of the examined rules in one word
	count  [1<<maxWidth + 1]int32
}

// choose returns the bit range by which to split a list. The first split by ports separates packets
// without ports: as long as they are in a region, no range of ports matches the whole region.
func (s *splitter) choose(ids []uint16, at *regions) bitRange {
	s.pickSample(ids)
	b, ok := s.bestRange(ids, at)
	if ok && s.copiesTooMuch(ids, b, at) { // the sample is not representative
		s.sampleWide(ids, b, at)
		b, ok = s.bestRange(ids, at)
		ok = ok && !s.copiesTooMuch(ids, b, at)
	}
	if !ok {
		b = s.fallbackRange(ids, at)
	}
	if isPorts(b.word) && at[b.word].known&uint32(bpf.TcRuleWordRULE_NO_PORT) == 0 {
		return bitRange{word: b.word, shift: bits.TrailingZeros32(uint32(bpf.TcRuleWordRULE_NO_PORT)), width: 1}
	}
	return b
}

// bestRange finds the bit range after which a packet has the fewest rules left, on the average. It
// tries ranges from the highest bit on in which rules differ, and the widest ones also further
// down.
func (s *splitter) bestRange(ids []uint16, at *regions) (best bitRange, ok bool) {
	wide := min(max(bits.Len(uint(len(ids)/4)), 1), maxWidth)
	scale := float64(len(ids)) / float64(len(s.sample))
	least := float64(len(ids)) * maxShared
	for w := range at {
		top := s.highestDifference(s.sample, w, at[w])
		if top < 0 {
			continue
		}
		s.clipSample(w, at[w])
		for n := wide; n > 0; n /= 2 {
			for shift := max(top-n+1, 0); ; shift = max(shift-n, 0) {
				b := bitRange{word: w, shift: shift, width: min(n, top-shift+1)}
				if all, mean := s.estimate(b, scale); all <= maxCopies*float64(len(ids)) && mean < least {
					best, least, ok = b, mean, true
				}
				if shift == 0 || n < wide {
					break
				}
			}
		}
	}
	return best, ok
}

// pickSample picks rules of a list, at even distances.
func (s *splitter) pickSample(ids []uint16) {
	s.sample = s.sample[:0]
	n := min(len(ids), sampleSize)
	for i := range n {
		s.sample = append(s.sample, ids[i*len(ids)/n])
	}
}

// sampleWide replaces half of the sample by rules that a split would copy to many children, at even
// distances.
func (s *splitter) sampleWide(ids []uint16, b bitRange, at *regions) {
	var wide []uint16
	for _, id := range ids {
		if _, n := b.childRange(s.clip(id, b.word, at[b.word])); n > maxCopies {
			wide = append(wide, id)
		}
	}
	half := min(len(s.sample)/2, len(wide))
	for i := range half {
		s.sample[2*i] = wide[i*len(wide)/half]
	}
	s.steps += len(ids)
}

// copiesTooMuch reports whether a split would put the rules of a list in too many children. It
// examines all rules.
func (s *splitter) copiesTooMuch(ids []uint16, b bitRange, at *regions) bool {
	s.clipAll(ids, b.word, at[b.word])
	all, _ := s.estimate(b, 1)
	return all > maxCopies*float64(len(ids))
}

// clipSample stores the ranges of the sample in word w.
func (s *splitter) clipSample(w int, at region) { s.clipAll(s.sample, w, at) }

// clipAll stores the ranges of rules in word w.
func (s *splitter) clipAll(ids []uint16, w int, at region) {
	s.ranges = s.ranges[:0]
	for _, id := range ids {
		lo, hi := s.clip(id, w, at)
		s.ranges = append(s.ranges, [2]uint32{lo, hi})
	}
	s.steps += len(ids)
}

// fallbackRange finds a bit range for rules that overlap. A list ends at a rule that matches the
// whole region, so it selects the word in which most of the first rules do not match the whole
// region. It selects the highest unknown bits, since no such rule matches the whole region while
// one of them is unknown.
func (s *splitter) fallbackRange(ids []uint16, at *regions) (b bitRange) {
	head := ids[:min(len(ids), headSize)]
	most := 0
	for w := range at {
		open := 0
		for _, id := range head {
			if lo, hi := s.clip(id, w, at[w]); lo != at[w].least() || hi != at[w].most() {
				open++
			}
		}
		if open > most {
			most, b.word = open, w
		}
	}
	top := bits.Len32(^at[b.word].known)
	b.width = min(overlapWidth, top)
	if same := top - 1 - s.highestDifference(head, b.word, at[b.word]); same > overlapWidth {
		guard := bitRange{word: b.word, width: min(same, guardWidth)}
		guard.shift = top - guard.width
		if !s.copiesTooMuch(ids, guard, at) {
			return guard
		}
	}
	b.shift = top - b.width
	return b
}

// highestDifference returns the highest bit of a word in which rules differ, or -1. It ignores
// rules that match all packets of the region.
func (s *splitter) highestDifference(ids []uint16, w int, at region) int {
	var common, differing uint32
	first := true
	for _, id := range ids {
		lo, hi := s.clip(id, w, at)
		if lo == at.least() && hi == at.most() {
			continue
		}
		if first {
			common, first = lo, false
		}
		differing |= lo ^ hi | lo ^ common
	}
	s.steps += len(ids)
	return bits.Len32(differing&^at.known) - 1
}

// clip returns the part of a rule's range in word w that lies within a region.
func (s *splitter) clip(id uint16, w int, at region) (lo, hi uint32) {
	r := &s.rules[id]
	return max(r.First[w], at.least()), min(r.First[w]+r.Span[w], at.most())
}

// childRange returns the children that values from lo to hi belong to: n of them from the first on,
// wrapping around after the last.
func (b bitRange) childRange(lo, hi uint32) (first, n uint32) {
	mask := uint32(1)<<b.width - 1
	first, last := lo>>b.shift, hi>>b.shift
	if last-first >= mask {
		return 0, mask + 1
	}
	return first & mask, last - first + 1
}

// estimate returns the total number of rules in all children after a split, and with how many rules
// a rule shares its child, on the average. Each examined rule stands for scale rules.
func (s *splitter) estimate(b bitRange, scale float64) (all, mean float64) {
	size := uint32(1) << b.width
	count := s.count[:size+1]
	clear(count)
	for _, r := range s.ranges {
		first, n := b.childRange(r[0], r[1])
		count[first]++
		if end := first + n; end <= size {
			count[end]--
		} else {
			count[size]--
			count[0]++
			count[end-size]--
		}
	}
	s.steps += len(s.ranges) + int(size)/4
	have, sum, pairs := int64(0), int64(0), int64(0)
	for _, step := range count[:size] {
		have += int64(step)
		sum += have
		pairs += have * (have - 1)
	}
	return float64(sum) * scale, 1 + float64(pairs)/float64(sum)*scale
}

// split returns the list of each child. A list ends at a rule that matches all packets of the
// child.
func (s *splitter) split(ids []uint16, b bitRange, at *regions) [][]uint16 {
	size := uint32(1) << b.width
	ports := b.separatesPorts()
	portless := b.children(*at, 1)
	lists, full := make([][]uint16, size), make([]bool, size)
	for _, id := range ids {
		r := &s.rules[id]
		alone := coversExcept(r, at, b.word)
		first, n := b.childRange(s.clip(id, b.word, at[b.word]))
		for i := range n {
			child := (first + i) % size
			if full[child] {
				continue
			}
			in := b.child(at[b.word], child)
			from, to := r.First[b.word], r.First[b.word]+r.Span[b.word]
			if from > in.most() || to < in.least() || ports && child == 1 && !overlaps(r, &portless) {
				continue
			}
			lists[child] = append(lists[child], id)
			full[child] = alone && from <= in.least() && to >= in.most()
		}
		s.steps += 1 + int(n)
	}
	return lists
}
