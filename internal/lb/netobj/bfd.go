package netobj

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"loxilb/internal/lb"
)

// Defaults and limits of BFD sessions. The existing loxilb has the same defaults.
const (
	DefaultBFDInterval = 200 * time.Millisecond
	MinBFDInterval     = 100 * time.Millisecond
	MaxBFDInterval     = time.Minute
	DefaultBFDRetry    = 3
	DefaultBFDPriority = 100
)

// BFDSession is a BFD session with another node, as users configure it (RFC 5880). It elects which
// of the two owns the VIPs of an instance.
type BFDSession struct {
	Remote   netip.Addr    `json:"remote"`
	Source   netip.Addr    `json:"source,omitzero"`    // zero: the kernel selects it
	Instance string        `json:"instance,omitempty"` // as the user wrote it
	Interval time.Duration `json:"interval"`           // of sent and expected packets
	Retry    uint8         `json:"retry"`              // packets that may be missing
	Multihop bool          `json:"multihop,omitempty"` // over routers (RFC 5883)
	Priority uint8         `json:"priority"`           // of this node; the higher one is MASTER
	Preempt  bool          `json:"preempt,omitempty"`  // take over from a node of lower rank
}

// BFDCount has the counters of a session and its election since the daemon started.
type BFDCount struct {
	Session  string // its key
	Up       bool
	Failures uint64 // sessions that ended
	Changes  uint64 // of the role of this node
}

// Key returns the key of the session: REMOTE, or REMOTE@INSTANCE if that is not the default one.
func (s *BFDSession) Key() string { return BFDKey(s.Remote, s.Instance) }

// BFDKey returns the key of the session with a remote address in an instance.
func BFDKey(remote netip.Addr, instance string) string {
	if key := lb.InstanceKey(instance); key != lb.DefaultInstance {
		return remote.String() + "@" + key
	}
	return remote.String()
}

// Normal returns the session with defaults in place of zero values, and one name for the default
// instance, so sessions from files and requests compare equal.
func (s BFDSession) Normal() BFDSession {
	if lb.InstanceKey(s.Instance) == lb.DefaultInstance {
		s.Instance = ""
	}
	if s.Interval == 0 {
		s.Interval = DefaultBFDInterval
	}
	if s.Retry == 0 {
		s.Retry = DefaultBFDRetry
	}
	if s.Priority == 0 {
		s.Priority = DefaultBFDPriority
	}
	return s
}

// Validate checks all fields.
func (s *BFDSession) Validate() error {
	instance := lb.Instance{Name: lb.InstanceKey(s.Instance), Role: lb.RoleBackup}
	if err := instance.Validate(); err != nil {
		return err
	}
	if strings.Contains(s.Instance, "@") {
		return lb.NewFieldError(lb.FieldInstance, s.Instance, "has an @", "a name without @")
	}
	if err := routablePeer(lb.FieldRemote, s.Remote); err != nil {
		return err
	}
	if s.Source.IsValid() {
		if err := routablePeer(lb.FieldSource, s.Source); err != nil {
			return err
		}
		if s.Source.Is4() != s.Remote.Is4() {
			return lb.NewFieldError(lb.FieldSource, s.Source.String(), "is of another IP version than "+s.Remote.String(), "")
		}
		if s.Source == s.Remote {
			return lb.NewFieldError(lb.FieldSource, s.Source.String(), "is the remote address", "an address of this node")
		}
	}
	if s.Interval < MinBFDInterval || s.Interval > MaxBFDInterval {
		return lb.NewFieldError(FieldBFDInterval, strconv.FormatInt(s.Interval.Microseconds(), 10), "is out of range",
			fmt.Sprintf("%d to %d microseconds", MinBFDInterval.Microseconds(), MaxBFDInterval.Microseconds()))
	}
	return nil
}

// Names of the fields that only BFD sessions have.
const (
	FieldBFDInterval = "interval"
	FieldBFDRetry    = "retry count"
	FieldBFDPriority = "priority"
)

// routablePeer refuses the same addresses as CheckRoutable, except link-local IPv6 addresses with a
// zone.
func routablePeer(field string, a netip.Addr) error {
	if a.Is6() && a.IsLinkLocalUnicast() {
		if a.Zone() == "" {
			return lb.NewFieldError(field, a.String(), "is link-local, but has no zone", a.String()+"%INTERFACE")
		}
		return nil
	}
	if a.IsValid() && a.Zone() != "" {
		return lb.NewFieldError(field, a.String(), "has a zone", "")
	}
	return lb.CheckRoutable(field, a)
}

// ParsePeerAddr parses an address. A link-local one needs a zone.
func ParsePeerAddr(field, text string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() != "" {
		return a, nil // Validate refuses other zones
	}
	return lb.ParseAddr(field, text)
}

// ParseKeepalive parses the flag --ka: REMOTE[:SOURCE[:INTERVAL]]. The interval is in microseconds,
// and IPv6 addresses are in brackets.
func ParseKeepalive(text string) (s BFDSession, err error) {
	rest := text
	next := func() (part string) {
		if strings.HasPrefix(rest, "[") {
			if end := strings.Index(rest, "]"); end > 0 {
				part, rest = rest[1:end], rest[end+1:]
				rest = strings.TrimPrefix(rest, ":")
				return part
			}
		}
		part, rest, _ = strings.Cut(rest, ":")
		return part
	}
	if s.Remote, err = ParsePeerAddr(lb.FieldRemote, next()); err != nil {
		return s, err
	}
	if part := next(); part != "" {
		if s.Source, err = ParsePeerAddr(lb.FieldSource, part); err != nil {
			return s, err
		}
	}
	if part := next(); part != "" {
		micros, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return s, lb.NewFieldError(FieldBFDInterval, part, "is not a number", "microseconds")
		}
		s.Interval = time.Duration(micros) * time.Microsecond
	}
	if rest != "" {
		return s, lb.NewFieldError("--ka", text, "has too many parts", "REMOTE:SOURCE:INTERVAL, with IPv6 addresses in brackets")
	}
	s = s.Normal()
	return s, s.Validate()
}
