package lb

import "testing"

// TestN3 checks which services can be balanced by tunnel.
func TestN3(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.1:2152/udp select=n3 endpoints=10.1.0.1:2152":                        "",
		"[2001:db8::1]:2152/udp select=n3 mode=fullnat endpoints=[2001:db8::2]:2152": "",
		"10.0.0.1:2152/udp select=n3 mode=dsr endpoints=10.1.0.1:2152":               "",
		"10.0.0.1:2152/tcp select=n3 endpoints=10.1.0.1:2152": `select "n3" is for GTP-U over UDP, and the service is of tcp ` +
			`(allowed: another algorithm, or --udp=2152)`,
		"0.0.0.0:2152/udp select=n3 mode=hostonearm endpoints=10.1.0.1:2152": `select "n3" is for a VIP of its own, and mode is hostonearm ` +
			`(allowed: another algorithm, or another mode)`,
		"10.0.0.1:2153/udp select=n3 endpoints=10.1.0.1:2152": `select "n3" is for GTP-U, and the service's port is 2153 ` +
			`(allowed: another algorithm, or --udp=2152)`,
		"10.0.0.1:2152-2153/udp select=n3 endpoints=10.1.0.1:2152": `select "n3" is for GTP-U, and the service's port is 2152 ` +
			`(allowed: another algorithm, or --udp=2152)`,
		"10.0.0.1:2152/udp select=n3 helper=tftp endpoints=10.1.0.1:2152":              `helper "tftp" is set, but select is n3 (allowed: none, or another algorithm)`,
		"10.0.0.1:2152/udp select=n3 mode=fullnat egress=true endpoints=10.1.0.1:2152": `egress "true" is set, but select is n3 (allowed: false, or another algorithm)`,
	} {
		s, err := ParseService(text)
		if err == nil {
			err = s.Validate()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: got %v, want no error", text, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}
