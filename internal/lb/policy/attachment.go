package policy

import (
	"net/netip"
	"strings"

	"loxilb/internal/lb"
)

// AttachTo is the kind of target of a policer or a mirror, by the existing loxilb's numbers; it
// does not have AttachSource and later ones.
type AttachTo uint8

// The kinds.
const (
	AttachPort    AttachTo = 1 // an interface: all packets that arrive there
	AttachService AttachTo = 2 // a service, by its key, or all services of a name
	AttachSource  AttachTo = 3 // clients, by a prefix of their addresses, of all services
	AttachRule    AttachTo = 4 // connections and packets that match a firewall rule, by its key
)

func attachWords() map[AttachTo]string {
	return map[AttachTo]string{AttachPort: "port", AttachService: "service", AttachSource: "source", AttachRule: "firewall"}
}

func (a AttachTo) String() string { return attachWords()[a] }

// ParseAttachTo parses the existing loxilb's number, or the word.
func ParseAttachTo(text string) (AttachTo, error) {
	for a, word := range attachWords() {
		if text == word || text == string('0'+rune(a)) {
			return a, nil
		}
	}
	return 0, lb.NewFieldError(lb.FieldAttachment, text, "is nothing to attach to", "1 (port), 2 (service), 3 (source) or 4 (firewall)")
}

// Direction is the direction of packets of a connection.
type Direction string

// The directions; "" means DirectionIn.
const (
	DirectionIn   Direction = "in"  // from clients to endpoints
	DirectionOut  Direction = "out" // from endpoints to clients
	DirectionBoth Direction = "both"
)

// Has reports whether the direction includes packets towards endpoints, or back to clients.
func (d Direction) Has(back bool) bool {
	return d == DirectionBoth || (d == DirectionOut) == back
}

// Attachment is the object that a policer or a mirror is attached to.
type Attachment struct {
	To        AttachTo  `json:"to"`
	Name      string    `json:"name"`
	Direction Direction `json:"direction,omitempty"`
}

// Validate checks all fields.
func (a Attachment) Validate() error {
	switch a.Direction {
	case "", DirectionIn, DirectionOut, DirectionBoth:
	default:
		return lb.NewFieldError(lb.FieldDirection, string(a.Direction), "is not a direction", "in, out or both")
	}
	switch a.To {
	case AttachPort:
		if a.Direction == DirectionOut || a.Direction == DirectionBoth {
			return lb.NewFieldError(lb.FieldDirection, string(a.Direction), "is not possible for a port: packets are classified where they arrive", "in")
		}
		return lb.ValidateDevice(lb.FieldTarget, a.Name)
	case AttachService:
		_, _, err := a.Service()
		return err
	case AttachSource:
		_, err := a.Prefix()
		return err
	case AttachRule:
		_, err := a.Rule()
		return err
	}
	return lb.NewFieldError(lb.FieldAttachment, a.To.String(), "is nothing to attach to", "1 (port), 2 (service), 3 (source) or 4 (firewall)")
}

// Service returns the name of services, or the key of one service, which has a slash, unlike names.
func (a Attachment) Service() (name string, key lb.Key, err error) {
	if strings.Contains(a.Name, "/") {
		key, err = lb.ParseKey(a.Name)
		return "", key, err
	}
	if a.Name == "" {
		return "", key, lb.NewFieldError(lb.FieldTarget, "", "is missing", "the name of services, or IP:PORT/PROTOCOL")
	}
	return a.Name, key, lb.ValidateName(lb.FieldName, a.Name)
}

// Prefix returns the prefix of the clients; an address is a prefix of full length.
func (a Attachment) Prefix() (netip.Prefix, error) {
	p, err := netip.ParsePrefix(a.Name)
	if err != nil {
		addr, err := netip.ParseAddr(a.Name)
		if err != nil || addr.Zone() != "" {
			return p, lb.NewFieldError(lb.FieldTarget, a.Name, "is not a prefix of addresses", "as in 10.0.0.0/8 or 2001:db8::/32")
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	if p.Addr().Is4In6() {
		return p, lb.NewFieldError(lb.FieldTarget, a.Name, "is an IPv4 prefix written as IPv6", "an IPv4 prefix, as in 10.0.0.0/8")
	}
	return p.Masked(), nil
}

// Rule returns a firewall rule's key, in its normal form.
func (a Attachment) Rule() (key string, err error) {
	rule, err := ParseRuleKey(a.Name)
	if err == nil {
		err = rule.Validate()
	}
	if err != nil {
		return "", lb.NewFieldError(lb.FieldTarget, a.Name, "is not the key of a firewall rule: "+err.Error(), "")
	}
	return rule.Key(), nil
}

// Normal returns the attachment in the form in which it is stored.
func (a Attachment) Normal() Attachment {
	if a.Direction == "" {
		a.Direction = DirectionIn
	}
	switch a.To {
	case AttachSource:
		if p, err := a.Prefix(); err == nil {
			a.Name = p.String()
		}
	case AttachService:
		if name, key, err := a.Service(); err == nil && name == "" {
			a.Name = key.String()
		}
	case AttachRule:
		if key, err := a.Rule(); err == nil {
			a.Name = key
		}
	}
	return a
}
