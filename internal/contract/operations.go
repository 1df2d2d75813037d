package contract

import "slices"

// Operations returns those of the REST API: first load balancing, then the network, then the
// daemon.
func Operations() []Section[Operation] {
	return slices.Concat(balancing(), filtering(), network(), clustering(), daemon(), access())
}

// gone is the answer of every DELETE for a missing object.
const gone = "one that is gone is success, and a header Warning says so"

func balancing() []Section[Operation] {
	const exact = "one service is found by its exact key; " + gone
	return []Section[Operation]{
		{"Services", []Operation{
			{"POST", "/config/loadbalancer", Differs, "what this build can't do, and what is not known, is refused by name ([Properties](#properties)), where it was ignored; what exists and is not applied says so in the 409; sel 6 is n2det and 7 n3, as kube-loxilb has them; lbAttr takes many services in one transaction; mode 3 takes every selection; round robin follows the written order; one at whose address and port connections of the machine itself come, the request say, only with force=true"},
			{"GET", "/config/loadbalancer/all", Better, "tells all that was given, and whether the packets see it"},
			{"DELETE", "/config/loadbalancer/all", Same, ""},
			{"DELETE", "/config/loadbalancer/name/{lb_name}", Better, "a header Warning says that no service has the name"},
			{"DELETE", "/config/loadbalancer/externalipaddress/{ip_address}/port/{port}/protocol/{proto}", Better, exact},
			{"DELETE", "/config/loadbalancer/externalipaddress/{ip_address}/port/{port}/portmax/{portmax}/protocol/{proto}", Better, exact},
			{"DELETE", "/config/loadbalancer/hosturl/{hosturl}/externalipaddress/{ip_address}/port/{port}/protocol/{proto}", Differs, "hosturl is any: no service matches a host, since none is opened up to HTTP"},
			{"DELETE", "/config/loadbalancer/hosturl/{hosturl}/externalipaddress/{ip_address}/port/{port}/portmax/{portmax}/protocol/{proto}", Differs, "hosturl is any, likewise"},
			{"DELETE", "/config/loadbalancer", Ours, "many services in one transaction"},
		}},
		{"Endpoints", []Operation{
			{"GET", "/config/endpoint/all", Better, "tells since when, why, and what was before"},
			{"POST", "/config/endpoint", Differs, "asked every 2 s, and down after 3 failures, not 60 s and 2, unless probeDuration and inactiveReTries say so"},
			{"DELETE", "/config/endpoint/epipaddress/{ip_address}", Better, gone},
			{"POST", "/config/endpointhoststate", Same, ""},
			{"POST", "/config/endpointweight", Ours, "another weight in all services at once"},
			{"POST", "/config/drain", Ours, "no new connections; those left at a deadline are ended"},
			{"DELETE", "/config/drain", Ours, ""},
			{"GET", "/config/drain/all", Ours, ""},
		}},
		{"Connections", []Operation{
			{"GET", "/config/conntrack/all", Better, "filters and pages at the server; a closed connection is shown for the 10 to 30 s that its row is kept; no SCTP"},
			{"DELETE", "/config/conntrack", Ours, "ends connections, for both ends"},
			{"GET", "/config/conntrack/events", Ours, "connections as they come and go"},
		}},
	}
}

func filtering() []Section[Operation] {
	return []Section[Operation]{
		{"Firewall rules", []Operation{
			{"GET", "/config/firewall/all", Better, "in the order in which rules count, with exact ports"},
			{"POST", "/config/firewall", Differs, "copies of record go to a file on the machine, not to an interface; without toPort, as source ports are given out; a mark beside drop is refused, as nobody would see it; ranges of protocols; many at once in fwAttr; the same arguments with other opts change the rule; no other connection is touched"},
			{"DELETE", "/config/firewall", Better, "by all arguments; " + gone},
			{"DELETE", "/config/firewall/all", Ours, ""},
		}},
		{"Policers", []Operation{
			{"GET", "/config/policy/all", Better, "counters of each color"},
			{"POST", "/config/policy", Better, "services, clients and firewall rules too, from 1 kbit/s on, rates of packets; a rule of the contract is a service; without bursts they are 100 ms of the rate, not 30 MB; of type 1 the peak rate, which means nothing, is not kept"},
			{"DELETE", "/config/policy/ident/{ident}", Better, gone},
		}},
		{"Mirrors", []Operation{
			{"GET", "/config/mirror/all", Better, "counters"},
			{"POST", "/config/mirror", Better, "ERSPAN, VXLAN, services, clients and firewall rules too, one packet of so many"},
			{"DELETE", "/config/mirror/ident/{ident}", Better, gone},
		}},
		{"Sessions of mobile networks", []Operation{
			{"GET", "/config/session/all", NotThere, NoSessions},
			{"POST", "/config/session", NotThere, NoSessions},
			{"DELETE", "/config/session/ident/{ident}", NotThere, NoSessions},
			{"GET", "/config/sessionulcl/all", NotThere, NoSessions},
			{"POST", "/config/sessionulcl", NotThere, NoSessions},
			{"DELETE", "/config/sessionulcl/ident/{ident}/ulclAddress/{ip_address}", NotThere, NoSessions},
		}},
	}
}

