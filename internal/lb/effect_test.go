package lb

import (
	"strings"
	"testing"
)

// TestIneffective checks that exactly those settings are named that have no effect on the service.
func TestIneffective(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "",
		"probereq=/health probeport=80":      FieldProbeRequest + "," + FieldProbePort,
		"probereq=/health monitor=true":      "",
		"probe-interval=60s probe-retries=2": "",
		"probe-interval=2s probe-retries=3 probe-rise=2":  "",
		"probe-interval=5s probe-retries=4 probe-rise=1":  FieldProbeInterval + "," + FieldProbeRetries + "," + FieldProbeRise,
		"probe-interval=5s probe-retries=4 probetype=tcp": "",
		"slow-start=30s":                       "",
		"slow-start=30s endpoints=10.0.0.1:80": FieldSlowStart,
		"probe-interval=100ms":                 FieldProbeInterval,
		"probe-wait=1s":                        FieldProbeWait,
		"on-fail=reset":                        FieldOnFail,
		"on-fail=reset probetype=tcp":          "",
		"all-down=panic":                       "",
		"all-down=panic outlier=off":           FieldAllDown,
		"failover-below=50":                    FieldFailover,
		"failover-below=50 endpoints=10.0.0.1:80,10.0.0.2:80@1": "",
		"outlier=on":                                          "",
		"bgp-med=5 bgp-prepend=2":                             FieldMED + "," + FieldPrepend,
		"bgp=true bgp-med=5 bgp-prepend=2":                    "",
		"outlier=on endpoints=10.0.0.1:80":                    FieldOutlier,
		"endpoints=10.0.0.1:80,10.0.0.2:80:5":                 FieldWeight,
		"endpoints=10.0.0.1:80:5,10.0.0.2:80:5,10.0.0.3:80:0": "",
		"select=priority endpoints=10.0.0.1:80,10.0.0.2:80:5": "",
	} {
		if !strings.Contains(text, "endpoints=") {
			text += " endpoints=10.0.0.1:80,10.0.0.2:80"
		}
		s, err := ParseService("20.20.20.1:80/tcp " + strings.TrimSpace(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, i := range s.IneffectiveSettings() {
			got = append(got, i.Field)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
