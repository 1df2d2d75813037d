// Package doctor looks for problems of the machine and its network: settings of the kernel,
// interfaces, neighbours, capacity. Each check is a file. It changes nothing; a safe repair runs
// only on request.
package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "loxilb/api/v1"
)

// Certainty is the certainty of a finding.
type Certainty string

// The certainties, from facts that were read directly to guesses.
const (
	Certain  Certainty = "certain"
	Likely   Certainty = "likely"
	Possible Certainty = "possible"
)

func (s Certainty) rank() int { return slices.Index([]Certainty{Certain, Likely, Possible}, s) }

// Finding is a problem that a check has found.
type Finding struct {
	Check   string
	About   string // the interface, setting or address
	What    string // the problem
	Sure    Certainty
	Why     string // why it matters
	Command string // the repair; empty: it depends
	Fix     Fix    // the action of Command; nil: there is no safe automatic repair
}

// ID returns the unique name of a finding.
func (f *Finding) ID() string { return f.Check + ":" + f.About }

// Fix repairs a finding, and describes the repair.
type Fix interface {
	do(m *Machine) (string, error)
}

// Examined is a check that was made.
type Examined struct {
	Name     string
	Findings int
	Unknown  error // why it could not be checked, or nil
}

// Facts are the facts that the daemon knows; the zero value means that there is no daemon.
type Facts struct {
	Daemon     bool
	VIPs       []netip.Addr
	Endpoints  []Endpoint
	Down       []Down
	Unprobed   []Unprobed
	Unserved   []Unserved
	Interfaces []string       // with the packet path
	Programs   []Program      // of other owners, at the daemon's hooks
	IPsec      []IPsecRefusal // by policies of the kernel's IPsec
	IPsecError error          // why policies are unknown
	Problems   []Problem      // of the network, found by the daemon
	Failed     []Problem      // objects that could not be applied
	HiddenTags []HiddenTags

	Mobile      MobilePackets
	MobileError error // why Mobile is unknown

	FTP      FTPConnections
	FTPError error // why FTP is unknown

	Tables      []Table
	TablesError error // why Tables are unknown

	StateDir string
	Started  time.Time // start of the daemon, with a monotonic reading

	BGPSessions []BGPSession // that are down
	BFDSessions []BFDSession // that are down, or whose peer claims no role

	ClusterPeers    []ClusterPeer // that do not get the connections of this node
	ClusterProblems []string      // problems of this node's key or certificate, and of names of nodes
	ClusterHeld     string        // why VIPs are not announced because of other nodes; empty: they are announced
	SharedStore     *SharedStore  // nil: there is none

	Availability Availability
}

// Endpoint is an endpoint of services.
type Endpoint struct {
	Addr     netip.Addr
	Overhead int  // bytes that a tunnel adds
	MSS      int  // of --mss; 0: none
	Direct   bool // its answers bypass this machine, so --mss does not reach clients
}

// mss returns the largest TCP segment that clients send there; 0: unknown.
func (e Endpoint) mss() int {
	if e.Direct {
		return 0
	}
	return e.MSS
}

// smallerSegments returns a command that makes clients send packets of at most this size.
func smallerSegments(direct bool, size int) string {
	const headers = 60 // of IPv6 and TCP
	if direct {
		return fmt.Sprintf("on the endpoint: ip route change ROUTE-TO-CLIENTS advmss %d", size-headers)
	}
	return fmt.Sprintf("loxicmd create lb ... --mss=%d (of the services there)", size-headers)
}

// Down is an endpoint that gets no new connections, and the reason.
type Down struct {
	At       netip.AddrPort
	Evidence string
}

// Unprobed is a TCP endpoint that is not probed, and the outcomes of clients' SYNs.
type Unprobed struct {
	At             netip.AddrPort
	SYNs, Answered uint64
}

