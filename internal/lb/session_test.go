package lb

import (
	"errors"
	"net/netip"
	"testing"
)

// TestSession checks which sessions and classifiers are valid.
func TestSession(t *testing.T) {
	t.Parallel()
	end := TunnelEnd{TEID: 1, Addr: netip.MustParseAddr("10.10.10.56")}
	good := Session{Name: "user1", User: netip.MustParseAddr("88.88.88.88"), Access: end, Core: end}
	flow := SessionFlow{Session: "user1", Peer: netip.MustParseAddr("2001:db8::1"), QFI: MaxQFI}
	if err := errors.Join(good.Validate(), flow.Validate()); err != nil {
		t.Fatal(err)
	}
	if flow.Key() != "user1/2001:db8::1" {
		t.Errorf(`got %v, want "user1/2001:db8::1"`, flow.Key())
	}
	session := func(change func(*Session)) error { s := good; change(&s); return s.Validate() }
	classifier := func(change func(*SessionFlow)) error { f := flow; change(&f); return f.Validate() }
	six := netip.MustParseAddr("2001:db8::1")
	for want, err := range map[string]error{
		"session is missing (allowed: a name)": session(func(s *Session) { s.Name = "" }),
		"name \"a/b\" has a slash":             session(func(s *Session) { s.Name = "a/b" }),
		"address of the user \"\" is not the address of a user (allowed: an IPv4 or IPv6 address)":                                    session(func(s *Session) { s.User = netip.Addr{} }),
		"address of the user \"255.255.255.255\" is not the address of a user (allowed: an IPv4 or IPv6 address)":                     session(func(s *Session) { s.User = netip.MustParseAddr("255.255.255.255") }),
		"address of the user \"fe80::1\" is not the address of a user (allowed: an IPv4 or IPv6 address)":                             session(func(s *Session) { s.User = netip.MustParseAddr("fe80::1") }),
		"core tunnel \"10.10.10.56\" is of another IP version than the access tunnel, 2001:db8::1 (allowed: both IPv4, or both IPv6)": session(func(s *Session) { s.Access.Addr = six }),
		"core tunnel \"224.0.0.1\" is not the address of a tunnel's end (allowed: an IPv4 or IPv6 address)":                           session(func(s *Session) { s.Core.Addr = netip.MustParseAddr("224.0.0.1") }),
		"classified address \"127.0.0.1\" is not the address of a host (allowed: an IPv4 or IPv6 address)":                            classifier(func(f *SessionFlow) { f.Peer = netip.MustParseAddr("127.0.0.1") }),
		"QFI \"64\" is out of range (allowed: 0 to 63)":                                                                               classifier(func(f *SessionFlow) { f.QFI = 64 }),
		"session is missing (allowed: the name of a session)":                                                                         classifier(func(f *SessionFlow) { f.Session = "" }),
	} {
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}
