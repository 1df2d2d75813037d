// Package loader makes the maps, or adopts pinned ones, and loads programs over them. A Collection
// has the programs of the tc hooks and all maps that parts share; each part loads its other
// programs itself.
package loader

import (
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/conntrack"
)

// Timeouts are how long a connection may be silent, by state.
type Timeouts struct {
	TCPEstablished, TCPSyn, TCPClosing, TCPClosed time.Duration
	UDPUnreplied, UDPReplied                      time.Duration
}

// DefaultTimeouts follow RFC 5382 (established: at least 2 h 4 min) and RFC 4787 (UDP: 5 min).
func DefaultTimeouts() Timeouts {
	return Timeouts{
		TCPEstablished: 7440 * time.Second,
		TCPSyn:         60 * time.Second,
		TCPClosing:     120 * time.Second,
		TCPClosed:      10 * time.Second,
		UDPUnreplied:   30 * time.Second,
		UDPReplied:     300 * time.Second,
	}
}

const (
	// snatRest is the quarantine of a source port after its connection.
	snatRest = 30 * time.Second
	// fragmentTimeout is how long later fragments of a datagram are accepted after the first.
	fragmentTimeout = 30 * time.Second
	// KnownTime is how long a client stays known.
	KnownTime = 10 * time.Minute
)

// A cluster divides source ports into PortStripes parts.
const (
	stripeBits  = 3
	PortStripes = 1 << stripeBits
)

// Settings are the options of programs and maps.
type Settings struct {
	PinDir         string   // in a BPF file system; empty: nothing is pinned, all ends with the process
	Connections    int      // size of the connection table; 0: by memory (DefaultConnections)
	Timeouts       Timeouts // zero value: DefaultTimeouts
	HashSeed       uint64   // key of the flow hash, as that of the tables
	PortStripe     int      // eighth of the source ports that is used first, from 1; 0: no preference
	HalfOpen       int      // percentage of the table for half-open connections, of TCP and of all others each; 0: unlimited
	IdleResets     int      // idle TCP connections per second that end by RSTs to both ends; 0: none
	NoRedirectPeer bool     // never bpf_redirect_peer
	NoKfuncs       bool     // as on kernels before 6.2, for tests
	ResetRate      int      // RSTs to segments without a connection, per second and CPU, for tests; 0: the default of config.h
	ForeignFirst   bool     // always check for foreign packets before the connection lookup, for tests
	ChallengeFirst bool     // always challenge SYNs before the connection lookup, for tests
	Log            *slog.Logger

	hz uint32
}

// complete sets defaults.
func (s *Settings) complete() (err error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Connections == 0 {
		s.Connections = DefaultConnections()
	}
	if s.Timeouts == (Timeouts{}) {
		s.Timeouts = DefaultTimeouts()
	}
	s.hz, err = jiffiesPerSecond()
	return err
}

// seesIPsec reports whether the kernel has the helper that recognizes packets which IPsec has
// decrypted.
var seesIPsec = sync.OnceValue(func() bool {
	return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkbGetXfrmState) == nil
})

// Jiffies converts a duration to the kernel's ticks, at least one.
func (s *Settings) Jiffies(t time.Duration) uint32 {
	hz := time.Duration(s.hz)
	seconds, rest := t/time.Second, t%time.Second // t*hz overflows after 106 days at 1,000 Hz
	return uint32(max(1, seconds*hz+rest*hz/time.Second))
}

// Jiffy returns the duration of a tick of the kernel.
func (s *Settings) Jiffy() time.Duration { return time.Second / time.Duration(s.hz) }

// maxPairs bounds the rows of snat_usages: the kernel takes 16 bytes for each at once, 64 MB.
const maxPairs = 1 << 22

