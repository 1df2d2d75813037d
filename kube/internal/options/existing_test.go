package options

import (
	"flag"
	"io"
	"strings"
	"testing"
)

// TestExistingFlags checks that flags of the existing controller without a counterpart are refused
// with what to do instead, unless traffic is the same without them.
func TestExistingFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ arg, refusal, warning string }{
		{"--appendEPs=false", "", ""},
		{"--appendEPs", "give each cluster a --zone", ""},
		{"--privateCIDR=10.0.0.0/24", "--cidrPools", ""},
		{"--gatewayAPI", "Services of type LoadBalancer", ""},
		{"--loxilbGatewayClass=" + Class, "", ""},
		{"--loxilbGatewayClass=other", "", "no Gateway API"},
		{"--enableK8sMetadata", "", "names of Services"},
		{"--enableBGPCRDs=true", "--extBGPPeers", ""},
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		o := Register(fs)
		err := fs.Parse([]string{tc.arg})
		if (err != nil) != (tc.refusal != "") || err != nil && !strings.Contains(err.Error(), tc.refusal) {
			t.Errorf("%s: got %v, want the error %q; empty: no error", tc.arg, err, tc.refusal)
		}
		if got := strings.Join(o.Ignored, " "); (got != "") != (tc.warning != "") || !strings.Contains(got, tc.warning) {
			t.Errorf("%s: the warning is %q", tc.arg, got)
		}
	}
}

// TestWithoutEffect checks that flags which need another one are reported.
func TestWithoutEffect(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--extBGPPeers=192.0.2.1:65001":                  "without --setBGP",
		"--eBGPMultiHop":                                 "without --setBGP",
		"--setBGP=65000 --extBGPPeers=192.0.2.1:65001":   "",
		"--excludeRoleList=n1":                           "without --setRoles",
		"--setRoles=0.0.0.0 --excludeRoleList=n1":        "",
		"--listenBGPPort=1790":                           "without --setBGP",
		"--setBGP=65000 --listenBGPPort=179 --zone=blue": "",
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		o := Register(fs)
		err := fs.Parse(strings.Fields(args))
		if err == nil {
			_, err = o.Parse()
		}
		if got := strings.Join(o.Ignored, " "); err != nil || (got != "") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: the warning is %q (%v), want %q", args, got, err, want)
		}
	}
}