func network() []Section[Operation] {
	return []Section[Operation]{
		{"Ports", []Operation{
			{"GET", "/config/port/all", Better, "portNo is the kernel's number of the interface; the counters are the kernel's"},
		}},
		{"VLANs", []Operation{
			{"GET", "/config/vlan/all", Better, "counters are those of the members"},
			{"POST", "/config/vlan", Better, "kept over restarts, made again when it vanishes; what is refused says why, with 400, 404 or 409; the MTU is the members', not 9000"},
			{"DELETE", "/config/vlan/{vlan_id}", Better, "with what was asked for in it; " + gone},
			{"POST", "/config/vlan/{vlan_id}/member", Better, "kept over restarts, made again when it vanishes; an interface of another bridge is refused with 409"},
			{"DELETE", "/config/vlan/{vlan_id}/member/{if_name}/tagged/{tagged}", Better, gone},
		}},
		{"VXLAN tunnels", []Operation{
			{"GET", "/config/tunnel/vxlan/all", Same, ""},
			{"POST", "/config/tunnel/vxlan", Better, "over IPv6 too; kept over restarts, made again when it vanishes; what is refused says why, with 400, 404 or 409; it learns, and its MTU fits the interface below, not 9000"},
			{"DELETE", "/config/tunnel/vxlan/{vxlanID}", Better, "with what was asked for in it; " + gone},
			{"POST", "/config/tunnel/vxlan/{vxlanID}/peer", Better, "kept over restarts, made again when it vanishes"},
			{"DELETE", "/config/tunnel/vxlan/{vxlanID}/peer/{PeerIP}", Better, gone},
		}},
		{"Forwarding entries", []Operation{
			{"GET", "/config/fdb/all", Same, ""},
			{"POST", "/config/fdb", Better, "into the table of the bridge that the interface is of; kept over restarts, made again when it vanishes"},
			{"DELETE", "/config/fdb/{mac_address}/dev/{if_name}", Better, gone},
		}},
		{"Neighbours", []Operation{
			{"GET", "/config/neighbor/all", Same, ""},
			{"POST", "/config/neighbor", Better, "IPv6 too; kept over restarts, made again when it vanishes; what is refused says why, with 400, 404 or 409"},
			{"DELETE", "/config/neighbor/{ip_address}/dev/{if_name}", Better, gone},
		}},
		{"Routes", []Operation{
			{"GET", "/config/route/all", Better, "interface and metric too; the kernel has no counters of routes, so these are 0"},
			{"POST", "/config/route", Better, "IPv6 too; kept over restarts, made again when it vanishes; again, with another gateway, changes it; protocol is a name, where GET tells the kernel's number"},
			{"DELETE", "/config/route/destinationIPNet/{ip_address}/{mask}", Better, gone},
		}},
		{"Addresses", []Operation{
			{"GET", "/config/ipv4address/all", Better, "IPv6 addresses too"},
			{"POST", "/config/ipv4address", Better, "IPv6 too; kept over restarts, made again when it vanishes; 409 where the interface has it"},
			{"DELETE", "/config/ipv4address/{ip_address}/{mask}/dev/{if_name}", Better, gone + "; one that connections of the machine itself come by, the request say, only with force=true"},
		}},
	}
}