// Configure sets the load-time constants that an object has, and the sizes of its maps.
func (s *Settings) Configure(spec *ebpf.CollectionSpec) error {
	constants := s.constants()
	maps.Copy(constants, s.pressure())
	for name, value := range constants {
		v, ok := spec.Variables[name]
		if !ok {
			continue // the compiler dropped a constant that this object does not read
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if m, ok := spec.Maps["connections"]; ok {
		m.MaxEntries = conntrack.Groups(s.Connections)
	}
	if m, ok := spec.Maps["persists"]; ok {
		m.InnerMap.MaxEntries = uint32(s.Connections)
	}
	if m, ok := spec.Maps["snat_usages"]; ok { // each connection may be a pair of its own
		m.InnerMap.MaxEntries = max(m.InnerMap.MaxEntries, uint32(min(s.Connections, maxPairs)))
	}
	return nil
}

func (s *Settings) constants() map[string]any {
	flag := func(on bool) uint8 {
		if on {
			return 1
		}
		return 0
	}
	t := s.Timeouts
	all := map[string]any{
		"hz":                      s.hz,
		"table_skew":              conntrack.Skew(),
		"kfuncs":                  flag(!s.NoKfuncs),
		"sees_ipsec":              flag(seesIPsec()),
		"foreign_first":           flag(s.ForeignFirst),
		"challenge_first":         flag(s.ChallengeFirst),
		"redirect_peer":           flag(!s.NoRedirectPeer),
		"hash_seed":               s.HashSeed,
		"timeout_tcp_established": s.Jiffies(t.TCPEstablished),
		"timeout_tcp_syn":         s.Jiffies(t.TCPSyn),
		"timeout_tcp_closing":     s.Jiffies(t.TCPClosing),
		"timeout_tcp_closed":      s.Jiffies(t.TCPClosed),
		"timeout_fragment":        s.Jiffies(fragmentTimeout),
		"timeout_snat_rest":       s.Jiffies(snatRest),
		"timeout_known":           s.Jiffies(KnownTime),
		"timeout_udp_unreplied":   s.Jiffies(t.UDPUnreplied),
		"timeout_udp_replied":     s.Jiffies(t.UDPReplied),
		"idle_rst_rate":           uint32(s.IdleResets),
	}
	if s.PortStripe > 0 {
		all["port_stripe_bits"], all["port_stripe"] = uint32(stripeBits), uint32(s.PortStripe-1)
	}
	if s.ResetRate > 0 {
		all["reset_rate"] = uint32(s.ResetRate)
	}
	return all
}

// jiffiesPerSecond is CONFIG_HZ: the coarse clock advances once a tick.
func jiffiesPerSecond() (uint32, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return 0, fmt.Errorf("read the kernel's tick: %w", err)
	}
	if res.Nano() <= 0 {
		return 0, fmt.Errorf("read the kernel's tick: resolution %d ns", res.Nano())
	}
	return uint32((time.Second.Nanoseconds() + res.Nano()/2) / res.Nano()), nil
}

// DefaultConnections sizes the connection table: as many connections as fit into 0.5 % of memory,
// at least 262,144, rounded to a power of two, so similar machines have the same size.
func DefaultConnections() int {
	const smallest, bytesEach = 262144, 400 // two entries of 128 bytes, plus the table's free space
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return smallest
	}
	total := uint64(info.Totalram) * uint64(info.Unit)
	return nearestPower(min(max(total/200/bytesEach, smallest), 1<<30))
}

// nearestPower returns the power of two with the smallest ratio to n.
func nearestPower(n uint64) int {
	p := uint64(1) << (bits.Len64(n) - 1)
	if n*n > 2*p*p {
		p *= 2
	}
	return int(p)
}

// Timeouts under pressure: of half-open connections, closed ones, and source ports in quarantine.
const (
	halfOpenPressed = 3 * time.Second
	closedPressed   = time.Second
	snatRestPressed = 3 * time.Second
)

// pressure returns the constants of bpf/limit/pressure.h.
func (s *Settings) pressure() map[string]any {
	return map[string]any{
		"half_open_percent":         uint32(s.HalfOpen),
		"timeout_half_open_pressed": s.Jiffies(halfOpenPressed),
		"timeout_closed_pressed":    s.Jiffies(closedPressed),
		"timeout_snat_rest_pressed": s.Jiffies(snatRestPressed),
	}
}
