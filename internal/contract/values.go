package contract

import "slices"

// Value is a property of an operation's body whose state differs from the operation's.
type Value struct {
	Property string // as JSON, with the value that requests it
	State    State
	Note     string // if Unsupported, the alternative in the 501 answer
}

// Values returns the values of services and their endpoints.
func Values() []Section[Value] { return slices.Concat(serviceValues(), probeValues()) }

// AllValues returns the values of all sections.
func AllValues() []Value { return allRows(Values()) }

func serviceValues() []Section[Value] {
	const (
		noNGAP = "loxilb does not read NGAP messages; balance their associations with --sctp --select=persist"
		noTLS  = "loxilb does not terminate TLS; let the endpoints do it"
	)
	return []Section[Value]{
		{"Bodies of any POST or PUT", []Value{
			{`"novelty":1`, Differs, "an unknown property is refused unless it is empty. With --compat it is ignored, with a header Warning and a log line, in files and in POST (bodies up to 1 MiB) of services, endpoints, endpointhoststate, cistate, policies, mirrors, cors, network objects and opts of firewall rules. Other requests, and ruleArguments of firewall rules, always refuse it"},
			{`{"name":"a","name":"b"}`, Differs, "a property that is given twice is refused (in bodies up to 1 MiB), instead of taking the last value"},
		}},
		{"serviceArguments of POST /config/loadbalancer", []Value{
			{`"protocol":"sctp"`, Better, "also IPv6 and NAT64; verification tags are checked, CRC32c is adjusted, and associations outlive changes of their service; secondaryIPs also over IPv6, from any address of the client; not in mode dsr"},
			{`"mode":4`, Unsupported, "let HAProxy or Envoy listen at the endpoints of a service of mode default"},
			{`"mode":6`, Ours, "auto: endpoints of this node see the client, others an address of this node"},
			{`"sel":5`, Unsupported, noNGAP},
			{`"sel":6`, Unsupported, noNGAP},
			{`"sel":7`, Better, "the endpoint depends on the TEID alone and stays when others come and go; connections, counters and drains by tunnel; only UDP at port 2152; Linux 6.6 or newer"},
			{`"security":1`, Unsupported, noTLS},
			{`"security":2`, Unsupported, noTLS},
			{`"host":"a.example"`, Unsupported, "loxilb does not read HTTP; let HAProxy or Envoy at the endpoints choose by host"},
			{`"proxyprotocolv2":true`, Better, "without a proxy, also for IPv6, GSO packets, repeated segments and SACK; TCP in modes default, onearm and fullnat"},
			{`"snat":true`, Unsupported, "a firewall rule with doSnat translates sources"},
			{`"inactiveTimeOut":90000`, Differs, "above 86400 is refused; with --compat, in POST and files, it means the default, with a header Warning or a log line; apply and config/import refuse it"},
			{`"inactiveTimeOut":0`, Differs, "0 means the protocol's default, and GET returns 0"},
			{`"privateIP":"20.20.20.9"`, Differs, "GET returns it among secondaryIPs: it receives packets"},
			{`"portMax":1`, Better, "a value below port means no range in POST and files, with a header Warning or a log line; delete and apply refuse it"},
			{`"BGP":true`, Better, "withdrawn while no endpoint serves; without --bgp, a condition of the service reports that"},
		}},
	}
}

func probeValues() []Section[Value] {
	return []Section[Value]{
		{"Probes, of services and of POST /config/endpoint", []Value{
			{`"probetype":"sctp"`, Better, "by INIT over a raw socket: the kernel needs no SCTP, and the endpoint keeps no state"},
			{`"probetype":"http"`, Better, "also for services, and https, grpc and dns"},
			{`"mode":2`, Same, "as modes 1 and 5: endpoints are probed without Monitor, unless probetype is none"},
			{`"probeTimeout":0`, Differs, "default 2 s, not 60 s, with --compat too: a dead endpoint is out after seconds"},
			{`"probeRetries":0`, Differs, "default 3 successive failures, not 2, as probes are 2 s apart; an endpoint returns after 2 successes, not 1"},
			{`"probeRetries":500`, Differs, "the maximum is 100; with --compat a higher number is lowered to 100, also inactiveReTries of an endpoint, with a header Warning or a log line"},
			{`"probeDuration":90000`, Differs, "of an endpoint, and probeTimeout of a service: the maximum is 86400; with --compat a higher number is lowered to 86400, with a header Warning or a log line"},
		}},
	}
}
