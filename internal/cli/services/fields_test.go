package services_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
	"loxilb/test/clitest"
)

// TestFieldFlags checks that each flag of a field sets the field's property, and that its help
// lists each word.
func TestFieldFlags(t *testing.T) {
	t.Parallel()
	values := map[string][]string{ // the flag's value, and the property in JSON
		"mode": {"fullnat", "2"}, "select": {"persist", "3"}, "secips": {"1.1.1.2,1.1.1.3", `[{"secondaryIP":"1.1.1.2"},{"secondaryIP":"1.1.1.3"}]`},
		"inatimeout": {"60", "60"}, "sources": {"10.0.0.0/8", `[{"prefix":"10.0.0.0/8"}]`}, "persist-timeout": {"7", "7"}, "persist-prefix": {"24", "24"},
		"snat": {"10.0.0.1,10.0.0.2", `["10.0.0.1","10.0.0.2"]`}, "refuse": {"drop", `"drop"`}, "tunnel": {"gue", `"gue"`}, "mss": {"1200", "1200"},
		"syn-protect": {"always", `"always"`}, "max-rate": {"1000", "1000"}, "max-connections": {"7", "7"},
		"client-rate": {"5", "5"}, "client-connections": {"6", "6"}, "client-prefix": {"24", "24"}, "deny": {"10.0.0.0/8,11.1.1.1", `["10.0.0.0/8","11.1.1.1/32"]`},
		"monitor": {"true", "true"}, "all-down": {"panic", `"panic"`}, "outlier": {"off", `"off"`}, "probetype": {"http", `"http"`}, "probeport": {"81",
			"81"}, "probereq": {"/x", `"/x"`},
		"proberesp": {"ok", `"ok"`}, "probe-interval": {"500ms", `"500ms"`}, "probe-wait": {"1s", `"1s"`}, "probe-retries": {"5", "5"}, "probe-rise": {"7", "7"},
		"probe-host": {"a.example", `"a.example"`}, "probe-statuses": {"200-299,404", `["200-299","404"]`}, "probe-ca": {"/ca", `"/ca"`},
		"probe-cert": {"/c", `"/c"`}, "probe-key": {"/k", `"/k"`},
		"on-remove": {"drain", `"drain"`}, "on-fail": {"reset", `"reset"`}, "drain-time": {"30", "30"}, "failover-below": {"50", "50"}, "quic": {
			"0,1:4:8f95f09245765f80256934e50c66207f", `["0","1:4:8f95f09245765f80256934e50c66207f"]`,
		}, "slow-start": {"30s", `"30s"`},
		"egress": {"true", "true"}, "ppv2en": {"true", "true"}, "helper": {"tftp", `"tftp"`}, "bgp": {"true", "true"}, "bgp-announce": {"always", `"always"`}, "bgp-med": {"50", "50"},
		"bgp-local-pref": {"200", "200"}, "bgp-communities": {"65000:100,no-export", `["65000:100","no-export"]`}, "bgp-prepend": {"3", "3"},
		"bgp-aggregate": {"1.1.1.0/24", `"1.1.1.0/24"`}, "name": {"a b", `"a b"`}, "mark": {"0x1f", "31"},
	}
	cmd, _, err := cli.Root(session.Env{}).Find([]string{"create", "lb"})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range append(lb.Fields(), lb.KeyFields()...) {
		if field.Flag == "" {
			continue
		}
		want, ok := values[field.Flag]
		if !ok {
			t.Errorf("--%s: this test needs a value for it", field.Flag)
			continue
		}
		s := clitest.NewServer(t, 200, clitest.Success)
		args := append(s.Args("create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1"), "--"+field.Flag+"="+want[0])
		if got := clitest.Run(t, "", args...); got.Code != session.ExitOK {
			t.Errorf("%v: got %+v, want exit code ExitOK", args, got)
			continue
		}
		_, body, _ := strings.Cut(s.Requests[0], "{")
		var request map[string]json.RawMessage
		if err := json.Unmarshal([]byte("{"+body), &request); err != nil {
			t.Fatal(err)
		}
		name, isArgument := strings.CutPrefix(field.Property, "serviceArguments.")
		if isArgument {
			if err := json.Unmarshal(request["serviceArguments"], &request); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(request[name]); got != want[1] {
			t.Errorf("%v: %s is %s, want %s", args, field.Property, got, want[1])
		}
		help := cmd.Flag(field.Flag).Usage
		for _, c := range field.Choices() {
			if !strings.Contains(help, c.Word) || c.Available && !strings.Contains(help, c.Word+" ("+c.Help+")") {
				t.Errorf("--%s: the help does not mention %s: %s", field.Flag, c.Word, help)
			}
		}
	}
	// A list can be split into several flags.
	s := clitest.NewServer(t, 200, clitest.Success)
	clitest.Run(t, "", s.Args("create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --snat=10.0.0.1 --snat=10.0.0.2,10.0.0.3 --egress --name=")...)
	if len(s.Requests) != 1 || !strings.Contains(s.Requests[0], `"snatIPs":["10.0.0.1","10.0.0.2","10.0.0.3"]`) || !strings.Contains(s.Requests[0], `"egress":true`) {
		t.Errorf("got %q, want 1 element, `\"snatIPs\":[\"10.0.0.1\",\"10.0.0.2\",\"10.0.0.3\"]` in s.Requests[0], "+
			"`\"egress\":true` in s.Requests[0]",
			s.Requests)
	}
}

// TestErrorsNameFlags checks that errors and warnings of the server name the flag that the user
// gave, or the property's name in help, and that errors of a flag's value name that flag.
func TestErrorsNameFlags(t *testing.T) {
	t.Parallel()
	const create = "create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1"
	refused := func(command, property, word string) {
		t.Helper()
		s := clitest.NewServer(t, 400, `{"code":400,"message":"`+property+` \"1\" is wrong","field":"`+property+`"}`)
		if got := clitest.Run(t, "", s.Args(command)...); got.Stderr != "Error: "+word+" \"1\" is wrong\n" {
			t.Errorf("%s: %s is called %q, want %s", command, property, got.Stderr, word)
		}
	}
	for _, f := range append(lb.Fields(), lb.KeyFields()...) {
		if word := "--" + f.Flag; f.Flag != "" {
			refused(create, f.Property, word)
			refused(create, "lbAttr[1]."+f.Property, word)
		}
	}
	for _, f := range lb.EndpointProbeFields() {
		if f.Flag != "" {
			refused("create ep 1.1.1.1", f.Property, "--"+f.Flag)
		}
	}
	for _, c := range [][3]string{
		{create, "serviceArguments.externalIP", "VIP"},
		{create, "serviceArguments.host", "--host"},
		{create, "endpoints[3].endpointIP", "endpoint address"},
		{create, "lbAttr[0].endpoints[3]", "endpoint"},
		{create, "unknown[3].property", "unknown[3].property"},
		{"create ep 1.1.1.1 --period=2s", "probeDuration", "--period"},
		{"create policy p --rate=1:1 --target=eth0:1", "peakInfoRate", "--rate"},
		{"create fw --firewallRule=preference:1 --snat=1.1.1.1", "toIP", "--snat"},
		{"create bgpneighbor 1.1.1.2 1", "bfd.interval", "--bfd"},
		{"create bgpneighbor 1.1.1.2 1", "multihopTTL", "--multihop-ttl"},
		{"set bgp --asn=1", "routerId", "--router-id"},
		{"set endpoint 1.1.1.1 --weight=1", "weight", "--weight"},
		{"create mirror m --mirrorInfo=type:span --targetObject=attachment:port", "port", "port"}, // not --port, of the server
	} {
		refused(c[0], c[1], c[2])
	}
	for args, want := range map[string]string{
		create + " --inatimeout=x":                                         `--inatimeout "x" is not a duration`,
		create + " --sources=1.1.1.0/24,x":                                 `--sources: source "x" is not a prefix`,
		create + " --endpoints=2.2.2.2:70000":                              `--endpoints: weight "70000" is out of range`,
		create + " --backup=3.3.3.3":                                       `--backup: endpoint "3.3.3.3" has no weight`,
		"create ep 1.1.1.1 --retries=101":                                  `--retries "101" is out of range`,
		"set bgp --asn=4294967296":                                         `--asn "4294967296" is not an AS number`,
		"create mirror m --mirrorInfo=type --targetObject=attachment:port": `--mirrorInfo "type" is not KEY:VALUE (allowed keys: port, `,
		"create policy p --rate=1:1 --target=a:9":                          `--target: attachment "9" is nothing to attach to`,
	} {
		if got := clitest.Run(t, "", strings.Fields(args)...); got.Code != session.ExitUsage || !strings.HasPrefix(got.Stderr, "Error: "+want) {
			t.Errorf("%s: got %+v, want exit code ExitUsage, Error: %s", args, got, want)
		}
	}
	warned := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 loxilb "serviceArguments.bgpMed has no effect"`)
		_, _ = io.WriteString(w, clitest.Success)
	}))
	t.Cleanup(warned.Close)
	args := append(strings.Fields(create), "--server", warned.URL)
	if got := clitest.Run(t, "", args...); got.Stderr != "Warning: --bgp-med has no effect\n" {
		t.Errorf("got %+v, want a warning about --bgp-med", got)
	}
}
