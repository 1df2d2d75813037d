package lb

// Algorithm chooses the endpoint of a new connection. The numbers are those of the REST contract,
// as kube-loxilb sends them; older servers of the contract had n3 as 6 (now n2det).
type Algorithm uint8

// The algorithms of the contract.
const (
	RoundRobin       Algorithm = 0
	Hash             Algorithm = 1
	Priority         Algorithm = 2
	Persist          Algorithm = 3
	LeastConnections Algorithm = 4
	N2               Algorithm = 5
	N2Det            Algorithm = 6
	N3               Algorithm = 7
	Random           Algorithm = 100 // not in the contract; far above the numbers that it may assign next
)

const noNGAP = "NGAP and SCTP are not read, so leave N2 to the AMF's own addresses"

func algorithms() []choice[Algorithm] {
	return []choice[Algorithm]{
		{value: RoundRobin, word: "rr", help: "round robin, strictly in the order written"},
		{value: Hash, word: "hash", help: "consistent, by addresses, ports and protocol"},
		{value: Priority, word: "priority", help: "smooth weighted round robin"},
		{value: Persist, word: "persist", help: "the endpoint of the client's last connection"},
		{value: LeastConnections, word: "lc", help: "fewest connections relative to its weight"},
		{value: N2, word: "n2", help: "5G N2: each NGAP message of an SCTP connection to an endpoint", instead: noNGAP},
		{value: N2Det, word: "n2det", help: "like n2, and a client's messages always to the same endpoint", instead: noNGAP},
		{value: N3, word: "n3", help: "5G N3: GTP-U by its tunnel identifier", instead: "GTP-U is balanced by addresses and ports (hash)"},
		{value: Random, word: "random", help: "randomly, by weight"},
	}
}

// Layout is how the endpoints of a service are laid out in the slots that its algorithm chooses
// from.
type Layout uint8

// The layouts of slots.
const (
	LayoutOnce       Layout = iota // each endpoint once, whatever its weight
	LayoutWeighted                 // each endpoint as often as its weight
	LayoutConsistent               // by consistent hashing
	LayoutCompared                 // few: once, and compared with their weights; many: LayoutWeighted
)

// Layout returns the layout that the algorithm needs.
func (a Algorithm) Layout() Layout {
	switch a {
	case Hash, Persist:
		return LayoutConsistent
	case Priority, Random:
		return LayoutWeighted
	case LeastConnections:
		return LayoutCompared
	}
	return LayoutOnce
}

// VariesByPort reports whether another port of a client may get another endpoint, at any time.
func (a Algorithm) VariesByPort() bool { return a == Hash || a == Random || a == LeastConnections }

// String returns the word of the contract.
func (a Algorithm) String() string { return wordOf("algorithm", a, algorithms()) }

// ParseAlgorithm parses the word or the number of the contract; "" means the default.
func ParseAlgorithm(s string) (Algorithm, error) {
	return parseWordOrNumber(FieldSelect, s, algorithms())
}
