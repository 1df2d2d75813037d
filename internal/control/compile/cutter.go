package compile

import (
	"math/bits"

	"loxilb/internal/kernel/datapath/bpf"
)

const (
	// sampleSize is the number of rules considered to find a cut.
	sampleSize = 96
	// A cut puts a rule in at most this many children, on the average.
	spread = 2
	// A cut is worthwhile if a rule shares its child with at most this part of the list.
	worthwhile = 0.5
	// maxCutBits bounds the children of a node.
	maxCutBits = 12
	// headSize is the number of first rules considered if no cut is worthwhile.
	headSize = 16
	// fewBits and guardBits bound the children of a node whose rules overlap.
	fewBits   = 2
	guardBits = 8
)

// cut names the bits of a word that number the children of a node.
type cut struct{ word, shift, bits int }

// child returns the known bits of a word at a child.
func (c cut) child(at region, n uint32) region {
	mask := (uint32(1)<<c.bits - 1) << c.shift
	return region{known: at.known | mask, value: at.value&^mask | n<<c.shift}
}

// asksForPorts reports whether a cut separates packets with and without ports.
func (c cut) asksForPorts() bool { return 1<<c.shift == bpf.TcRuleWordRULE_NO_PORT && isPorts(c.word) }

func isPorts(word int) bool { return word == portWords[0] || word == portWords[1] }

// children returns the known bits of all words at a child.
func (c cut) children(at regions, n uint32) regions {
	at[c.word] = c.child(at[c.word], n)
	if c.asksForPorts() {
		for _, w := range portWords {
			at[w] = region{known: ^uint32(0xffff)}
			if n == 1 {
				at[w] = region{known: ^uint32(0), value: uint32(bpf.TcRuleWordRULE_NO_PORT)}
			}
		}
	}
	return at
}

// cutter finds cuts and splits lists by them.
type cutter struct {
	rules  []bpf.TcRule
	steps  int // that it has taken
	sample []uint16
	ranges [][2]uint32 // of the sample, in one word
	count  [1<<maxCutBits + 1]int32
}

// choose finds how to split a list. The first cut by ports separates packets without ports: their
// value would keep any range of ports from matching a whole region.
func (k *cutter) choose(ids []uint16, at *regions) cut {
	k.pickSample(ids)
	c, ok := k.divide(ids, at)
	if ok && k.exceedsSpread(ids, c, at) { // the sample is not representative
		k.sampleWide(ids, c, at)
		c, ok = k.divide(ids, at)
		ok = ok && !k.exceedsSpread(ids, c, at)
	}
	if !ok {
		c = k.decide(ids, at)
	}
	if isPorts(c.word) && at[c.word].known&uint32(bpf.TcRuleWordRULE_NO_PORT) == 0 {
		return cut{word: c.word, shift: bits.TrailingZeros32(uint32(bpf.TcRuleWordRULE_NO_PORT)), bits: 1}
	}
	return c
}

// divide finds the bits that leave the fewest rules to the packets of a rule, on the average. It
// weighs cuts from the highest bit on in which rules differ, and wide ones further down.
func (k *cutter) divide(ids []uint16, at *regions) (best cut, ok bool) {
	wide := min(max(bits.Len(uint(len(ids)/4)), 1), maxCutBits)
	scale := float64(len(ids)) / float64(len(k.sample))
	least := float64(len(ids)) * worthwhile
	for w := range at {
		top := k.differ(k.sample, w, at[w])
		if top < 0 {
			continue
		}
		k.clipSample(w, at[w])
		for n := wide; n > 0; n /= 2 {
			for shift := max(top-n+1, 0); ; shift = max(shift-n, 0) {
				c := cut{word: w, shift: shift, bits: min(n, top-shift+1)}
				if all, mean := k.weigh(c, scale); all <= spread*float64(len(ids)) && mean < least {
					best, least, ok = c, mean, true
				}
				if shift == 0 || n < wide {
					break
				}
			}
		}
	}
	return best, ok
}

// pickSample picks rules of a list, evenly.
func (k *cutter) pickSample(ids []uint16) {
	k.sample = k.sample[:0]
	n := min(len(ids), sampleSize)
	for i := range n {
		k.sample = append(k.sample, ids[i*len(ids)/n])
	}
}

// sampleWide replaces half of the sample by rules that a cut copies to many children, evenly.
func (k *cutter) sampleWide(ids []uint16, c cut, at *regions) {
	var wide []uint16
	for _, id := range ids {
		if _, n := c.places(k.clip(id, c.word, at[c.word])); n > spread {
			wide = append(wide, id)
		}
	}
	half := min(len(k.sample)/2, len(wide))
	for i := range half {
		k.sample[2*i] = wide[i*len(wide)/half]
	}
	k.steps += len(ids)
}

