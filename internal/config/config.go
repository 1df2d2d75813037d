// Package config turns the daemon's flags and environment into a checked Config.
package config

import (
	"net/netip"
	"regexp"
	"strconv"

	"loxilb/internal/lb/netobj"
)

// Config holds the daemon's options, all of them checked.
type Config struct {
	API API

	Attach           Attach
	XDP              XDP
	IPsec            IPsec
	RedirectPeer     bool           // send straight into the peer namespace of a veth
	LocalSockets     bool           // this machine's own sockets reach VIPs
	Cgroup           string         // of the processes with LocalSockets; empty: all
	Whitelist        *regexp.Regexp // nil: every interface
	Blacklist        *regexp.Regexp // nil: none; Whitelist overrides it
	CTMax            uint32         // connections; 0: by the size of memory
	HalfOpen         int            // percentage of the table for half-open connections; 0: unlimited
	Page             bool           // serve the page for browsers
	IdleRST          bool           // both ends of an idle TCP connection get a RST
	HashSeed         uint64         // key of the flow hash
	PinPath          string         // directory of pinned maps and links; empty: chosen by the daemon
	StateDir         string         // desired state
	BGP              bool           // announce VIPs by BGP
	VIPAnnouncements int            // number of gratuitous ARPs (IPv6: neighbor advertisements) per VIP when this node takes it over
	Cluster          Cluster        // exchange of connections
	Store            Store          // store shared with other nodes
	ClusterInterface string         // interface to other nodes, for egress gateways; empty: none
	RoleHook         string         // program that is run when the role of this node changes; empty: none
	ProbeFiles       string         // directory of the CAs, certificates and keys of probes
	Metrics          Metrics        // of Prometheus
	OTLP             OTLP           // collector of metrics and events
	FlowLog          FlowLog        // logs of connections
	Detach           bool           // remove everything and exit
	Force            bool           // Detach even while a daemon runs
	EndConnections   bool           // if pinned maps have another layout, start without them and their connections
	CheckUpgrade     bool           // only check whether a start could take over
	LogLevel         *LogLevel
	CPUProfile       string // file of a profile; empty: none

	BootFiles        string // directory of lbconfig.txt and similar files; empty: none are read
	Compat           bool   // behave like the existing loxilb, including ignored properties
	RoleHookOptional bool   // RoleHook may be missing
	MetricsOff       bool   // no metrics until a request enables them

	Keepalive *netobj.BFDSession // elects the MASTER with another node; nil: none

	Notes      []string // one sentence for each flag without effect, to log at start
	OpenAccess string   // what unauthenticated clients can do because of --compat, to log as a warning
}

// FlowLog is the destination of connection logs. The zero value means none.
type FlowLog struct {
	File   string // "-": standard output
	Size   int64  // maximum bytes of a file
	Files  int    // number of full files to keep
	IPFIX  string // HOST:PORT of a collector
	Domain uint32 // its observation domain
	Rate   int    // maximum events per second
}

// Wanted reports whether there is a destination.
func (f FlowLog) Wanted() bool { return f.File != "" || f.IPFIX != "" }

// Metrics configures the metrics for Prometheus.
type Metrics struct {
	Endpoints bool // also a series for each endpoint
}

// API configures the addresses of the REST API, and access to it.
type API struct {
	Disabled bool
	Plain    netip.AddrPort // HTTP
	TLS      netip.AddrPort // HTTPS; the zero value: not served
	CertFile string
	KeyFile  string
	Socket   string   // path of the UNIX socket; empty: none
	Token    string   // required for every request over TCP; empty: none
	Hosts    []string // DNS names that requests without a token may use, in lower case
	Users    bool     // every request over TCP needs Token, or a user's token
	Insecure bool     // TCP is open to all who can reach it, including local users
	UIDs     []uint32 // may use loopback, besides root
	GIDs     []uint32 // groups whose members have access
	Group    int      // may open the UNIX socket, besides root; 0: no group
}

// Attach is the kernel interface that attaches programs.
type Attach string

// The tc hooks.
const (
	AttachAuto   Attach = "auto" // tcx where the kernel has it
	AttachTCX    Attach = "tcx"
	AttachClsact Attach = "clsact"
)

// IPsec is the treatment of packets of services that the kernel's IPsec policies block or encrypt.
type IPsec string

// The values of --ipsec.
const (
	IPsecRefuse IPsec = "refuse"
	IPsecIgnore IPsec = "ignore" // send them in clear text
)

// XDP is the mode of attaching the XDP program, in front of the programs at the tc hook.
type XDP string

// The modes of XDP. Auto never costs throughput: it is native on network cards whose driver always
// forwards frames by XDP, otherwise off. With native XDP, a veth or virtio_net would no longer
// receive large segments from its other end; generic XDP runs after the work that it should save.
const (
	XDPAuto    XDP = "auto"    // by the drivers of network cards if it improves throughput
	XDPNative  XDP = "native"  // by the driver of every interface
	XDPGeneric XDP = "generic" // by the kernel, at every interface
	XDPOff     XDP = "off"
)

// Error is a flag that was refused: one sentence.
type Error struct {
	Flag   string // --port, or the environment variable it came from
	Value  string
	Reason string
}

func (e *Error) Error() string {
	if e.Value == "" {
		return e.Flag + " " + e.Reason
	}
	return e.Flag + " " + strconv.Quote(e.Value) + " " + e.Reason
}
