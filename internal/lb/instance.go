package lb

import (
	"net/netip"
	"slices"
	"strings"
)

// Role is the role of a node for the services of an instance, as assigned by keepalived or
// kube-loxilb. The words are the contract's.
type Role string

// The roles.
const (
	RoleMaster  Role = "MASTER"
	RoleBackup  Role = "BACKUP"
	RoleFault   Role = "FAULT"
	RoleStop    Role = "STOP"
	RoleUnknown Role = "NOT_DEFINED" // nobody assigns roles: each node acts as if it were alone
)

// ParseRole parses the word in any case.
func ParseRole(s string) (Role, error) {
	all := []string{string(RoleMaster), string(RoleBackup), string(RoleFault), string(RoleStop), string(RoleUnknown)}
	for _, word := range all {
		if strings.EqualFold(s, word) {
			return Role(word), nil
		}
	}
	return "", NewFieldError(FieldRole, s, "is not known", list(all))
}

// Owns reports whether the node answers for the VIPs.
func (r Role) Owns() bool { return r == RoleMaster || r == RoleUnknown || r == "" }

// DefaultInstance is the instance of services whose names have none.
const DefaultInstance = "llb-inst0"

// InstanceKey returns the name of the instance: the contract's examples call the default one
// "default".
func InstanceKey(name string) string {
	if name == "" || name == "default" {
		return DefaultInstance
	}
	return name
}

// Instance returns the instance of a service: the part of its name after the last colon.
func (s *Service) Instance() string {
	if i := strings.LastIndexByte(s.Name, ':'); i >= 0 {
		return InstanceKey(s.Name[i+1:])
	}
	return DefaultInstance
}

// OwnAddresses lists the addresses that the owner of the service answers for: its VIPs, and its own
// source addresses.
func (s *Service) OwnAddresses() []netip.Addr {
	var out []netip.Addr
	if s.VIP.IsValid() && !s.VIP.IsUnspecified() {
		out = append(out, s.VIP)
	}
	return append(append(out, s.Secondary...), s.SNAT...)
}

// Instance is the role of this node for the services of an instance.
type Instance struct {
	Name  string     `json:"name"` // as given
	Role  Role       `json:"role"`
	VIP   netip.Addr `json:"vip,omitzero"` // the cluster's: the source that endpoints see in mode fullnat in place of services' VIPs; invalid: none
	Place string     `json:"place"`        // where the role was assigned
}

// Key names it.
func (i *Instance) Key() string { return InstanceKey(i.Name) }

// Validate checks all fields.
func (i *Instance) Validate() error {
	if err := ValidateName(i.Name); err != nil {
		fe := *err.(*FieldError) //nolint:errorlint,forcetypeassert // ValidateName makes it
		fe.Field = FieldInstance
		return &fe
	}
	if strings.Contains(i.Name, ":") {
		return NewFieldError(FieldInstance, i.Name, "has a colon", "what stands behind the last colon of services' names")
	}
	if _, err := ParseRole(string(i.Role)); err != nil {
		return err
	}
	if i.VIP.IsValid() {
		return addrUse(FieldInstanceVIP, i.VIP)
	}
	return nil
}

// At returns the instance at a place, which is a boot of the machine and a network namespace. A
// master loses its role elsewhere: while this machine was down another node has become master, and
// two masters are worse than none until the role is assigned again.
func (i Instance) At(place string) Instance {
	if i.Role == RoleMaster && i.Place != place {
		i.Role = RoleBackup
	}
	return i
}

// Source returns the address that endpoints of a service of the instance see in mode fullnat
// instead of its VIP; invalid: the VIP.
func (i *Instance) Source(s *Service) netip.Addr {
	if !i.VIP.IsValid() || s.Mode != ModeFullNAT || len(s.SNAT) > 0 || i.VIP.Is4() != s.VIP.Is4() {
		return netip.Addr{}
	}
	if slices.ContainsFunc(s.Endpoints, s.Translates) {
		return netip.Addr{}
	}
	return i.VIP
}
