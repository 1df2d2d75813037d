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
