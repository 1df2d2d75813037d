package balancer

import (
	"net/http"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	lbbgp "loxilb/internal/lb/bgp"
)

// TestBGP checks that balancers get a BGP speaker and neighbors.
func TestBGP(t *testing.T) {
	t.Parallel()
	r := newRemote(t, func(o *httpapi.Options) { o.BGP = func() []lbbgp.Session { return nil } }, plain)
	peer, err := ParsePeer("192.0.2.1:65001")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, Options{BGP: BGP{AS: 65000, Port: 179, MultiHop: true, Peers: []Peer{peer}}}, Access{}, r)
	for range 2 { // the second time they exist
		if err := f.round(t); err != nil {
			t.Fatal(err)
		}
		f.members[r.URL].synced = false
	}
	if got := r.Call("GET", httpapi.BaseURL+"/config/bgp/neigh/all", "").Body.String(); !strings.Contains(got, `"192.0.2.1"`) || !strings.Contains(got, "65001") {
		t.Errorf("neighbors are %s", got)
	}
}

// TestBGPOfAdministrator checks that a balancer which answers again keeps settings that its
// administrator has added to the controller's BGP configuration: a change would restart sessions.
func TestBGPOfAdministrator(t *testing.T) {
	t.Parallel()
	r := newRemote(t, func(o *httpapi.Options) { o.BGP = func() []lbbgp.Session { return nil } }, plain)
	peer, err := ParsePeer("192.0.2.1:65001")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, Options{BGP: BGP{AS: 65000, Port: 179, Peers: []Peer{peer}}}, Access{}, r)
	round := func() {
		t.Helper()
		f.members[r.URL].synced = false
		if err := f.round(t); err != nil {
			t.Fatal(err)
		}
	}
	round()
	for path, body := range map[string]string{
		"global": `{"localAs":65000,"routerId":"127.0.0.1","listenPort":179,"gracefulRestart":"120s"}`,
		"neigh":  `{"ipAddress":"192.0.2.1","remoteAs":65001,"password":"secret","bfd":{"interval":"100ms"}}`,
	} {
		if w := r.Call("POST", httpapi.BaseURL+"/config/bgp/"+path, body); w.Code != http.StatusOK {
			t.Fatalf("%s: %s", path, w.Body)
		}
	}
	read := func() string {
		return r.Call("GET", httpapi.BaseURL+"/config/bgp/neigh/all", "").Body.String() + r.Call("GET", httpapi.BaseURL+"/config/bgp/global/all", "").Body.String()
	}
	before := read()
	round()
	if after := read(); after != before || !strings.Contains(after, "100ms") || !strings.Contains(after, "120s") {
		t.Errorf("before the balancer has answered again:\n%s\nafterwards:\n%s", before, after)
	}
}
