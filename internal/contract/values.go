package contract

import "slices"

// Value is a property of an operation's body that is kept differently from the operation's row.
type Value struct {
	Property string // as JSON, with the value that requests it
	State    State
	Note     string // NotThere: the alternative in the 501 answer
}

// Values returns those of services and their endpoints.
func Values() []Section[Value] { return slices.Concat(serviceValues(), probeValues()) }

// AllValues returns the values of all sections.
func AllValues() []Value { return each(Values()) }

func serviceValues() []Section[Value] {
	const (
		noNGAP = "NGAP and SCTP are not read, so leave N2 to the AMF's own addresses"
		noTLS  = "TLS is not ended here, so let the endpoints end it"
	)
	return []Section[Value]{
		{"Bodies of any POST or PUT", []Value{
			{`"novelty":1`, Differs, "a property that nobody knows is refused if it says something; with --compat, in a POST of services, endpoints, endpointhoststate, cistate, policies, mirrors, cors, objects of the network and opts of firewall rules, and in its files, it is passed over, in bodies of up to 1 MiB, and a header Warning and the log name it. Other requests (users, params, lists of keys, config/import and what is ours: apply, rollback, drain, endpointweight ...), and ruleArguments of firewall rules, refuse it with --compat, too"},
		}},
		{"serviceArguments of POST /config/loadbalancer", []Value{
			{`"protocol":"sctp"`, NotThere, "IPVS (ipvsadm --sctp-service) balances SCTP"},
			{`"mode":4`, NotThere, "let HAProxy or Envoy listen at the endpoints of a service of mode default"},
			{`"sel":5`, NotThere, noNGAP},
			{`"sel":6`, NotThere, noNGAP},
			{`"sel":7`, NotThere, "GTP-U is balanced by addresses and ports (hash)"},
			{`"security":1`, NotThere, noTLS},
			{`"security":2`, NotThere, noTLS},
			{`"host":"a.example"`, NotThere, "HTTP is not read here, so let HAProxy or Envoy at the endpoints choose by host"},
			{`"proxyprotocolv2":true`, NotThere, "modes default and dsr show endpoints the client's address"},
			{`"snat":true`, NotThere, "a firewall rule with doSnat translates sources"},
			{`"inactiveTimeOut":90000`, Differs, "above 86400 is refused; with --compat, in a POST and in its files, it is the default, and a header Warning or the log says so; apply and config/import refuse it"},
			{`"inactiveTimeOut":0`, Differs, "is told as 0 by GET, and is the default of the protocol"},
			{`"privateIP":"20.20.20.9"`, Differs, "is told by GET, among secondaryIPs: packets come to it"},
			{`"portMax":1`, Better, "below port it is no range in a POST and in its files, and a header Warning or the log says so; what deletes or applies refuses it"},
			{`"BGP":true`, Differs, "is kept, and a condition of the service says that nothing announces it"},
		}},
	}
}

func probeValues() []Section[Value] {
	return []Section[Value]{
		{"Probes, of services and of POST /config/endpoint", []Value{
			{`"probetype":"sctp"`, NotThere, "ping asks whether the machine is there"},
			{`"probetype":"http"`, Better, "of services, too, and https, grpc and dns"},
			{`"mode":2`, Same, "as modes 1 and 5: endpoints are probed without Monitor, unless probetype is none"},
			{`"probeTimeout":0`, Differs, "2 s, not 60 s: an endpoint that is dead is out after seconds, with --compat too; give the seconds to ask more rarely"},
			{`"probeRetries":0`, Differs, "3 failures in a row, not 2, since they come 2 s apart; 2 successes in a row bring an endpoint back, not 1"},
		}},
	}
}