func clustering() []Section[Operation] {
	return []Section[Operation]{
		{"Roles", []Operation{
			{"GET", "/config/cistate/all", Same, ""},
			{"POST", "/config/k8smeta", NotThere, noK8sMeta},
			{"POST", "/config/cistate", Better, "the role holds over a restart of the daemon; NOT_DEFINED takes it back; --role-hook, which with --compat is /opt/loxilb/ka_hook.sh, is run for 10 s at most"},
		}},
		{"BFD", []Operation{
			{"GET", "/config/bfd/all", NotThere, NoBFD},
			{"POST", "/config/bfd", NotThere, NoBFD},
			{"DELETE", "/config/bfd/remoteIP/{remote_ip}", NotThere, NoBFD},
		}},
		{"BGP", []Operation{
			{"GET", "/config/bgp/neigh/all", NotThere, noBGP},
			{"POST", "/config/bgp/neigh", NotThere, noBGP},
			{"DELETE", "/config/bgp/neigh/{ip_address}", NotThere, noBGP},
			{"POST", "/config/bgp/global", NotThere, noBGP},
			{"POST", "/config/bgp/policy/definedsets/{defineset_type}", NotThere, noBGP},
			{"GET", "/config/bgp/policy/definedsets/{defineset_type}/{type_name}", NotThere, noBGP},
			{"DELETE", "/config/bgp/policy/definedsets/{defineset_type}/{type_name}", NotThere, noBGP},
			{"GET", "/config/bgp/policy/definitions/all", NotThere, noBGP},
			{"POST", "/config/bgp/policy/definitions", NotThere, noBGP},
			{"DELETE", "/config/bgp/policy/definitions/{policy_name}", NotThere, noBGP},
			{"POST", "/config/bgp/policy/apply", NotThere, noBGP},
			{"DELETE", "/config/bgp/policy/apply", NotThere, noBGP},
		}},
	}
}

