package services

import (
	"testing"

	"github.com/spf13/cobra"

	"loxilb/internal/lb"
)

// FuzzCreate checks that flags of create lb never give an unintended request.
func FuzzCreate(f *testing.F) {
	f.Add("20.20.20.1", "2020:5001", "31.31.31.1:1", "rr", "default")
	f.Add("2001:db8::1", "80:80", "[2001:db8::2]:8080:0", "2", "0")
	f.Fuzz(func(t *testing.T, vip, ports, endpoint, algorithm, mode string) {
		c := createFlags{ports: portFlags{lb.TCP: &[]string{ports}}, endpoints: []string{endpoint}}
		cmd := &cobra.Command{}
		c.FieldFlags.Register(cmd)
		if cmd.Flags().Set("select", algorithm) != nil || cmd.Flags().Set("mode", mode) != nil {
			return
		}
		list, err := c.entries(vip)
		if err != nil {
			return
		}
		for _, e := range list {
			p := e.ServiceArguments.Port
			if len(e.Endpoints) != 1 || p < 1 || p > 65535 || e.Endpoints[0].TargetPort < 1 || e.Endpoints[0].TargetPort > 65535 {
				t.Fatalf("got %q %q %q: %+v, want 1 endpoint, p >= 1, p <= 65535, "+
					"e.Endpoints[0].TargetPort >= 1, e.Endpoints[0].TargetPort <= 65535",
					vip, ports, endpoint, e)
			}
		}
	})
}
