package doctor

import (
	"fmt"
	"time"
)

// SharedStore is the state of the store that nodes share.
type SharedStore struct {
	Servers       string
	Err           error     // why objects may be outdated, or nil
	Since         time.Time // when Err began
	Entries       []Problem // entries that are not valid objects
	DuplicateName string    // name of this node, if another node has the same name
}

// sharedStore reports that shared objects may be outdated, entries that are not served, and
// duplicate names of nodes.
func sharedStore(m *Machine) (out []Finding, err error) {
	s := m.Facts.SharedStore
	if s == nil {
		return nil, nil
	}
	if s.Err != nil {
		out = append(out, Finding{
			About: s.Servers, What: fmt.Sprintf("%s cannot be used since %s: %v", s.Servers, s.Since.Format(time.TimeOnly), s.Err), Sure: Certain,
			Why:     "services, endpoints and rules stay as they are, and cannot be changed at this node",
			Command: "etcdctl endpoint status on the servers of --store; let firewalls pass their port; docs/cluster.md (One configuration for all nodes)",
		})
	}
	if s.DuplicateName != "" {
		out = append(out, Finding{
			About: "node " + s.DuplicateName, What: fmt.Sprintf("another node that uses %s is named %q, too", s.Servers, s.DuplicateName), Sure: Certain,
			Why: "get node shows one of them, and each takes the changes of the other for its own", Command: "give each node its own name: --cluster-node, by default the host name",
		})
	}
	for _, e := range s.Entries {
		out = append(out, Finding{
			About: e.About, What: fmt.Sprintf("entry %s of the shared store is not served: %s", e.About, e.What), Sure: Certain,
			Why: "an object that had this entry before stays as it was; a node that starts without it does not have the object", Command: e.Hint,
		})
	}
	return out, nil
}