func daemon() []Section[Operation] {
	return []Section[Operation]{
		{"Status", []Operation{
			{"GET", "/status/process", Better, "command is its name, without arguments, which may hold secrets"},
			{"GET", "/status/device", Same, ""},
			{"GET", "/status/filesystem", Better, "a file system of another machine is shown, and not asked, for it might hang"},
			{"GET", "/status/objects", Ours, "what the data path has of each object, and why not what is wanted"},
			{"GET", "/status/rates", Ours, "connections, packets, bytes, repeated SYNs, failed handshakes and drops a second"},
			{"GET", "/status/rates/services", Ours, "the same of services and endpoints; sorts, filters and pages at the server"},
			{"GET", "/status/rates/history", Ours, "the last hour, of all services together or of one"},
			{"GET", "/status/rates/events", Ours, "all of that, each second"},
			{"GET", "/verify", Ours, "what users want, compared with what the kernel has"},
			{"POST", "/verify", Ours, "the same; what differs is applied again"},
			{"GET", "/doctor", Ours, "what is wrong with the machine and its network"},
			{"POST", "/doctor", Ours, "mends a finding"},
			{"GET", "/status/connections", Ours, "connections, one entry each, in pages, with their number"},
			{"GET", "/status/clients", Ours, "the clients with the most connections or traffic"},
			{"GET", "/status/node", Ours, "name, build, uptime and roles of the node"},
			{"GET", "/status/services", Ours, "services in short: searched, sorted, in pages"},
			{"GET", "/status/service", Ours, "one service, with the evidence of each endpoint"},
			{"GET", "/status/drops", Ours, "packets dropped, by reason, with what to do about it"},
			{"GET", "/events", Ours, "what happens, as it happens"},
			{"GET", "/explain", Ours, "how a packet would be handled, and why; by which services a client reaches an endpoint"},
			{"GET", "/status/trace", Ours, "packets before and after translation, as they come"},
		}},
		{"Parameters", []Operation{
			{"GET", "/config/params", Better, "a level that is not known is refused"},
			{"POST", "/config/params", Better, "a level that is not known is refused"},
		}},
		{"Web pages of other origins", []Operation{
			{"GET", "/config/cors/all", Same, ""},
			{"POST", "/config/cors", Differs, "no origin at first; what is no origin is refused; all of a request or none"},
			{"DELETE", "/config/cors/{cors_url}", Same, ""},
		}},
		{"The whole configuration", []Operation{
			{"POST", "/config/apply", Ours, "objects of any kinds in one transaction; dry run, prune, confirmation"},
			{"GET", "/config/objects", Ours, "all that is wanted, as apply takes it"},
			{"POST", "/config/confirm", Ours, ""},
			{"GET", "/config/revisions", Ours, "the last 50 changes, who made them, and when"},
			{"POST", "/config/rollback", Ours, "all objects as they were at a revision"},
			{"GET", "/config/export", Better, "components are lists of what POST takes, not of the server's own structures"},
			{"POST", "/config/import", Better, "all or nothing, where the configuration was deleted first; answers 200 and what has changed; a file of the existing loxilb, which has structures of its server, is refused by name"},
		}},
		{"Version", []Operation{
			{"GET", "/version", Better, "tells commit, Go, object ABI and the network namespace, too"},
			{"GET", "/meta", Same, ""},
		}},
		{"Logs", []Operation{
			{"GET", "/logs", Differs, "the last megabyte, from memory, as the log goes to standard error; level is that of a line, not a word in it; cursor is the place where the page before has ended"},
			{"GET", "/log-archives", Differs, "the older three of four parts of the last megabyte"},
			{"GET", "/log-archives/{filename}", Differs, "likewise"},
		}},
		{"Node graphs", []Operation{
			{"GET", "/nodegraph/all", Better, "endpoints are shared by services; the first 1,000 services"},
			{"GET", "/nodegraph/{service}", Better, "takes the key of a service, too"},
		}},
		{"Metrics", []Operation{
			{"GET", "/metrics", Differs, "the canonical names and those of before them with --compat; counted by the packets, not by sweeps, so that short connections are in them; the label service is the key of a service, and name its name; some are not there ([Metrics](#metrics))"},
			{"GET", "/config/metrics", Better, "on at first, and then only for GET /metrics: they are read when they are asked for"},
			{"POST", "/config/metrics", Better, "on at first, and then only for GET /metrics: they are read when they are asked for"},
			{"DELETE", "/config/metrics", Better, "on at first, and then only for GET /metrics: they are read when they are asked for"},
			{"GET", "/metrics/flowcount", Better, "counted by the packets"},
			{"GET", "/metrics/hostcount", Same, ""},
			{"GET", "/metrics/lbrulecount", Same, ""},
			{"GET", "/metrics/newflowcount", Differs, "connections made since the services are there, by their packets; it was those that a sweep every 10 s had found"},
			{"GET", "/metrics/requestcount", Better, "short connections are counted, too"},
			{"GET", "/metrics/errorcount", Differs, "packets for which there was no endpoint, or no room"},
			{"GET", "/metrics/processedtraffic", Better, "short connections are counted, too"},
			{"GET", "/metrics/lbprocessedtraffic", Differs, "of the connections that there are, in at most 10,000 groups"},
			{"GET", "/metrics/epdisttraffic", Same, ""},
			{"GET", "/metrics/servicedisttraffic", Same, ""},
			{"GET", "/metrics/fwdrops", Better, "lists of sources of services count as rules, too"},
			{"GET", "/metrics/reqcountperclient", Differs, "of the connections that there are, for at most 10,000 clients"},
		}},
	}
}

func access() []Section[Operation] {
	return []Section[Operation]{
		{"Users", []Operation{
			{"POST", "/auth/login", Better, "without a database; who fails too often waits (429)"},
			{"POST", "/auth/logout", Same, ""},
			{"GET", "/auth/whoami", Ours, "who makes this request, and what that may do"},
			{"GET", "/auth/users", Better, "no password is told, not even hashed"},
			{"POST", "/auth/users", Differs, "an admin creates users, at first root by the UNIX socket, and not whoever asks; passwords have 8 to 128 bytes; the answer is the user, with its id"},
			{"PUT", "/auth/users/{id}", Better, "what is absent stays; the role can be changed, too; users may change their own password"},
			{"DELETE", "/auth/users/{id}", Better, "ends the tokens of the user"},
			{"GET", "/audit", Ours, "who has changed what, and who was refused"},
		}},
		{"Logging in elsewhere", []Operation{
			{"POST", "/auth/token/upgrade", NotThere, noLicense},
			{"GET", "/oauth/{provider}", NotThere, noOAuth},
			{"GET", "/oauth/{provider}/callback", NotThere, noOAuth},
			{"GET", "/oauth/{provider}/token", NotThere, noOAuth},
		}},
	}
}
