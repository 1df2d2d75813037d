package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/internal/host/build"
	"loxilb/test/clitest"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	const post = "POST /netlox/v1/config/loadbalancer "
	const del = "DELETE /netlox/v1/config/loadbalancer/"
	const ep = "POST /netlox/v1/config/endpoint"
	const rest = `"egress":false,"externalIP":"20.20.20.1","inactiveTimeOut":0,"managed":false,"mode":0,"monitor":false,"name":"","port":`
	const tail = `,"proxyprotocolv2":false,"security":0,"sel":0}`
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:2", []string{
			post + `{"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1},{"endpointIP":"32.32.32.1","targetPort":5001,"weight":2}],` +
				`"serviceArguments":{"bgp":false,"block":0,` + rest + `2020,"protocol":"tcp"` + tail + `}`,
		}},
		{"create lb 20.20.20.1 --tcp=80:8080,443:8443 --udp 53:5353 --endpoints 10.0.0.1:0 --endpoints 10.0.0.2:9090:65535", []string{
			post + `{"lbAttr":[` +
				`{"endpoints":[{"endpointIP":"10.0.0.1","targetPort":8080,"weight":0},{"endpointIP":"10.0.0.2","targetPort":9090,"weight":65535}],` +
				`"serviceArguments":{"bgp":false,"block":0,` +
				rest + `80,"protocol":"tcp"` + tail + `},` +
				`{"endpoints":[{"endpointIP":"10.0.0.1","targetPort":8443,"weight":0},{"endpointIP":"10.0.0.2","targetPort":9090,"weight":65535}],` +
				`"serviceArguments":{"bgp":false,"block":0,` +
				rest + `443,"protocol":"tcp"` + tail + `},` +
				`{"endpoints":[{"endpointIP":"10.0.0.1","targetPort":5353,"weight":0},{"endpointIP":"10.0.0.2","targetPort":9090,"weight":65535}],` +
				`"serviceArguments":{"bgp":false,"block":0,` +
				rest + `53,"protocol":"udp"` + tail + `}]}`,
		}},
		{"create lb 2001:db8::1 --sctp=80:8080 --endpoints=[2001:db8::2]:1 --mode=fullnat --select=persist --bgp --monitor --mark=7 --inatimeout=60 --name=web " +
			"--attachEP --security=e2etls --host=h --ppv2en --egress --secips=1.1.1.1 --sources=10.0.0.0/8", []string{
			post + `{"allowedSources":[{"prefix":"10.0.0.0/8"}],"endpoints":[{"endpointIP":"2001:db8::2","targetPort":8080,"weight":1}],"secondaryIPs":[{"secondaryIP":"1.1.1.1"}],` +
				`"serviceArguments":{"bgp":true,"block":7,"egress":true,"externalIP":"2001:db8::1","host":"h","inactiveTimeOut":60,"managed":false,"mode":2,` +
				`"monitor":true,"name":"web","oper":1,"port":80,"protocol":"sctp","proxyprotocolv2":true,"security":2,"sel":3}}`,
		}},
		{"create lb 20.20.20.1 --icmp --endpoints=10.0.0.1:1 --detachEP", []string{
			post + `{"endpoints":[{"endpointIP":"10.0.0.1","targetPort":0,"weight":1}],"serviceArguments":{"bgp":false,"block":0,` +
				strings.Replace(rest, `"port"`, `"oper":2,"port"`, 1) + `0,"protocol":"icmp"` + tail + `}`,
		}},
		{"delete lb 20.20.20.1 --tcp=2020", []string{del + "hosturl/any/externalipaddress/20.20.20.1/port/2020/protocol/tcp?bgp=false&block=0"}},
		{"delete lb 2001:db8::1 --udp=53 --tcp=80-90 --mark=7 --bgp --host=h", []string{
			strings.TrimSuffix(del, "/") + `?bgp=true {"lbAttr":[{"block":7,"externalIP":"2001:db8::1","host":"h","port":80,"portMax":90,"protocol":"tcp"},` +
				`{"block":7,"externalIP":"2001:db8::1","host":"h","port":53,"protocol":"udp"}]}`,
		}},
		{"delete lb 20.20.20.1 20.20.20.2 --tcp=80,443 --icmp", []string{
			strings.TrimSuffix(del, "/") + `?bgp=false {"lbAttr":[` +
				`{"externalIP":"20.20.20.1","host":"any","port":80,"protocol":"tcp"},{"externalIP":"20.20.20.1","host":"any","port":443,"protocol":"tcp"},` +
				`{"externalIP":"20.20.20.1","host":"any","port":0,"protocol":"icmp"},` +
				`{"externalIP":"20.20.20.2","host":"any","port":80,"protocol":"tcp"},{"externalIP":"20.20.20.2","host":"any","port":443,"protocol":"tcp"},` +
				`{"externalIP":"20.20.20.2","host":"any","port":0,"protocol":"icmp"}]}`,
		}},
		{"delete lb 20.20.20.1 --tcp=80-90 --mark=0x7", []string{del + "hosturl/any/externalipaddress/20.20.20.1/port/80/portmax/90/protocol/tcp?bgp=false&block=7"}},
		{"delete lb --name=web", []string{del + "name/web"}},
		{"delete lb 20.20.20.1 --name=web", []string{del + "name/web"}},
		{
			"create endpoint 31.31.31.1",
			[]string{ep +
				` {"avgDelay":"","currState":"","hostName":"31.31.31.1","inactiveReTries":0,"maxDelay":"","minDelay":"","probeDuration":0,"probePort":0,` +
				`"probeReq":"","probeResp":"","probeType":"ping"}`},
		},
		{"create ep 31.31.31.1 --desc=31.31.31.1_tcp_80 --probetype=http --probeport=80 --probereq=/x --proberesp=ok --period=60 --retries=2 --probe-statuses=200,204", []string{
			ep + ` {"avgDelay":"","currState":"","hostName":"31.31.31.1","inactiveReTries":2,"maxDelay":"","minDelay":"","name":"31.31.31.1_tcp_80","probeDuration":60,"probePort":80,` +
				`"probeReq":"/x","probeResp":"ok","probeStatuses":["200","204"],"probeType":"http"}`,
		}},
		{"create Endpoint 2001:db8::1 --name=n --probe-interval=500ms --probe-retries=7", []string{
			ep +
				` {"avgDelay":"","currState":"","hostName":"2001:db8::1","inactiveReTries":7,"maxDelay":"","minDelay":"","name":"n","probeDuration":0,` +
				`"probeInterval":"500ms","probePort":0,"probeReq":"","probeResp":"","probeType":"ping"}`,
		}},
		{"delete endpoint 31.31.31.1", []string{"DELETE /netlox/v1/config/endpoint/epipaddress/31.31.31.1?probe_port=0&probe_type=ping"}},
		{"delete ep 31.31.31.1 --name=n --probetype=tcp --probeport=80", []string{"DELETE /netlox/v1/config/endpoint/epipaddress/31.31.31.1?name=n&probe_port=80&probe_type=tcp"}},
	} {
		s := clitest.NewServer(t, 200, clitest.Success)
		got := clitest.Run(t, "", s.Args(tc.args)...)
		if want := (clitest.Result{Stdout: "success\n"}); got != want {
			t.Errorf("%s: got %+v, want %+v", tc.args, got, want)
		}
		if diff := cmp.Diff(tc.want, s.Requests); diff != "" {
			t.Errorf("%s: requests differ (-want +got):\n%s", tc.args, diff)
		}
		if s.Auth != "s3cret" {
			t.Errorf("%s: the header Authorization is %q, want s3cret", tc.args, s.Auth)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, clitest.Success)
	for _, tc := range []struct{ args, message string }{
		{"create", "create needs an object (allowed: "},
		{"create wall", `create: unknown object "wall"`},
		{"create bfd", "its name, as in: loxicmd create bfd 10.0.0.2"},
		{"create bfd --interval=x 1.1.1.1", `--interval "x" is not a whole number`},
		{"create bgpnei 1.1.1.1", "missing argument ASN"},
		{"create bgpnei 1.1.1.1 AS65000", `ASN "AS65000" is not an AS number (allowed: 1 to 4294967295)`},
		{"set bgp", `required flag(s) "asn" not set`},
		{"get", "get needs an object (allowed: "},
		{"delete", "delete needs an object (allowed: "},
		{"list", `unknown command "list"`},
		{"apply", "no file given"},
		{"create lb", "missing argument: the VIP"},
		{"create lb 1.1.1.1 2.2.2.2", `unexpected argument "2.2.2.2"`},
		{"create lb 1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1", `VIP "1.1.1" is not an IP address`},
		{"create lb 1.1.1.1 --endpoints=2.2.2.2:1", "no port given"},
		{"create lb 1.1.1.1 --tcp=1:1", "--endpoints is missing"},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --backup=3.3.3.3:1@0", `--backup "3.3.3.3:1@0" has level 0, which --endpoints is for (allowed: 1 to 9)`},
		{"create lb 1.1.1.1 --tcp=1 --endpoints=2.2.2.2:1", "--tcp: "},
		{"create lb 1.1.1.1 --tcp=0:1 --endpoints=2.2.2.2:1", "is zero"},
		{"create lb 1.1.1.1 --tcp=1:70000 --endpoints=2.2.2.2:1", `"70000"`},
		{"create lb 1.1.1.1 --tcp=1:1,1:2 --endpoints=2.2.2.2:1", "repeats a service port"},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2", "has no weight"},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:65536", `weight "65536"`},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:-1", `weight "-1"`},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --select=fastest", `select "fastest" is not known (allowed: rr, hash, priority`},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --mode=nat", `mode "nat" is not known`},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --security=ssl", `--security "ssl" is unknown`},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --attachEP --detachEP", "attachEP detachEP"},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --mark=4294967296", `mark "4294967296" is not a mark`},
		{"create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 --colour=red", "unknown flag: --colour"},
		{"create endpoint", "missing argument: the address"},
		{"create endpoint 31.31.31", `endpoint address "31.31.31" is not an IP address`},
		{"create endpoint fe80::1%eth0", `endpoint address "fe80::1%eth0" has a zone`},
		{"create endpoint 1.1.1.1 --probetype=telnet", `--probetype "telnet" is not known (allowed: auto, tcp,`},
		{"create endpoint 1.1.1.1 --probeport=65536", `--probeport "65536" is out of range`},
		{"create endpoint 1.1.1.1 --probe-retries=1000000000", `--probe-retries "1000000000" is out of range`},
		{"create endpoint 1.1.1.1 --period=2 --probe-interval=3s", "period probe-interval"},
		{"delete endpoint 1.1.1", `endpoint address "1.1.1" is not an IP address`},
		{"delete endpoint 1.1.1.1 --probeport=x", `--probeport "x" is not a whole number`},
		{"delete lb", "no service selected"},
		{"delete lb 1.1.1.1", "no port given"},
		{"delete lb 1.1.1 --tcp=1", "is not an IP address"},
		{"delete lb 1.1.1.1 1.1.1 --tcp=1", `"1.1.1" is not an IP address`},
		{"delete lb 1.1.1.1 2.2.2.2 --name=x", "--name cannot be combined with"},
		{"delete lb 1.1.1.1 --tcp=x", `--tcp: port "x"`},
		{"delete lb 1.1.1.1 --tcp=1-x", `--tcp: port "x"`},
		{"delete lb 1.1.1.1 --tcp=1 --all", "--all cannot be combined with"},
		{"delete lb 1.1.1.1 --tcp=1 --name=x", "--name cannot be combined with"},
		{"get events -w --limit=3", "--limit cannot be combined with --watch"},
		{"get events --limit=-1", "--limit -1 is out of range (allowed: 0 or more)"},
		{"get ct --offset=-1", "--offset -1 is out of range (allowed: 0 or more)"},
		{"get ct --limit=-1", "--limit -1 is out of range (allowed: 0 or more)"},
		{"get ct web", `"web" is not an IP address or a network`},
		{"get ct 10.0.0.1 --source=10.0.0.2", "cannot be combined with --source"},
		{"get lb -l mode~dsr", `--selector: field "mode~dsr" is not known`},
		{"get lb --field-selector=nope=1", `--field-selector: field "nope" is not known`},
		{"get lb --sort-by=nope", `--sort-by: field "nope" is not known`},
		{"get lb --limit=-1", "--limit -1 is out of range (allowed: 0 or more)"},
		{"get lb --continue=x", `--continue "x" is not the end of a page`},
		{"get lb -w --limit=3", "--limit, --continue and --sort-by cannot be combined with --watch"},
		{"get lb -o jsonpath={.items[", "--output jsonpath: "},
		{"get lb -o custom-columns=NAME", `--output custom-columns: column "NAME" is not NAME:PATH`},
		{"get lb -o custom-columns-file=/nowhere", "--output custom-columns-file: open /nowhere"},
		{"create lb 1.1.1.1 -o name", `--output "name" is not known (allowed: wide, json and yaml)`},
		{"get ct -w --limit=3", "--limit, --offset and --state cannot be combined with --watch"},
		{"get ct -w --rate=0", "--rate 0 is out of range (allowed: 1 or more)"},
		{"drain endpoint 31.31.31.1 --rate=0", "--rate 0 is out of range (allowed: 1 or more)"},
		{"kill ct", "no connections selected: give flags that select some, or --all"},
		{"set endpoint 1.1.1.1 --weight=x", `--weight "x" is not a whole number`},
		{"set endpoint 1.1.1.1 --weight=99999999999999999999", `--weight "99999999999999999999" is out of range`},
		{"drain", "loxicmd drain needs an object (allowed: endpoint), as in: loxicmd drain endpoint 31.31.31.1:5001 --deadline=60s"},
		{
			"explain tcp 100.100.100.1:40000 20.20.20.1:80",
			`argument "tcp" is not allowed: give the packet by --from and --to, as in: loxicmd explain --from 100.100.100.1 --to 20.20.20.1:80`,
		},
		{"explain 20.20.20.1:80", `argument "20.20.20.1:80" is not allowed: give the packet by --from and --to`},
		{"describe", "describe needs an object (allowed: "},
		{"get lb -o xml", `--output "xml" is not known (allowed: wide, json, yaml, name`},
		{"get lb --protocol ftp", `--protocol "ftp" is unknown`},
		{"get lb --state=appliedd", `--state "appliedd" is not known; did you mean applied? (allowed: applied, pending, failed)`},
		{"get lb -l status.state!=done", `--selector: status.state "done" is not known (allowed: applied, pending, failed)`},
		{"get lb -l mode=onearn", `--selector: mode "onearn" is not known; did you mean onearm? (allowed: default, onearm, fullnat, dsr, hostonearm or auto)`},
		{"get ep --state=dwon", `--state "dwon" is not known; did you mean down?`},
		{"get status --kind=servce", `--kind "servce" is not a kind of object; did you mean service?`},
		{"get ct -l state=established", `--selector: conntrackState "established" is not known (allowed: sync-sent, sync-ack, est,`},
		{"get lbb", `loxicmd get: unknown object "lbb"; did you mean lb? (allowed: audit, bfd, bgp, bgpapply, bgpneighbor, bgppolicy, bgpset, cluster, clusternode, ct,`},
		{"get lb --slector=x", "unknown flag --slector of loxicmd get lb; did you mean --selector?"},
		{"get lb --nothing-alike=x", "unknown flag: --nothing-alike"},
		{"create lb 1.1.1.1 --tcp=1:1 --select=rrr --endpoints=1.1.1.2:1", `select "rrr" is not known; did you mean rr? (allowed: rr, hash, priority, persist, lc, n3, random or quic)`},
		{"stats --sort=byte", `--sort "byte" is not known; did you mean bytes?`},
		{"apply -f x --confirm=soon", `--confirm "soon" is not a duration such as 60s or 1m`},
		{"drain endpoint 31.31.31.1 --deadline=1.2.3", `--deadline "1.2.3" is not a duration`},
		{"get lb -t 0", "--timeout 0s is out of range"},
		{"get lb -p 65536", `--port "65536" is out of range`},
		{"get lb -p 0", "--port 0 is out of range"},
		{"get lb --protocol https --cacert /nowhere", "--cacert: open /nowhere"},
	} {
		args := strings.Fields(tc.args)
		if !strings.Contains(tc.args, " -p ") {
			args = s.Args(tc.args)
		}
		got := clitest.Run(t, "", args...)
		if got.Code != session.ExitUsage || got.Stdout != "" || !strings.Contains(got.Stderr, tc.message) {
			t.Errorf("%s: got %+v, want exit code %d and %q on stderr", tc.args, got, session.ExitUsage, tc.message)
		}
	}
	if len(s.Requests) > 0 {
		t.Errorf("wrong command lines made requests: %q", s.Requests)
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code          int
		body, message string
	}{
		{400, `{"code":400,"message":"endpoints[0].weight \"x\" is bad","result":"same","reason":"is bad"}`, `Error: weight "x" is bad`},
		{409, `{"code":409,"message":"conflict","result":"another owner has it"}`, `Error: conflict: another owner has it`},
		{500, `{"result":"internal"}`, `Error: internal`},
		{502, `<html>`, `Error: the server answered 502 Bad Gateway`},
		{503, ``, `Error: the server answered 503 Service Unavailable`},
		{200, `{"result":"Error: Only Hash Selection criteria allowed for DSR mode"}`, `Error: Error: Only Hash`},
	} {
		s := clitest.NewServer(t, tc.code, tc.body)
		got := clitest.Run(t, "", s.Args("create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1")...)
		if got.Code != session.ExitRefused || got.Stdout != "" || !strings.Contains(got.Stderr, tc.message) || strings.Count(got.Stderr, "\n") != 1 {
			t.Errorf("code %d with body %s: got %+v, want one line with %q on stderr", tc.code, tc.body, got, tc.message)
		}
	}
	for _, args := range []string{"get lb", "get ct", "get lbversion", "get lb -o json", "get ct -o yaml", "get lb -o json --servName=x", "get ep"} {
		s := clitest.NewServer(t, 200, "{[")
		if got := clitest.Run(t, "", s.Args(args)...); got.Code != session.ExitRefused || got.Stdout != "" || got.Stderr == "" {
			t.Errorf("%s, when the answer is not JSON: got %+v, want an error on stderr and no other output", args, got)
		}
	}
	// The existing loxilb may reply without a body.
	s := clitest.NewServer(t, 204, "")
	if got := clitest.Run(t, "", s.Args("delete lb --all")...); got != (clitest.Result{Stdout: "success\n"}) {
		t.Errorf("a reply without a body prints %+v, want success", got)
	}
	s = clitest.NewServer(t, 204, "")
	if got := clitest.Run(t, "", s.Args("delete lb --all -o json")...); got != (clitest.Result{Stdout: "{}\n"}) {
		t.Errorf("a reply without a body prints as JSON %+v, want {}", got)
	}
}