// exceedsSpread reports whether a cut puts rules in too many children, checked with all rules of a
// list.
func (k *cutter) exceedsSpread(ids []uint16, c cut, at *regions) bool {
	k.clipAll(ids, c.word, at[c.word])
	all, _ := k.weigh(c, 1)
	return all > spread*float64(len(ids))
}

// clipSample stores the ranges of the sample in one word.
func (k *cutter) clipSample(w int, at region) { k.clipAll(k.sample, w, at) }

// clipAll stores the ranges of rules in one word.
func (k *cutter) clipAll(ids []uint16, w int, at region) {
	k.ranges = k.ranges[:0]
	for _, id := range ids {
		lo, hi := k.clip(id, w, at)
		k.ranges = append(k.ranges, [2]uint32{lo, hi})
	}
	k.steps += len(ids)
}

// decide finds a cut for rules that overlap. A list ends at a rule that matches the whole region,
// so decide cuts the word in which most of the first rules do not match the whole region. It cuts
// the highest unknown bits, since no rule matches the whole region while one of them is unknown.
func (k *cutter) decide(ids []uint16, at *regions) (c cut) {
	head := ids[:min(len(ids), headSize)]
	most := 0
	for w := range at {
		open := 0
		for _, id := range head {
			if lo, hi := k.clip(id, w, at[w]); lo != at[w].least() || hi != at[w].most() {
				open++
			}
		}
		if open > most {
			most, c.word = open, w
		}
	}
	top := bits.Len32(^at[c.word].known)
	c.bits = min(fewBits, top)
	if same := top - 1 - k.differ(head, c.word, at[c.word]); same > fewBits {
		guard := cut{word: c.word, bits: min(same, guardBits)}
		guard.shift = top - guard.bits
		if !k.exceedsSpread(ids, guard, at) {
			return guard
		}
	}
	c.shift = top - c.bits
	return c
}

// differ returns the highest bit of a word in which rules differ that do not match all packets of a
// region, or -1.
func (k *cutter) differ(ids []uint16, w int, at region) int {
	var common, differing uint32
	first := true
	for _, id := range ids {
		lo, hi := k.clip(id, w, at)
		if lo == at.least() && hi == at.most() {
			continue
		}
		if first {
			common, first = lo, false
		}
		differing |= lo ^ hi | lo ^ common
	}
	k.steps += len(ids)
	return bits.Len32(differing&^at.known) - 1
}

// clip returns the part of a rule's range in a word that packets of a region can have.
func (k *cutter) clip(id uint16, w int, at region) (lo, hi uint32) {
	r := &k.rules[id]
	return max(r.First[w], at.least()), min(r.First[w]+r.Span[w], at.most())
}

// places returns the children that a range overlaps: n of them from the first on, wrapping around
// after the last.
func (c cut) places(lo, hi uint32) (first, n uint32) {
	mask := uint32(1)<<c.bits - 1
	first, last := lo>>c.shift, hi>>c.shift
	if last-first >= mask {
		return 0, mask + 1
	}
	return first & mask, last - first + 1
}

// weigh estimates the sum of the children's rules, and their average per child. Each rule of the
// sample stands for scale rules.
func (k *cutter) weigh(c cut, scale float64) (all, mean float64) {
	size := uint32(1) << c.bits
	count := k.count[:size+1]
	clear(count)
	for _, r := range k.ranges {
		first, n := c.places(r[0], r[1])
		count[first]++
		if end := first + n; end <= size {
			count[end]--
		} else {
			count[size]--
			count[0]++
			count[end-size]--
		}
	}
	k.steps += len(k.ranges) + int(size)/4
	have, sum, pairs := int64(0), int64(0), int64(0)
	for _, step := range count[:size] {
		have += int64(step)
		sum += have
		pairs += have * (have - 1)
	}
	return float64(sum) * scale, 1 + float64(pairs)/float64(sum)*scale
}

// split makes the list of each child. It ends at a rule that matches all packets of the child.
func (k *cutter) split(ids []uint16, c cut, at *regions) [][]uint16 {
	size := uint32(1) << c.bits
	ports := c.asksForPorts()
	portless := c.children(*at, 1)
	lists, full := make([][]uint16, size), make([]bool, size)
	for _, id := range ids {
		r := &k.rules[id]
		alone := coversExcept(r, at, c.word)
		first, n := c.places(k.clip(id, c.word, at[c.word]))
		for i := range n {
			child := (first + i) % size
			if full[child] {
				continue
			}
			in := c.child(at[c.word], child)
			from, to := r.First[c.word], r.First[c.word]+r.Span[c.word]
			if from > in.most() || to < in.least() || ports && child == 1 && !overlaps(r, &portless) {
				continue
			}
			lists[child] = append(lists[child], id)
			full[child] = alone && from <= in.least() && to >= in.most()
		}
		k.steps += 1 + int(n)
	}
	return lists
}
