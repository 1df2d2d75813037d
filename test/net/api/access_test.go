package api_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// newDaemon starts a daemon in a namespace that only has the loopback interface.
func newDaemon(t *testing.T, lab *netnstest.Lab, name string, args ...string) (*netnstest.Host, *netnstest.Daemon) {
	t.Helper()
	h, err := lab.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
	defer cancel()
	d, err := h.StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin(), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s's log:\n%s", name, d.Log())
		}
	})
	return h, d
}

// startElsewhere starts a daemon whose API socket is not in the directory that newDaemon uses.
func startElsewhere(t *testing.T, lab *netnstest.Lab, name string, args ...string) (*netnstest.Host, *netnstest.Process) {
	t.Helper()
	h, err := lab.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := h.Start(netnstest.Command{Args: append([]string{
		rig.Program("loxilb"), "--state-dir=" + filepath.Join(t.TempDir(), "state"), "--pin-path=" + netnstest.PinPath(h.Namespace),
	}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	lab.Cleanup(func() {
		p.Stop()
		_ = netnstest.RemoveDaemonFiles(h.Namespace)
	})
	return h, p
}

const (
	versionURL = "http://127.0.0.1:11111/netlox/v1/version"
	asNobody   = "runuser -u nobody -- "
	printCode  = "curl -s -o /dev/null -w %{http_code} "
)

// spoof is a service that redirects root's DNS queries to an endpoint of the attacker.
const spoof = `{"serviceArguments":{"externalIP":"8.8.8.8","port":53,"protocol":"udp"},"endpoints":[{"endpointIP":"10.0.0.1","targetPort":53,"weight":1}]}`

// TestAPIUsers checks that only root can see and change services, whatever other users try.
//
// P17 Only root, and users that root has named, can see or change services
func TestAPIUsers(t *testing.T) {
	t.Parallel()
	lab := labtest.New(t)
	h, d := newDaemon(t, lab, "lb", "--api-users=4711,@4712")
	socket := filepath.Join(d.Dir(), "loxilb.sock")
	for line, want := range map[string]string{
		printCode + versionURL:            "200",
		asNobody + printCode + versionURL: "403",
		asNobody + printCode + "-X DELETE http://127.0.0.1:11111/netlox/v1/config/loadbalancer/all": "403",
		asNobody + printCode + "http://127.0.0.1:11111/metrics":                                     "403",
		asNobody + "unshare -Ur " + printCode + versionURL:                                          "403", // root in a namespace of its own
		"unshare -Ur " + printCode + versionURL:                                                     "200", // root of the machine, in a namespace of its own
		asNobody + printCode + "http://127.0.0.1:11111/healthz":                                     "200",
		asNobody + printCode + "http://127.0.0.1:11111/readyz":                                      "200",
		"setpriv --reuid=4711 --regid=4713 --clear-groups " + printCode + versionURL:                "200",
		printCode + "--unix-socket " + socket + " " + versionURL:                                    "200",
	} {
		out, err := h.Run(strings.Fields(line)...)
		if out != want {
			t.Errorf("%s: %q %v, want %s", line, out, err, want)
		}
	}
	if out, err := h.Run(strings.Fields(asNobody + printCode + "--unix-socket " + socket + " " + versionURL)...); err == nil {
		t.Errorf("the user nobody can open the socket: %s", out)
	}
	out, err := h.Run(append(strings.Fields(asNobody+"curl -s -H Content-Type:application/json "+
		"http://127.0.0.1:11111/netlox/v1/config/loadbalancer -d"), spoof)...)
	if err != nil || !strings.Contains(out, "user nobody (65534) may not use the API") || !strings.Contains(out, "--api-users=nobody") {
		t.Errorf("POST by the user nobody: %s %v", out, err)
	}
	if out, err := d.Command("get", "lb", "-o", "json"); err != nil || strings.Contains(out, "8.8.8.8") {
		t.Errorf("services: %s %v", out, err)
	}
}

// TestAPIUsersIPv6 is TestAPIUsers over IPv6.
//
// P17
func TestAPIUsersIPv6(t *testing.T) {
	t.Parallel()
	h, _ := startElsewhere(t, labtest.New(t), "lb", "--host=::1", "--socket=")
	const url = "http://[::1]:11111/netlox/v1/version"
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		_, err := h.Run("curl", "-sf", url)
		return err
	})
	for line, want := range map[string]string{printCode + url: "200", asNobody + printCode + url: "403"} {
		if out, err := h.Run(strings.Fields(line)...); out != want {
			t.Errorf("%s: %q %v, want %s", line, out, err, want)
		}
	}
}

// TestAPIInsecure checks that with --insecure every user of the machine can use the port.
func TestAPIInsecure(t *testing.T) {
	t.Parallel()
	h, _ := newDaemon(t, labtest.New(t), "lb", "--insecure")
	if out, err := h.Run(strings.Fields(asNobody + printCode + versionURL)...); out != "200" {
		t.Errorf(`got %q %v, want out == "200"`, out, err)
	}
}

// TestSocketOfNamespace checks that two daemons in two namespaces have a socket each, and that
// loxicmd finds the socket of its own namespace.
func TestSocketOfNamespace(t *testing.T) {
	t.Parallel()
	lab := labtest.New(t)
	sockets := map[string]bool{}
	for _, name := range []string{"one", "two"} {
		h, d := startElsewhere(t, lab, name, "--port=7001")
		loxicmd := func(line string) (string, error) {
			return h.Run(append([]string{rig.Program("loxicmd")}, strings.Fields(line)...)...)
		}
		labtest.Eventually(t, 30*time.Second, func(context.Context) error {
			_, err := loxicmd("get lb")
			return err
		})
		if _, err := loxicmd("create lb 20.20.20.1 --tcp=80:80 --endpoints=10.0.0.1:1 --name=" + name); err != nil {
			t.Fatal(err)
		}
		out, err := loxicmd("get lbversion -o json")
		var v struct{ Namespace string }
		if err != nil || json.Unmarshal([]byte(out), &v) != nil || !strings.HasSuffix(v.Namespace, " ("+h.Namespace+")") {
			t.Errorf("%s: got %s %v, want JSON with the namespace %s", name, out, err, h.Namespace)
		}
		if !strings.Contains(d.Output(), h.Namespace) {
			t.Errorf("the log of %s does not contain its namespace", name)
		}
		cookie, _, _ := strings.Cut(v.Namespace, " ")
		sockets[filepath.Join("/run/loxilb", cookie+".sock")] = true
		for other := range sockets {
			if _, err := os.Stat(other); err != nil {
				t.Error(err)
			}
		}
		if out, err := loxicmd("get lb -o json"); err != nil || strings.Count(out, `"name"`) != 1 || !strings.Contains(out, `"`+name+`"`) {
			t.Errorf("%s has %s %v", name, out, err)
		}
	}
	if len(sockets) != 2 {
		t.Errorf("sockets %v", sockets)
	}
	none, err := lab.Host("none") // no daemon: the daemon of another namespace must not answer
	if err != nil {
		t.Fatal(err)
	}
	if out, err := none.Run(rig.Program("loxicmd"), "get", "lb"); err == nil || !strings.Contains(out, "cannot reach the server at 127.0.0.1:11111") ||
		!strings.Contains(out, "nor the socket of this network namespace, /run/loxilb/netns-") {
		t.Errorf("in a namespace without a daemon: %s %v", out, err)
	}
}

// TestOrphanSocket checks that a start of any daemon, in any namespace, removes the sockets of
// killed daemons, and keeps those of running ones.
func TestOrphanSocket(t *testing.T) {
	t.Parallel()
	lab := labtest.New(t)
	_, dead := newDaemon(t, lab, "dead", "--socket=auto")
	_, alive := newDaemon(t, lab, "alive", "--socket=auto")
	socket := func(d *netnstest.Daemon) string {
		out, err := d.Command("get", "lbversion", "-o", "json")
		var v struct{ Namespace string }
		if err != nil || json.Unmarshal([]byte(out), &v) != nil {
			t.Fatalf("got %v %v, want no error, JSON in out", out, err)
		}
		cookie, _, _ := strings.Cut(v.Namespace, " ")
		return filepath.Join("/run/loxilb", cookie+".sock")
	}
	left, used := socket(dead), socket(alive)
	dead.Kill()
	if _, err := os.Stat(left); err != nil {
		t.Fatal("a killed daemon left no socket:", err)
	}
	newDaemon(t, lab, "third", "--socket=auto")
	if _, err := os.Stat(left); err == nil {
		t.Error("the socket of the killed daemon still exists")
	}
	if _, err := os.Stat(used); err != nil {
		t.Error(err)
	}
}

// TestLoxicmdAsNobody checks the error of loxicmd for a user who must not use the API.
func TestLoxicmdAsNobody(t *testing.T) {
	t.Parallel()
	h, _ := newDaemon(t, labtest.New(t), "lb", "--socket=auto")
	out, err := h.Run(append(strings.Fields(asNobody), rig.Program("loxicmd"), "get", "lb")...)
	if err == nil || !strings.Contains(out, "user nobody (65534) may not use the API") {
		t.Errorf(`got %s %v, want an error, "user nobody (65534) may not use the API" in out`, out, err)
	}
}
