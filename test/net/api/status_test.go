package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestStatusAndEvents checks that the status and the stream of events show changes of a service.
func TestStatusAndEvents(t *testing.T) {
	t.Parallel()
	h, d := newDaemon(t, labtest.New(t), "lb")
	loxicmd := func(args ...string) string {
		t.Helper()
		out, err := d.Command(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const service = "service 20.20.20.1:80/tcp"
	watch, err := h.Start(netnstest.Command{Args: []string{
		rig.Program("loxicmd"), "get", "events", "-w", "--kind=object", "--object=" + service,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	// The start of the stream is not visible: repeat a change until its event arrives.
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		loxicmd("create", "lb", "20.20.20.1", "--tcp=80:80", "--endpoints=10.0.0.1:1")
		loxicmd("delete", "lb", "20.20.20.1", "--tcp=80")
		if out := watch.Output(); !strings.Contains(out, service+" applied\n") || !strings.Contains(out, service+" removed\n") {
			return errors.New("events so far: " + out)
		}
		return nil
	})
	loxicmd("create", "lb", "20.20.20.1", "--tcp=81:80", "--endpoints=10.0.0.1:1", "--name=web")
	for line, words := range map[string]string{
		"get lb -o wide":                                 "| applied |",
		"describe lb web":                                "service 20.20.20.1:81/tcp applied",
		"describe lb 20.20.20.1:81/tcp":                  "Status:            applied",
		"get status web":                                 "| applied |",
		"get events --kind=object":                       service + " removed",
		"get events --object=x -o json":                  `"eventAttr": []`,
		"get ct --service=20.20.20.1:81/tcp --state=est": "SERVICE NAME",
	} {
		if out := loxicmd(strings.Fields(line)...); !strings.Contains(out, words) {
			t.Errorf("%s: %s, want %q", line, out, words)
		}
	}
	resp, err := h.HTTPClient(rig.Patience).Get("http://127.0.0.1:11111/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got %v, want code 200", resp.Status)
	}
}
