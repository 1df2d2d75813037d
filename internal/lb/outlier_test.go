package lb

import (
	"strings"
	"testing"
)

// TestOutlier checks which services eject outliers, and which consider resets.
func TestOutlier(t *testing.T) {
	t.Parallel()
	const two = " endpoints=10.0.0.1:80,10.0.0.2:80"
	for _, c := range []struct {
		service     string
		out, resets bool
		err         string
	}{
		{service: "20.20.20.1:80/tcp" + two, out: true, resets: true},
		{service: "20.20.20.1:80/tcp endpoints=10.0.0.1:80", resets: true},
		{service: "20.20.20.1:80/tcp mode=fullnat select=lc" + two, out: true, resets: true},
		{service: "20.20.20.1:80/tcp select=hash" + two, out: true},
		{service: "20.20.20.1:80/tcp select=persist" + two, out: true},
		{service: "20.20.20.1:80/tcp select=hash outlier=on" + two, out: true, resets: true},
		{service: "20.20.20.1:80/tcp outlier=off" + two, resets: true},
		{service: "20.20.20.1:80/tcp mode=dsr select=hash" + two},
		{service: "20.20.20.1:80-90/tcp" + two, resets: true},
		{service: "20.20.20.1:80/udp" + two, resets: true},
		{service: "20.20.20.1:80/udp outlier=on" + two, err: `outlier "on" is set, but handshakes of udp are not counted (allowed: auto or off)`},
		{service: "20.20.20.1:80/tcp mode=dsr outlier=on" + two, err: "answers are not seen in mode dsr"},
		{service: "20.20.20.1:80-90/tcp outlier=on" + two, err: "a range includes ports without a listener"},
		{service: "20.20.20.1:80/tcp outlier=maybe" + two, err: "auto, on or off"},
	} {
		s, err := ParseService(c.service)
		if err == nil {
			err = s.Validate()
		}
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.service, err, c.err)
			}
			continue
		}
		if err != nil || s.EjectsOutliers() != c.out || s.ConsidersResets() != c.resets {
			t.Errorf("%s: %t, resets %t, %v", c.service, s.EjectsOutliers(), s.ConsidersResets(), err)
		}
	}
}
