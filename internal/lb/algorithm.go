package lb

import "fmt"

// Algorithm chooses the endpoint of a new connection. The numbers are those of the REST contract.
type Algorithm uint8

// The algorithms of the contract.
const (
	RoundRobin       Algorithm = 0 // strictly in the order written
	Hash             Algorithm = 1 // consistent, by addresses, ports and protocol
	Priority         Algorithm = 2 // smooth weighted round robin
	Persist          Algorithm = 3 // where the client's last connection went
	LeastConnections Algorithm = 4
	N2               Algorithm = 5
	N3               Algorithm = 6
	Random           Algorithm = 7 // not in the contract
)

func algorithms() []Algorithm {
	return []Algorithm{RoundRobin, Hash, Priority, Persist, LeastConnections, N2, N3, Random}
}
func availableAlgorithms() []Algorithm {
	return []Algorithm{RoundRobin, Hash, Priority, Persist, LeastConnections, Random}
}

// String is the word of the contract.
func (a Algorithm) String() string {
	switch a {
	case RoundRobin:
		return "rr"
	case Hash:
		return "hash"
	case Priority:
		return "priority"
	case Persist:
		return "persist"
	case LeastConnections:
		return "lc"
	case N2:
		return "n2"
	case N3:
		return "n3"
	case Random:
		return "random"
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm takes the word or the number of the contract.
func ParseAlgorithm(s string) (Algorithm, error) { return parseWord(FieldSelect, s, algorithms()) }
