// Package doctor looks for what is wrong with the machine and its network: settings of the kernel,
// interfaces, neighbours, room. Each check is a file. It only looks; what mends a finding is done
// when somebody asks for it, if it is known to be safe.
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

// Sure is how sure a finding is.
type Sure string

// From what was read and cannot be otherwise, to what depends on what was not looked at.
const (
	Certain  Sure = "certain"
	Likely   Sure = "likely"
	Possible Sure = "possible"
)

func (s Sure) rank() int { return slices.Index([]Sure{Certain, Likely, Possible}, s) }

// Finding is something that is wrong.
type Finding struct {
	Check   string
	About   string // the interface, the setting, the address
	What    string // what is wrong
	Sure    Sure
	Why     string // why it matters
	Command string // what mends it; empty: that depends
	Fix     Fix    // does what Command does; nil: nothing that is safe without a look
}

// ID names a finding among all.
func (f *Finding) ID() string { return f.Check + ":" + f.About }

// Fix mends, and says what it has done.
type Fix interface {
	do(m *Machine) (string, error)
}

// Examined is a check that was made.
type Examined struct {
	Name     string
	Findings int
	Unknown  error // why it could not tell; nil: it could
}

// Facts are what the daemon knows; the zero value is that there is none.
type Facts struct {
	Daemon     bool
	VIPs       []netip.Addr
	Endpoints  []Endpoint
	Down       []Down
	Unprobed   []Unprobed
	Unserved   []Unserved
	Interfaces []string       // whose packets are balanced
	Programs   []Program      // of others, at hooks where the daemon's are
	IPsec      []IPsecRefusal // by policies of the kernel's IPsec
	IPsecError error          // why policies are not known
	Problems   []Problem      // of the network, that the daemon has found
	HiddenTags []HiddenTags
	StateDir   string
	Started    time.Time // of the daemon, with the clock that never jumps
}

// Endpoint is where packets go.
type Endpoint struct {
	Addr     netip.Addr
	Overhead int  // bytes that a tunnel adds
	MSS      int  // of --mss; 0: none
	Direct   bool // its answers do not pass this machine, so --mss does not reach clients
}

// mss is the largest TCP segment that clients send there; 0: it is not known.
func (e Endpoint) mss() int {
	if e.Direct {
		return 0
	}
	return e.MSS
}

// smallerSegments is how to have clients send packets of at most so many bytes.
func smallerSegments(direct bool, size int) string {
	const headers = 60 // of IPv6 and TCP
	if direct {
		return fmt.Sprintf("on the endpoint: ip route change ROUTE-TO-CLIENTS advmss %d", size-headers)
	}
	return fmt.Sprintf("loxicmd create lb ... --mss=%d (of the services there)", size-headers)
}

// Down is an endpoint that takes no new connections, and why.
type Down struct {
	At       netip.AddrPort
	Evidence string
}

// Unprobed is an endpoint of TCP of which nobody asks how it is, and what has become of clients'
// SYNs.
type Unprobed struct {
	At             netip.AddrPort
	SYNs, Answered uint64
}

// Program is one of others at an interface.
type Program struct {
	Interface, Hook, Name string
	Before                bool // it sees packets first
}

// Problem is what the daemon has found.
type Problem struct{ About, What, Hint string }

// Machine is what is looked at.
type Machine struct {
	Root    string // below which /proc, /sys and /boot are; empty: /
	Facts   Facts
	Network Network
}

// Here is the machine, and the network namespace of the process.
func Here(f Facts) *Machine { return &Machine{Facts: f, Network: kernelNetwork{}} }

// check looks for one sort of thing.
type check struct {
	name string
	look func(*Machine) ([]Finding, error)
}

func checks() []check {
	return []check{
		{"kernel", kernel}, {"jit", jit}, {"bpffs", bpffs}, {"program-statistics", statistics}, {"forwarding", forwarding}, {"reverse-path", reversePath},
		{"redirects", redirects}, {"offloads", offloads}, {"next-hops", nextHops}, {"neighbour-table", neighbourTable}, {"mtu", mtu}, {"path-mtu", pathMTU},
		{"services", services}, {"endpoints", endpoints}, {"unprobed", unprobed}, {"other-programs", otherPrograms}, {"ipsec", ipsec},
		{"vlan-tags", hiddenTags},
		{"vips", vips}, {"clock", clock}, {"cgroup", cgroup}, {"memory", memory}, {"descriptors", descriptors}, {"disk", disk}, {"netfilter", netfilter},
		{"ports", ports}, {"queues", queues}, {"interrupts", interrupts}, {"governor", governor},
	}
}

// Look makes all checks. The surest findings come first.
func (m *Machine) Look() (findings []Finding, made []Examined) {
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

// Mend does what mends the finding of an id, if it is still there, and says what it has done.
func (m *Machine) Mend(id string) ([]string, error) {
	findings, _ := m.Look()
	for i := range findings {
		f := &findings[i]
		if f.ID() != id {
			continue
		}
		if f.Fix == nil {
			return nil, fmt.Errorf("%s: no safe automatic fix; try: %s", f.What, cmp.Or(f.Command, "what it says"))
		}
		done, err := f.Fix.do(m)
		if err != nil {
			return nil, fmt.Errorf("fix %s: %w", id, err)
		}
		return []string{done}, nil
	}
	return nil, fmt.Errorf("finding %q not found: it might be fixed already", id)
}

// names joins some of many words.
func names(list []string) string {
	const most = 4
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

// ToAPI converts a diagnosis to its form in the API.
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