// TestUnchanged checks that creating an identical existing object is no failure.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	const body = `{"code":409,"message":"service 1.1.1.1:1/tcp exists already with the same content","result":"lbrule-exists error"}`
	s := clitest.NewServer(t, 409, body)
	if got := clitest.Run(t, "", s.Args("create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1")...); got != (clitest.Result{Stdout: "unchanged\n"}) {
		t.Errorf("got %+v, want unchanged on stdout", got)
	}
	got := clitest.Run(t, "", s.Args("create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1 -o json")...)
	if got.Code != session.ExitOK || got.Stderr != "" || !strings.Contains(got.Stdout, `"result": "lbrule-exists error"`) {
		t.Errorf("got %+v, want success and the server's answer as JSON", got)
	}
	if got := clitest.Run(t, "", s.Args("delete lb --all")...); got.Code != session.ExitRefused {
		t.Errorf("a refused delete gives %+v, want exit code %d", got, session.ExitRefused)
	}
	s = clitest.NewServer(t, 409, `{"code":409,"message":"firewall rule allow exists already with the same content","result":"fwrule-exists error"}`)
	if got := clitest.Run(t, "", s.Args("create fw --firewallRule=sourceIP:10.0.0.0/8 --allow")...); got != (clitest.Result{Stdout: "unchanged\n"}) {
		t.Errorf("creating the same firewall rule gives %+v, want unchanged", got)
	}
	s = clitest.NewServer(t, 409, strings.Replace(body, "same content", "same content, and is not applied yet: no memory", 1))
	if got := clitest.Run(t, "", s.Args("create lb 1.1.1.1 --tcp=1:1 --endpoints=2.2.2.2:1")...); got.Code != session.ExitRefused ||
		!strings.Contains(got.Stderr, "not applied yet: no memory") {
		t.Errorf("creating a service that is not applied yet gives %+v, want an error with the reason", got)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, clitest.Success)
	args := s.Args("get lb")
	s.Close()
	got := clitest.Run(t, "", args...)
	if got.Code != session.ExitUnreachable || !strings.Contains(got.Stderr, ": connect: connection refused") {
		t.Errorf("a closed port gives %+v, want exit code %d and: connection refused", got, session.ExitUnreachable)
	}
	got = clitest.Run(t, "", "get", "lb", "--socket", filepath.Join(t.TempDir(), "s"))
	if got.Code != session.ExitUnreachable || !strings.Contains(got.Stderr, ": connect: no such file") {
		t.Errorf("a missing socket gives %+v, want exit code %d and: no such file", got, session.ExitUnreachable)
	}
	stop := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(stop) })
	begin := time.Now()
	got = clitest.Run(t, "", (&clitest.Server{Server: slow}).Args("get lb -t 1")...)
	if got.Code != session.ExitUnreachable || !strings.Contains(got.Stderr, "did not answer within 1s") || time.Since(begin) > 9*time.Second {
		t.Errorf("a silent server gives %+v after %v, want exit code %d after 1 s", got, time.Since(begin), session.ExitUnreachable)
	}
	got = clitest.Run(t, "", (&clitest.Server{Server: slow}).Args("delete endpoint 10.0.0.1 -t 1")...)
	if got.Code != session.ExitUnreachable || !strings.Contains(got.Stderr, "did not answer within 1s, and a change that it has received may still be made") {
		t.Errorf("a change by a silent server gives %+v, want a sentence that it may still be made", got)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"version", "--version", "-v"} {
		if got := clitest.Run(t, "", word); got != (clitest.Result{Stdout: "loxicmd 1.2.3\n  commit       0123abc\n  Go           go1.26\n"}) {
			t.Errorf("%s: got %+v, want version, commit and Go's version", word, got)
		}
	}
	if got := clitest.Run(t, "", "version", "-o", "json"); got != (clitest.Result{Stdout: "{\n    \"version\": \"1.2.3\",\n    \"commit\": \"0123abc\",\n    \"go\": \"go1.26\"\n}\n"}) {
		t.Errorf("version -o json: got %+v, want version, commit and Go's version", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := clitest.Run(t, "", "completion", shell); got.Code != session.ExitOK || len(got.Stdout) < 1000 || got.Stderr != "" {
			t.Errorf("completion %s: got %+v, want a script of at least 1,000 bytes", shell, got)
		}
	}
}

