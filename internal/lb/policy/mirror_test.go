package policy

import (
	"errors"
	"net/netip"
	"testing"

	"loxilb/internal/lb"
)

// TestMirrorValidate checks that each type requires the fields that it uses, and clears the others.
func TestMirrorValidate(t *testing.T) {
	t.Parallel()
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")
	port, service := Attachment{To: AttachPort, Name: "eth1"}, Attachment{To: AttachService, Name: "web"}
	for name, c := range map[string]struct {
		m     Mirror
		field string
	}{
		"span":            {Mirror{Name: "m", Port: "eth0", VLAN: 5, Remote: there, Attachment: service}, ""},
		"rspan":           {Mirror{Name: "m", Type: RSPAN, Port: "eth0", VLAN: 4094, Attachment: port}, ""},
		"erspan":          {Mirror{Name: "m", Type: ERSPAN, Remote: there, Source: here, TunnelID: 1023, Port: "x", OneOf: 1, Attachment: port}, ""},
		"vxlan":           {Mirror{Name: "m", Type: VXLANMirror, Remote: there, Source: here, TunnelID: 1<<24 - 1, OneOf: 1000000, Attachment: port}, ""},
		"no name":         {Mirror{Port: "eth0", Attachment: service}, lb.FieldIdent},
		"type":            {Mirror{Name: "m", Type: 4, Attachment: service}, lb.FieldMirrorType},
		"no port":         {Mirror{Name: "m", Attachment: service}, lb.FieldMirrorPort},
		"itself":          {Mirror{Name: "m", Port: "eth1", Attachment: port}, lb.FieldMirrorPort},
		"no VLAN":         {Mirror{Name: "m", Type: RSPAN, Port: "eth0", Attachment: service}, lb.FieldVLAN},
		"VLAN":            {Mirror{Name: "m", Type: RSPAN, Port: "eth0", VLAN: 4095, Attachment: service}, lb.FieldVLAN},
		"no collector":    {Mirror{Name: "m", Type: ERSPAN, Source: here, TunnelID: 1, Attachment: service}, lb.FieldRemote},
		"group":           {Mirror{Name: "m", Type: ERSPAN, Remote: netip.MustParseAddr("224.0.0.1"), Source: here, TunnelID: 1, Attachment: service}, lb.FieldRemote},
		"no source":       {Mirror{Name: "m", Type: ERSPAN, Remote: there, TunnelID: 1, Attachment: service}, lb.FieldMirrorSource},
		"families":        {Mirror{Name: "m", Type: ERSPAN, Remote: there, Source: netip.IPv6Loopback(), TunnelID: 1, Attachment: service}, lb.FieldMirrorSource},
		"session":         {Mirror{Name: "m", Type: ERSPAN, Remote: there, Source: here, TunnelID: 1024, Attachment: service}, lb.FieldTunnelID},
		"VNI":             {Mirror{Name: "m", Type: VXLANMirror, Remote: there, Source: here, TunnelID: 1 << 24, Attachment: service}, lb.FieldTunnelID},
		"sample":          {Mirror{Name: "m", Port: "eth0", OneOf: 1000001, Attachment: service}, lb.FieldSample},
		"nothing to copy": {Mirror{Name: "m", Port: "eth0"}, lb.FieldAttachment},
	} {
		m := c.m.Normal()
		err := m.Validate()
		var field *lb.FieldError
		if errors.As(err, &field); (err == nil) != (c.field == "") || field != nil && field.Field != c.field {
			t.Errorf("%s: got %v, want an error about field %q; empty: no error", name, err, c.field)
		}
		if m.Tunneled() && (m.Port != "" || m.VLAN != 0) || !m.Tunneled() && (m.Remote.IsValid() || m.TunnelID != 0) || m.OneOf == 1 {
			t.Errorf("%s keeps fields that it does not use: %+v", name, m)
		}
	}
}
