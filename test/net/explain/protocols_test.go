package explain_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
)

// TestProxyAndFTP checks that explain reports the header of the PROXY protocol, without a warning
// about packets that the client never sends, and the endpoint of an FTP data connection. The query
// does not use up the announcement of the control connection.
func TestProxyAndFTP(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.Loxicmd("create lb %s --tcp=80:5001 --ppv2en --endpoints=31.31.31.1:1", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=80:5001 --ppv2en --endpoints=[2001:db8:31::1]:1", rig.VIP6)
	r.Loxicmd("create lb %s --tcp=21:2121 --helper=ftp --endpoints=31.31.31.1:1,32.32.32.1:1", rig.VIP4)
	for question, length := range map[string]int{
		"from=100.100.100.1&to=20.20.20.1:80": 28, "from=2001:db8:100::1&to=[2001:db8:20::1]:80": 52,
	} {
		shows := []string{fmt.Sprintf("ok header a PROXY protocol header of %d bytes", length), fmt.Sprintf("MTU %d", 1500-length)}
		awaitExplanation(t, r, example{"PROXY protocol", question, shows}, func() {})
		if text := allText(explainOnce(t, r, question)); strings.Contains(text, "do not fit") {
			t.Errorf("explain %s warns about packets that the client does not send:\n%s", question, text)
		}
	}
	rig.MustRun(t, r.LB, "ip", "link", "set", "ep1", "mtu", "1400")
	awaitExplanation(t, r, example{"PROXY protocol, a small MTU", "from=100.100.100.1&to=20.20.20.1:80", []string{
		"warning mtu packets over 1400 bytes do not fit there",
	}}, func() {})
	serveAnnouncing(t, r)
	c := r.Dial(rig.Join(rig.VIP4, 21))
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "229 ") {
		t.Fatalf("got %q, %v, want a reply to EPSV", line, err)
	}
	at := strings.TrimSuffix(explainOnce(t, r, fmt.Sprintf("from=%s&to=20.20.20.1:21", c.LocalAddr())).Endpoint, ":2121")
	for range 2 {
		text := allText(explainOnce(t, r, "from=100.100.100.1&to=20.20.20.1:30000"))
		for _, want := range []string{
			fmt.Sprintf("ok endpoint %s:2121: it has the client's control connection of FTP", at),
			fmt.Sprintf("it opens a connection, to %s:30000", at),
		} {
			if !strings.Contains(text, want) {
				t.Errorf("explain of a data connection does not show %q:\n%s", want, text)
			}
		}
	}
	_ = r.Dial(rig.Join(rig.VIP4, 30000)).Close()
}

// serveAnnouncing starts FTP servers that announce port 30000 on each control connection, and
// servers of data connections.
func serveAnnouncing(t *testing.T, r *rig.Rig) {
	t.Helper()
	for _, h := range r.Endpoints[:2] {
		for _, port := range []string{":2121", ":30000"} {
			l, err := h.Listen("tcp", port)
			if err != nil {
				t.Fatal(err)
			}
			r.Lab.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if port == ":2121" {
						_, _ = fmt.Fprint(c, "229 ok (|||30000|)\r\n")
					}
					r.Lab.Cleanup(func() { _ = c.Close() })
				}
			}()
		}
	}
}

// explainOnce sends a query once.
func explainOnce(t *testing.T, r *rig.Rig, question string) *v1.Explanation {
	t.Helper()
	a, err := ask(r.LB.HTTPClient(rig.Patience), question)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}