// Program is a program of another owner at an interface.
type Program struct {
	Interface, Hook, Name string
	Before                bool // it sees packets first
}

// Problem is a problem that the daemon has found.
type Problem struct{ About, What, Hint string }

// Machine is the machine to examine.
type Machine struct {
	Root    string // below which /proc, /sys and /boot are; empty: /
	Facts   Facts
	Network Network
}

// Here is the machine, and the network namespace of the process.
func Here(f Facts) *Machine { return &Machine{Facts: f, Network: kernelNetwork{}} }

// check is a check for one kind of problem.
type check struct {
	name string
	look func(*Machine) ([]Finding, error)
}

func checks() []check {
	return []check{
		{"kernel", kernel}, {"jit", jit}, {"bpffs", bpffs}, {"program-statistics", statistics}, {"forwarding", forwarding}, {"reverse-path", reversePath},
		{"redirects", redirects}, {"offloads", offloads}, {"next-hops", nextHops}, {"neighbour-table", neighbourTable}, {"mtu", mtu}, {"path-mtu", pathMTU},
		{"objects", objects}, {"services", services}, {"endpoints", endpoints}, {"unprobed", unprobed}, {"other-programs", otherPrograms}, {"ipsec", ipsec},
		{"vlan-tags", hiddenTags}, {"mobile", mobile}, {"ftp", ftp}, {"tables", fullTables}, {"bgp", bgpSessions}, {"bfd", bfdSessions}, {"cluster", clusterPeers}, {"store", sharedStore},
		{"maintenance", maintenance}, {"announcements", announcements}, {"roles", roles},
		{"vips", duplicateVIPs}, {"clock", clock}, {"cgroup", cgroup}, {"memory", memory}, {"descriptors", descriptors}, {"disk", disk}, {"netfilter", netfilter},
		{"ports", ports}, {"queues", queues}, {"interrupts", interrupts}, {"governor", governor},
	}
}

// Examine runs all checks. The most certain findings come first.
func (m *Machine) Examine() (findings []Finding, made []Examined) {
	for _, c := range checks() {
		list, err := c.look(m)
		for i := range list {
			list[i].Check = c.name
		}
		findings = append(findings, list...)
		made = append(made, Examined{c.name, len(list), err})
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Sure.rank(), b.Sure.rank()) })
	return findings, made
}

// Fix repairs the finding with an id, if it still exists, and describes the repair.
func (m *Machine) Fix(id string) ([]string, error) {
	findings, _ := m.Examine()
	for i := range findings {
		f := &findings[i]
		if f.ID() != id {
			continue
		}
		if f.Fix == nil {
			return nil, fmt.Errorf("%s: no safe automatic fix; try: %s", f.What, cmp.Or(f.Command, "the remedy in its description"))
		}
		done, err := f.Fix.do(m)
		if err != nil {
			return nil, fmt.Errorf("fix %s: %w", id, err)
		}
		return []string{done}, nil
	}
	return nil, fmt.Errorf("finding %q not found: it might be fixed already", id)
}

// names joins the first words of a list, and the number of the others.
func names(list []string) string {
	const most = 4
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

// ToAPI converts a diagnosis to its type in the API.
func ToAPI(findings []Finding, made []Examined) v1.Diagnosis {
	out := v1.Diagnosis{Findings: []v1.DoctorFinding{}, Checks: []v1.DoctorCheck{}}
	for i := range findings {
		f := &findings[i]
		out.Findings = append(out.Findings, v1.DoctorFinding{
			Id: f.ID(), Check: f.Check, What: f.What, Sure: string(f.Sure), Why: f.Why, Command: f.Command, Fixable: f.Fix != nil,
		})
	}
	for _, c := range made {
		one := v1.DoctorCheck{Name: c.Name, Findings: c.Findings}
		if c.Unknown != nil {
			one.Unknown = c.Unknown.Error()
		}
		out.Checks = append(out.Checks, one)
	}
	return out
}
