package api_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestUserService checks that users can log in and do what their roles allow, and that tokens stay
// valid after a daemon was killed. Root needs no token over the socket or loopback.
func TestUserService(t *testing.T) {
	t.Parallel()
	h, d := newDaemon(t, labtest.New(t), "lb", "--userservice")
	const url = "http://127.0.0.1:11111/netlox/v1"
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("correct-horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asRoot := func(args ...string) (string, error) {
		return d.Command(append(args, "--socket="+filepath.Join(d.Dir(), "loxilb.sock"))...)
	}
	tokens := map[string]string{}
	for _, role := range []string{"view", "operate"} {
		if out, err := asRoot("create", "user", role, "--role="+role, "--password-file="+password); err != nil {
			t.Fatal(out, err)
		}
		out, err := h.Run(strings.Fields("curl -s " + url + `/auth/login -d {"username":"` + role + `","password":"correct-horse"} -H Content-Type:application/json`)...)
		var given struct{ Token string }
		if err != nil || json.Unmarshal([]byte(out), &given) != nil || given.Token == "" {
			t.Fatalf("login of %s: %s %v", role, out, err)
		}
		tokens[role] = given.Token
	}
	check := func(when string) {
		t.Helper()
		for line, want := range map[string]string{
			printCode + url + "/version": "401",
			printCode + "-H Authorization:" + tokens["view"] + " " + url + "/version":                                     "200",
			printCode + "-H Authorization:" + tokens["view"] + " " + url + "/explain?from=127.0.0.1&to=20.20.20.1:80":     "200",
			printCode + url + "/explain?from=127.0.0.1&to=20.20.20.1:80":                                                  "401",
			printCode + "-H Authorization:" + tokens["operate"] + " " + url + "/status/trace":                             "403",
			printCode + "-H Authorization:" + tokens["view"] + " -X DELETE " + url + "/config/loadbalancer/all":           "403",
			printCode + "-H Authorization:" + tokens["operate"] + " -X DELETE " + url + "/config/loadbalancer/all":        "200",
			printCode + "-H Authorization:" + tokens["operate"] + " " + url + "/audit":                                    "403",
			asNobody + printCode + "-H Authorization:" + tokens["operate"] + " " + url + "/config/loadbalancer/all":       "200",
			printCode + url + `/auth/login -H Content-Type:application/json -d {"username":"view","password":"guessing"}`: "401",
		} {
			if out, err := h.Run(strings.Fields(line)...); out != want {
				t.Errorf("%s, %s: %q %v, want %s", when, line, out, err, want)
			}
		}
	}
	check("at first")
	d.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
	defer cancel()
	if err := d.Start(ctx); err != nil {
		t.Fatal(err)
	}
	check("after a kill")
	out, err := asRoot("get", "audit", "-o", "json")
	if err != nil || strings.Count(out, `"/netlox/v1/auth/users"`) != 2 || strings.Count(out, `needs the role operate`) != 2 || strings.Contains(out, "correct-horse") {
		t.Errorf("the audit log: %s %v", out, err)
	}
}

// TestLogs checks that the API returns the daemon's log, and changes its level while it runs.
func TestLogs(t *testing.T) {
	t.Parallel()
	_, d := newDaemon(t, labtest.New(t), "lb")
	for _, line := range []string{"set log-level debug", "set log-level error"} {
		if out, err := d.Command(strings.Fields(line)...); err != nil {
			t.Fatal(line, out, err)
		}
	}
	out, err := d.Command("get", "log-level", "-o", "json")
	if err != nil || !strings.Contains(out, `"logLevel": "error"`) {
		t.Errorf("got %s %v, want no error, `\"logLevel\": \"error\"` in out", out, err)
	}
	if log := d.Log(); !strings.Contains(log, "before=info now=debug") || strings.Contains(log, "before=debug now=error") {
		t.Errorf("the log lacks the change of the level, or has lines below the level:\n%s", log)
	}
}
