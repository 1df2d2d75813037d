package cluster

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Faults of this node.
const (
	noExchange = "connections are not exchanged with other nodes"
	noWatch    = "new connections are not sent to other nodes at once"
	noBulk     = "nodes that connect do not get this node's connections"
	noRefresh  = "connections of other nodes are not refreshed"
)

// faults are current errors that keep this node from exchanging connections.
type faults struct {
	mu   sync.Mutex
	list map[string]string // error by what it prevents
}

// set records an error; nil: the fault has ended.
func (f *faults) set(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.list, what)
		return
	}
	if f.list == nil {
		f.list = map[string]string{}
	}
	f.list[what] = err.Error()
}

// describe returns a sentence for each fault.
func (f *faults) describe() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(f.list)) {
		list = append(list, fmt.Sprintf("%s: %s", what, f.list[what]))
	}
	return list
}
