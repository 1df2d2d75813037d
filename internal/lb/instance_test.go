package lb

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestInstanceOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": DefaultInstance, "web": DefaultInstance, "ns_web:llb-inst0": DefaultInstance, "web:default": DefaultInstance, "web:": DefaultInstance,
		"ns_web:llb-inst1": "llb-inst1", "a:b:c": "c",
	} {
		if got := (&Service{Name: name}).Instance(); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestInstanceValidate(t *testing.T) {
	t.Parallel()
	vip := netip.MustParseAddr("10.0.0.9")
	for want, i := range map[string]Instance{
		"":                                   {Name: "llb-inst0", Role: RoleMaster, VIP: vip},
		`state "X" is not known`:             {Name: "a", Role: "X"},
		`instance "a:b" has a colon`:         {Name: "a:b", Role: RoleBackup},
		`instance "a/b" has a slash`:         {Name: "a/b", Role: RoleBackup},
		`lease "4s" is out of range`:         {Name: "a", Role: RoleMaster, Lease: 4 * time.Second},
		`lease "5.5s" is out of range`:       {Name: "a", Role: RoleMaster, Lease: 5500 * time.Millisecond},
		`lease "3601s" is out of range`:      {Name: "a", Role: RoleMaster, Lease: 3601 * time.Second},
		`lease "5s" has no role to end`:      {Name: "a", Role: RoleUnknown, Lease: MinLease},
		`vip "127.0.0.1" is a loopback addr`: {Name: "a", Role: RoleBackup, VIP: netip.MustParseAddr("127.0.0.1")},
	} {
		if err := i.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", i, err, want)
		}
	}
	for text, want := range map[string]Role{"master": RoleMaster, "BACKUP": RoleBackup, "Fault": RoleFault, "stop": RoleStop, "NOT_DEFINED": RoleUnknown} {
		if got, err := ParseRole(text); got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s, no error", text, got, err, want)
		}
	}
}

// TestInstanceElsewhere checks that a stored role of master does not apply on another machine: two
// masters are worse than none.
func TestInstanceElsewhere(t *testing.T) {
	t.Parallel()
	for role, want := range map[Role]Role{RoleMaster: RoleBackup, RoleBackup: RoleBackup, RoleStop: RoleStop, RoleUnknown: RoleUnknown} {
		i := Instance{Name: "a", Role: role, Origin: "here"}
		if got := i.AtOrigin("here").Role; got != role {
			t.Errorf("%s is %s here", role, got)
		}
		if got := i.AtOrigin("there").Role; got != want {
			t.Errorf("%s is %s there, want %s", role, got, want)
		}
	}
}

func TestInstanceSource(t *testing.T) {
	t.Parallel()
	i := Instance{VIP: netip.MustParseAddr("10.0.0.9")}
	for line, want := range map[string]bool{
		"10.0.0.1:80/tcp mode=fullnat endpoints=10.1.0.1:80":               true,
		"10.0.0.1:80/tcp mode=fullnat endpoints=10.1.0.1:80 snat=10.0.0.8": false,
		"10.0.0.1:80/tcp mode=fullnat endpoints=[2001:db8::2]:80":          false,
		"[2001:db8::1]:80/tcp mode=fullnat endpoints=[2001:db8::2]:80":     false,
		"10.0.0.1:80/tcp mode=onearm endpoints=10.1.0.1:80":                false,
		"10.0.0.1:80/tcp endpoints=10.1.0.1:80":                            false,
	} {
		s := mustParse(t, line)
		if got := i.Source(&s) == i.VIP; got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}
