package config

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAgent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, err string
		want      *Agent
	}{
		{args: "agent", err: "--decap is missing"},
		{args: "agent --decap --vip=20.20.20.1", err: "--interface is missing"},
		{args: "agent --decap --interface=eth0", err: "--vip is missing"},
		{args: "agent --decap --interface=eth0 --vip=20.20.20", err: `--vip "20.20.20" is not an IP address`},
		{args: "agent --decap --interface=eth0 --vip=20.20.20.1 --from=1.1.1.0/33", err: `--from "1.1.1.0/33" is not an address or a prefix`},
		{args: "agent --decap --interface=eth0 --vip=20.20.20.1 --gue-port=0", err: "--gue-port 0 is out of range"},
		{args: "agent --decap --interface=eth0 --vip=20.20.20.1 more", err: "more"},
		{args: "agent --decap --interface=eth0,eth1 --vip=20.20.20.1", want: &Agent{
			Interfaces: []string{"eth0", "eth1"}, VIPs: []netip.Addr{netip.MustParseAddr("20.20.20.1")}, Port: 6080,
			From: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("100::/64")},
		}},
		{args: "agent --decap --interface=eth0 --vip=2001:db8::1 --from=31.31.31.254,2001:db8:31::5/64 --gue-port=7000", want: &Agent{
			Interfaces: []string{"eth0"}, VIPs: []netip.Addr{netip.MustParseAddr("2001:db8::1")}, Port: 7000,
			From: []netip.Prefix{netip.MustParsePrefix("31.31.31.254/32"), netip.MustParsePrefix("2001:db8:31::/64")},
		}},
	} {
		var got *Agent
		var out bytes.Buffer
		code := Main(t.Context(), nil, strings.Fields(c.args), &out, &out,
			func(context.Context, *Config) error { t.Error("the daemon ran"); return nil },
			AgentCommand(func(_ context.Context, a *Agent) error { got = a; return nil }))
		if (code == ExitOK) != (c.err == "") || !strings.Contains(out.String(), c.err) {
			t.Errorf("%s: exit code %d, %q, want %q", c.args, code, out.String(), c.err)
		}
		if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.args, diff)
		}
	}
}
