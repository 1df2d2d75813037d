// Package config turns the daemon's flags and environment into a checked Config.
package config

import (
	"net/netip"
	"regexp"
	"strconv"
)

// Config is what the daemon was asked to be; every value in it is checked.
type Config struct {
	API API

	Attach        Attach
	XDP           XDP
	IPsec         IPsec
	RedirectPeer  bool           // send straight into the peer namespace of a veth
	LocalSockets  bool           // this machine's own sockets reach VIPs
	Cgroup        string         // of their processes; empty: all
	Whitelist     *regexp.Regexp // nil: every interface
	Blacklist     *regexp.Regexp // nil: none; Whitelist overrides it
	CTMax         uint32         // connections; 0: by the memory of the machine
	HalfOpen      int            // percent of the table that half-open connections may have; 0: any
	Page          bool           // is shown to browsers
	IdleRST       bool           // both ends of an idle TCP connection get a RST
	HashSeed      uint64         // key of the flow hash
	PinPath       string         // directory of pinned maps and links; empty: the daemon's own choice
	StateDir      string         // desired state
	Announcements int            // of a VIP, when this node begins to own it
	RoleHook      string         // program that is run when the role of this node changes; empty: none
	ProbeFiles    string         // directory of the CAs, certificates and keys of probes
	Metrics       Metrics        // of Prometheus
	OTLP          OTLP           // collector of metrics and events
	FlowLog       FlowLog        // what becomes of connections
	Detach        bool           // remove everything and exit
	Force         bool           // Detach while a daemon runs, too
	End           bool           // start without pinned maps of another layout
	CheckUpgrade  bool           // only tell whether a start could take over
	LogLevel      *LogLevel
	CPUProfile    string // file of a profile; empty: none

	BootFiles        string // directory of lbconfig.txt and its like; empty: none are read
	Compat           bool   // as the existing loxilb: what it passes over is passed over
	RoleHookOptional bool   // RoleHook need not be there
	MetricsOff       bool   // until a request switches them on

	Notes []string // flags that were given and have no effect, one sentence each: log them at start
	Open  string   // what --compat leaves open, a sentence: log it as a warning; empty: nothing
}

// FlowLog is where it is written what becomes of connections; the zero value: nowhere.
type FlowLog struct {
	File   string // "-": standard output
	Size   int64  // bytes of a file
	Files  int    // that are kept of those that were full
	IPFIX  string // HOST:PORT of a collector
	Domain uint32 // its observation domain
	Rate   int    // events a second that are wanted
}

// Wanted tells whether it is written anywhere.
func (f FlowLog) Wanted() bool { return f.File != "" || f.IPFIX != "" }

// Metrics says what is shown to Prometheus.
type Metrics struct {
	Endpoints bool // series of each endpoint, too
}

// API is where and to whom the REST API answers.
type API struct {
	Disabled bool
	Plain    netip.AddrPort // HTTP
	TLS      netip.AddrPort // HTTPS; invalid: not served
	CertFile string
	KeyFile  string
	Socket   string   // path of the UNIX socket; empty: none
	Token    string   // every request over TCP must carry it; empty: none asked
	Hosts    []string // DNS names that requests without a token may use, in lower case
	Users    bool     // every request over TCP must carry Token, or that of a user
	Insecure bool     // TCP is open to whoever reaches it, users of this machine included
	UIDs     []uint32 // may use loopback, besides root
	GIDs     []uint32 // of groups whose members may
	Group    int      // may open the UNIX socket, besides root; 0: no group
}

// Attach is the kernel interface by which programs are attached.
type Attach string

// The ways to attach.
const (
	AttachAuto   Attach = "auto" // tcx where the kernel has it
	AttachTCX    Attach = "tcx"
	AttachClsact Attach = "clsact"
)

// IPsec says what becomes of packets of services that policies of the kernel's IPsec block or
// encrypt.
type IPsec string

// The choices.
const (
	IPsecRefuse IPsec = "refuse"
	IPsecIgnore IPsec = "ignore" // they are sent, in clear text
)

// XDP says where the XDP program is attached, in front of the ones at the tc hook.
type XDP string

// The choices. Auto never costs throughput: it is native, and only at network cards whose driver
// forwards frames by XDP from the start. A veth or virtio_net would no longer take large segments
// from its other end, and generic XDP comes after the work that it is to save.
const (
	XDPAuto    XDP = "auto"    // by the drivers of network cards where it pays
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
