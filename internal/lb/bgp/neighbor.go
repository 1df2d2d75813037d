package bgp

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"loxilb/internal/lb"
)

// Names of fields in errors, as in the API.
const (
	FieldNeighbor   = "ipAddress"
	FieldInterface  = "interface"
	FieldRemoteASN  = "remoteAs"
	FieldSource     = "source"
	FieldMultihop   = "multihopTTL"
	FieldPassword   = "password"
	FieldHold       = "holdTime"
	FieldKeepalive  = "keepaliveTime"
	FieldRetry      = "connectRetry"
	FieldInterval   = "bfd.interval"
	FieldMultiplier = "bfd.multiplier"
)

const (
	// DefaultMultihop is the TTL of sessions over several hops, unless another one is set, as
	// in the existing loxilb.
	DefaultMultihop = 8
	// DefaultMultiplier is how many missing packets of BFD mean that a neighbor is gone.
	DefaultMultiplier = 3

	defaultHold = 90 * time.Second
	minHold     = 3 * time.Second // RFC 4271, section 4.2
	longestTime = math.MaxUint16 * time.Second
	maxPassword = 80 // bytes: TCP_MD5SIG_MAXKEYLEN
	minInterval = 10 * time.Millisecond
	maxInterval = time.Minute
)

// HiddenPassword stands for a stored password where passwords are not shown.
const HiddenPassword = "********"

const allowedPassword = "up to 80 printable ASCII characters, other than " + HiddenPassword

// ParseNeighborAddr parses the address of a neighbor. A link-local one names its interface:
// fe80::1%eth0.
func ParseNeighborAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, lb.NewFieldError(FieldNeighbor, text, "is not an IP address", "an IPv4 or IPv6 address")
	}
	return a, nil
}

// Key returns the address or, of an unnumbered neighbor, the interface.
func (n Neighbor) Key() string {
	if n.Addr.IsValid() {
		return n.Addr.String()
	}
	return n.Interface
}

// Validate checks all fields.
func (n Neighbor) Validate() error {
	if err := n.validateAddr(); err != nil {
		return err
	}
	if err := validateASN(FieldRemoteASN, n.ASN); err != nil {
		return err
	}
	if err := n.validatePath(); err != nil {
		return err
	}
	if err := validatePassword(n.Password); err != nil {
		return err
	}
	if err := n.validateTimes(); err != nil {
		return err
	}
	return n.validateBFD()
}

// validateAddr checks that the neighbor has either an address or an interface.
func (n Neighbor) validateAddr() error {
	const unicast = "the unicast address of a router"
	a := n.Addr
	switch {
	case !a.IsValid() && n.Interface == "":
		return lb.NewFieldError(FieldNeighbor, "", "is missing", unicast+", or interface for a neighbor without an address")
	case !a.IsValid():
		return lb.ValidateDevice(FieldInterface, n.Interface)
	case n.Interface != "":
		return lb.NewFieldError(FieldInterface, n.Interface, "cannot be combined with ipAddress "+a.String(), "one of the two")
	case a.Is4In6():
		return lb.NewFieldError(FieldNeighbor, a.String(), "is an IPv4 address written as IPv6", a.Unmap().String())
	case a.IsUnspecified(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return lb.NewFieldError(FieldNeighbor, a.String(), "is not the address of a router", unicast)
	case a.Is6() && a.IsLinkLocalUnicast() != (a.Zone() != ""):
		if a.Zone() != "" {
			return lb.NewFieldError(FieldNeighbor, a.String(), "has an interface, but is not link-local", a.WithZone("").String())
		}
		return lb.NewFieldError(FieldNeighbor, a.String(), "is link-local, but has no interface", a.String()+"%INTERFACE")
	}
	return nil
}

// validatePath checks how packets reach the neighbor.
func (n Neighbor) validatePath() error {
	switch s := n.Source; {
	case !s.IsValid():
	case !n.Addr.IsValid():
		return lb.NewFieldError(FieldSource, s.String(), "cannot be combined with interface "+n.Interface, "none")
	case s.Is4() != n.Addr.Is4():
		return lb.NewFieldError(FieldSource, s.String(), "is of another IP version than "+n.Addr.String(), "an address of this node")
	case s.IsUnspecified(), s.IsMulticast(), s.Zone() != "", s.Is4In6():
		return lb.NewFieldError(FieldSource, s.String(), "is not the source of a session", "an address of this node")
	case s == n.Addr.WithZone(""):
		return lb.NewFieldError(FieldSource, s.String(), "is the address of the neighbor", "an address of this node")
	}
	if n.Multihop > 0 && (!n.Addr.IsValid() || n.Addr.IsLinkLocalUnicast()) {
		return lb.NewFieldError(FieldMultihop, strconv.Itoa(int(n.Multihop)), "cannot be combined with a neighbor on a link", "0")
	}
	return nil
}

func validatePassword(password string) error {
	switch {
	case len(password) > maxPassword:
		return lb.NewFieldError(FieldPassword, "(hidden)", "has "+strconv.Itoa(len(password))+" bytes", allowedPassword)
	case strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r > '~' }):
		return lb.NewFieldError(FieldPassword, "(hidden)", "has characters that other routers might not accept", allowedPassword)
	}
	return nil
}

// KeepPassword replaces the placeholder of a stored password by the password of the stored
// neighbor; a zero stored neighbor has none.
func (n Neighbor) KeepPassword(stored Neighbor) (Neighbor, error) {
	if n.Password != HiddenPassword {
		return n, nil
	}
	if stored.Password == "" {
		return n, lb.NewFieldError(FieldPassword, n.Password,
			"stands for a stored password, and neighbor "+n.Key()+" has none", allowedPassword)
	}
	n.Password = stored.Password
	return n, nil
}

func (n Neighbor) validateTimes() error {
	for _, t := range []struct {
		field   string
		value   time.Duration
		least   time.Duration
		allowed string
	}{
		{FieldHold, n.Hold, minHold, "3s to 65535s, whole seconds, or 0s for 90s"},
		{FieldKeepalive, n.Keepalive, time.Second, "1s to 65535s, whole seconds, or 0s for a third of holdTime"},
		{FieldRetry, n.Retry, time.Second, "1s to 65535s, whole seconds, or 0s for the default"},
	} {
		switch {
		case t.value == 0:
		case t.value < t.least || t.value > longestTime:
			return lb.NewFieldError(t.field, t.value.String(), "is out of range", t.allowed)
		case t.value%time.Second != 0:
			return lb.NewFieldError(t.field, t.value.String(), "is not whole seconds", t.allowed)
		}
	}
	hold := n.Hold
	if hold == 0 {
		hold = defaultHold
	}
	if n.Keepalive >= hold {
		return lb.NewFieldError(FieldKeepalive, n.Keepalive.String(), "is not less than holdTime "+hold.String(), "a third of holdTime")
	}
	return nil
}

func (n Neighbor) validateBFD() error {
	b := n.BFD
	switch {
	case b.Interval == 0 && b.Multiplier > 0:
		return lb.NewFieldError(FieldMultiplier, strconv.Itoa(int(b.Multiplier)), "needs bfd.interval", "both, or none")
	case b.Interval == 0:
	case b.Interval < minInterval || b.Interval > maxInterval || b.Interval%time.Millisecond != 0:
		return lb.NewFieldError(FieldInterval, b.Interval.String(), "is out of range", "10ms to 1m, whole milliseconds")
	case n.Multihop > 0:
		return lb.NewFieldError(FieldInterval, b.Interval.String(), "cannot be combined with multihop: BFD here covers one hop (RFC 5881)", "0s")
	}
	return nil
}