// TestExamples checks that every help text has an example.
func TestExamples(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !strings.Contains(c.Example, "loxicmd ") {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root(session.Env{}))
}

// TestExamplesParse checks that every example parses as a command line of its own command.
func TestExamplesParse(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " && ")
			words := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune("<>|", r) })[0]))
			if len(words) < 2 || words[0] != "loxicmd" {
				continue
			}
			cmd, rest, err := cli.Root(session.Env{}).Find(words[1:])
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && !cmd.HasSubCommands() {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root(session.Env{}))
}

// TestManual checks that the manual page lists exactly the flags of the program.
func TestManual(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/man/loxicmd.1")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), `\-`, "-")
	known := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, fs := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			fs.VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root(session.Env{Build: build.Info{Version: "1.2.3"}}))
	written := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\.BI "(?:-\w, )?(--[^"]+)"`).FindAllStringSubmatch(text, -1) {
		written[m[1]] = true
	}
	if diff := cmp.Diff(known, written); diff != "" {
		t.Errorf("flags of the program (-) and of the manual (+):\n%s", diff)
	}
}

// TestOptions checks that one help page lists the global flags, and that the help of each command
// refers to it.
func TestOptions(t *testing.T) {
	t.Parallel()
	all := clitest.Run(t, "", "options").Stdout
	for _, flag := range []string{"--server", "--apiserver", "--timeout duration", "--output"} {
		if !strings.Contains(all, flag) {
			t.Errorf("%s is missing in %s", flag, all)
		}
	}
	for _, line := range []string{"get lb --help", "create lb --help", "get --help", "help apply"} {
		got := clitest.Run(t, "", strings.Fields(line)...)
		if got.Code != session.ExitOK || strings.Contains(got.Stdout, "--apiserver") || !strings.Contains(got.Stdout, `Use "loxicmd options"`) {
			t.Errorf("%s: got %+v, want a reference to loxicmd options instead of the global flags", line, got)
		}
	}
	if got := clitest.Run(t, "", "--help"); strings.Count(got.Stdout, "--apiserver") != 1 {
		t.Errorf("--help: got %+v, want --apiserver once", got)
	}
}

