package traffic

import (
	"strings"
	"testing"

	v1 "loxilb/api/v1"
)

// TestMirrorFlags checks the contract's pairs, in its spelling of attachment and in the correct
// one, and IPv6 addresses.
func TestMirrorFlags(t *testing.T) {
	t.Parallel()
	for _, attachment := range []string{"attachement:1", "attachment:1", "attachment:port"} {
		got, err := mirrorRequest("m", []string{"type:0", "port:hs0"}, []string{attachment, "mirrObjName:hs1"})
		want := v1.Mirror{MirrorIdent: "m", MirrorInfo: v1.MirrorInfo{Port: "hs0"}, TargetObject: v1.MirrorTarget{Attachment: 1, MirrObjName: "hs1"}}
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want no error, %+v", attachment, got, err, want)
		}
	}
	got, err := mirrorRequest("m", []string{"type:erspan", "remoteIP:2001:db8::9", "sourceIP:2001:db8::1", "tunnelID:5", "sample:10"},
		[]string{"attachment:service", "mirrObjName:[2001:db8::80]:80/tcp", "direction:in"})
	want := v1.Mirror{
		MirrorIdent: "m", MirrorInfo: v1.MirrorInfo{Type: 2, RemoteIP: "2001:db8::9", SourceIP: "2001:db8::1", TunnelID: 5, Sample: 10},
		TargetObject: v1.MirrorTarget{Attachment: 2, MirrObjName: "[2001:db8::80]:80/tcp", Direction: "in"},
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want no error, %+v", got, err, want)
	}
	got, err = mirrorRequest("m", []string{"port:hs0"}, strings.Split("attachment:firewall,mirrObjName:sourceIP:10.0.0.0/8,minDestinationPort:80,Preference:5,direction:out", ","))
	want = v1.Mirror{
		MirrorIdent: "m", MirrorInfo: v1.MirrorInfo{Port: "hs0"},
		TargetObject: v1.MirrorTarget{Attachment: 4, MirrObjName: "sourceIP:10.0.0.0/8,minDestinationPort:80,Preference:5", Direction: "out"},
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want no error, %+v", got, err, want)
	}
	for _, bad := range [][]string{{"type"}, {"type:5"}, {"vlan:x"}, {"colour:red"}} {
		if got, err := mirrorRequest("m", bad, nil); err == nil {
			t.Errorf("%v becomes %+v", bad, got)
		}
	}
}
