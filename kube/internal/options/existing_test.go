package options

import (
	"flag"
	"io"
	"strings"
	"testing"
)

// TestExistingFlags checks that unimplemented flags of the existing controller are refused with an
// alternative, or accepted with a warning if they do not affect traffic.
func TestExistingFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ arg, refusal, warning string }{
		{"--appendEPs=false", "", ""},
		{"--appendEPs", "give each cluster its own --zone", ""},
		{"--privateCIDR=10.0.0.0/24", "--cidrPools", ""},
		{"--gatewayAPI", "Services of type LoadBalancer", ""},
		{"--loxilbGatewayClass=" + Class, "", ""},
		{"--loxilbGatewayClass=other", "", "no Gateway API"},
		{"--enableK8sMetadata", "", "named after Services"},
		{"--enableBGPCRDs=true", "--extBGPPeers", ""},
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		o := Register(fs)
		err := fs.Parse([]string{tc.arg})
		if (err != nil) != (tc.refusal != "") || err != nil && !strings.Contains(err.Error(), tc.refusal) {
			t.Errorf("%s: got error %v, want %q", tc.arg, err, tc.refusal)
		}
		if got := strings.Join(o.Ignored, " "); (got != "") != (tc.warning != "") || !strings.Contains(got, tc.warning) {
			t.Errorf("%s: the warning is %q", tc.arg, got)
		}
	}
}

// TestWithoutEffect checks that a warning names flags which need another flag that is missing.
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