// TestCompletedWords checks that shells complete only values that this build supports.
func TestCompletedWords(t *testing.T) {
	t.Parallel()
	for line, absent := range map[string][]string{"create lb --mode=": {"fullproxy"}, "create lb --select=": {"n2"}} {
		got := clitest.Run(t, "", append([]string{"__complete"}, strings.Fields(line)...)...)
		if strings.Count(got.Stdout, "\n") < 5 {
			t.Errorf("%s: got %+v, want at least 5 lines", line, got)
		}
		for _, word := range absent {
			if strings.Contains("\n"+got.Stdout, "\n"+word) {
				t.Errorf("%s offers %s, which this build does not support", line, word)
			}
		}
	}
}

// TestDeleteAll checks that deleting all prints their number, and needs no confirmation in a
// script.
func TestDeleteAll(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"lbAttr":[{},{}],"fwAttr":[{}],"result":"Success"}`)
	for line, want := range map[string]string{
		"delete lb --all": "success: 2 services deleted\n", "delete lb --all --yes": "success: 2 services deleted\n",
		"delete fw --all": "success: 1 firewall rule deleted\n",
	} {
		if got := clitest.Run(t, "", s.Args(line)...); got != (clitest.Result{Stdout: want}) {
			t.Errorf("%s: got %+v, want %q on stdout", line, got, want)
		}
	}
	deletes := 0
	for _, r := range s.Requests {
		if strings.HasPrefix(r, "DELETE /netlox/v1/config/loadbalancer/all") || strings.HasPrefix(r, "DELETE /netlox/v1/config/firewall/all") {
			deletes++
		}
	}
	if deletes != 3 || len(s.Requests) != 6 {
		t.Errorf("got %q, want 3 deletions in 6 requests", s.Requests)
	}
}

// TestWeightLikeAPort checks that a weight that looks like a port is accepted, with a warning that
// shows how to write a port.
func TestWeightLikeAPort(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, clitest.Success)
	for endpoint, warning := range map[string]string{
		"10.0.0.1:9090":   "Warning: endpoint 10.0.0.1:9090 has weight 9090 and the port of --tcp or --udp: if 9090 is its port, write 10.0.0.1:9090:1\n",
		"2001:db8::1:257": "Warning: endpoint 2001:db8::1:257 has weight 257 and the port of --tcp or --udp: if 257 is its port, write [2001:db8::1]:257:1\n",
		"10.0.0.1:256":    "", "10.0.0.1:9090:9090": "",
	} {
		if got := clitest.Run(t, "", s.Args("create lb 20.20.20.1 --tcp=80:80 --endpoints="+endpoint)...); got != (clitest.Result{Stdout: "success\n", Stderr: warning}) {
			t.Errorf("%s: got %+v, want success with the warning %q", endpoint, got, warning)
		}
	}
}

// TestNoSuchService checks that get with the name of a missing service is an error, not an empty
// table.
func TestNoSuchService(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"matched":0,"seconds":5,"services":[],"time":"2020-01-02T03:04:05Z"}`)
	for _, line := range []string{"stats nosuch", "rate nosuch", "stats nosuch -o json"} {
		if got := clitest.Run(t, "", s.Args(line)...); got.Code != session.ExitRefused || got.Stdout != "" || !strings.Contains(got.Stderr, `service "nosuch" not found`) {
			t.Errorf("%s: got %+v, want exit code %d and: service not found", line, got, session.ExitRefused)
		}
	}
	if got := clitest.Run(t, "", s.Args("stats")...); got.Code != session.ExitOK {
		t.Errorf("stats without a name: got %+v, want success", got)
	}
}
