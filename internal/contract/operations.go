package contract

import "slices"

// Operations returns the operations of the REST API: first load balancing, then the network, then
// the daemon.
func Operations() []Section[Operation] {
	return slices.Concat(balancing(), filtering(), network(), clustering(), daemon(), access())
}

// missingSucceeds is the answer of every DELETE for a missing object.
const missingSucceeds = "a missing one is success with a header Warning"

func balancing() []Section[Operation] {
	const exact = "deletes the service with exactly this key; " + missingSucceeds
	return []Section[Operation]{
		{"Services", []Operation{
			{"POST", "/config/loadbalancer", Differs, "unsupported and unknown properties are refused by name ([Properties](#properties)), not ignored; the 409 says if an existing service is not applied; sel 6 is n2det and 7 n3, as in kube-loxilb; lbAttr takes many services in one transaction; mode 3 takes every selection; round robin follows the written order; a service that would intercept connections of the machine itself, such as the request's, needs force=true"},
			{"GET", "/config/loadbalancer/all", Better, "returns every property, and the status"},
			{"DELETE", "/config/loadbalancer/all", Same, ""},
			{"DELETE", "/config/loadbalancer/name/{lb_name}", Better, "a header Warning reports that no service has the name"},
			{"DELETE", "/config/loadbalancer/externalipaddress/{ip_address}/port/{port}/protocol/{proto}", Better, exact},
			{"DELETE", "/config/loadbalancer/externalipaddress/{ip_address}/port/{port}/portmax/{portmax}/protocol/{proto}", Better, exact},
			{"DELETE", "/config/loadbalancer/hosturl/{hosturl}/externalipaddress/{ip_address}/port/{port}/protocol/{proto}", Differs, "hosturl must be any: no service matches HTTP hosts"},
			{"DELETE", "/config/loadbalancer/hosturl/{hosturl}/externalipaddress/{ip_address}/port/{port}/portmax/{portmax}/protocol/{proto}", Differs, "hosturl must be any"},
			{"DELETE", "/config/loadbalancer", Ours, "many services in one transaction"},
		}},
		{"Endpoints", []Operation{
			{"GET", "/config/endpoint/all", Differs, "only probed endpoints, so those of a service without monitor are missing; also returns the reason and time of the state, and the previous states"},
			{"POST", "/config/endpoint", Differs, "by default probed every 2 s and down after 3 failures, not 60 s and 2"},
			{"DELETE", "/config/endpoint/epipaddress/{ip_address}", Better, missingSucceeds},
			{"POST", "/config/endpointhoststate", Same, ""},
			{"POST", "/config/endpointweight", Ours, "changes a weight in all services at once"},
			{"POST", "/config/drain", Ours, "stops new connections; ends remaining ones at a deadline"},
			{"DELETE", "/config/drain", Ours, ""},
			{"GET", "/config/drain/all", Ours, ""},
		}},
		{"Connections", []Operation{
			{"GET", "/config/conntrack/all", Better, "the server filters and pages; a closed connection is shown for 10 to 30 s"},
			{"DELETE", "/config/conntrack", Ours, "ends connections with a RST to both ends"},
			{"GET", "/config/conntrack/events", Ours, "streams connection events"},
		}},
	}
}

func filtering() []Section[Operation] {
	return []Section[Operation]{
		{"Firewall rules", []Operation{
			{"GET", "/config/firewall/all", Better, "in order of precedence, with exact ports"},
			{"POST", "/config/firewall", Differs, "record writes a file on the machine instead of copying to an interface; toPort is not supported, as source ports are assigned; a mark with drop is refused; ranges of protocols; many rules at once in fwAttr; the same arguments with other opts change the rule; other connections are unaffected"},
			{"DELETE", "/config/firewall", Better, "selected by all arguments; " + missingSucceeds},
			{"DELETE", "/config/firewall/all", Ours, ""},
		}},
		{"Policers", []Operation{
			{"GET", "/config/policy/all", Better, "counters of each color"},
			{"POST", "/config/policy", Better, "also for services, clients and firewall rules, from 1 kbit/s, and packet rates; default bursts are 100 ms of the rate, not 30 MB; the meaningless peak rate of type 1 is not kept"},
			{"DELETE", "/config/policy/ident/{ident}", Better, missingSucceeds},
		}},
		{"Mirrors", []Operation{
			{"GET", "/config/mirror/all", Better, "counters"},
			{"POST", "/config/mirror", Better, "also ERSPAN and VXLAN, for services, clients and firewall rules, with sampling"},
			{"DELETE", "/config/mirror/ident/{ident}", Better, missingSucceeds},
		}},
		{"Sessions of mobile networks", []Operation{
			{"GET", "/config/session/all", Same, ""},
			{"POST", "/config/session", Same, ""},
			{"DELETE", "/config/session/ident/{ident}", Better, missingSucceeds},
			{"GET", "/config/sessionulcl/all", Same, ""},
			{"POST", "/config/sessionulcl", Better, "IPv6 addresses too"},
			{"DELETE", "/config/sessionulcl/ident/{ident}/ulclAddress/{ip_address}", Better, missingSucceeds},
		}},
	}
}

func network() []Section[Operation] {
	return []Section[Operation]{
		{"Ports", []Operation{
			{"GET", "/config/port/all", Better, "portNo is the kernel's number of the interface; the counters are the kernel's"},
		}},
		{"VLANs", []Operation{
			{"GET", "/config/vlan/all", Better, "the members' counters"},
			{"POST", "/config/vlan", Better, "kept over restarts, recreated when it vanishes; refusals give the reason, with 400, 404 or 409; the MTU is the members', not 9000"},
			{"DELETE", "/config/vlan/{vlan_id}", Better, "deletes requested members, too; " + missingSucceeds},
			{"POST", "/config/vlan/{vlan_id}/member", Better, "kept over restarts, recreated when it vanishes; an interface of another bridge is refused with 409"},
			{"DELETE", "/config/vlan/{vlan_id}/member/{if_name}/tagged/{tagged}", Better, missingSucceeds},
		}},
		{"VXLAN tunnels", []Operation{
			{"GET", "/config/tunnel/vxlan/all", Same, ""},
			{"POST", "/config/tunnel/vxlan", Better, "over IPv6 too; kept over restarts, recreated when it vanishes; refusals give the reason, with 400, 404 or 409; it learns, and its MTU fits the lower interface instead of 9000"},
			{"DELETE", "/config/tunnel/vxlan/{vxlanID}", Better, "deletes requested members, too; " + missingSucceeds},
			{"POST", "/config/tunnel/vxlan/{vxlanID}/peer", Better, "kept over restarts, recreated when it vanishes"},
			{"DELETE", "/config/tunnel/vxlan/{vxlanID}/peer/{PeerIP}", Better, missingSucceeds},
		}},
		{"Forwarding entries", []Operation{
			{"GET", "/config/fdb/all", Same, ""},
			{"POST", "/config/fdb", Better, "in the table of the interface's bridge; kept over restarts, recreated when it vanishes"},
			{"DELETE", "/config/fdb/{mac_address}/dev/{if_name}", Better, missingSucceeds},
		}},
		{"Neighbours", []Operation{
			{"GET", "/config/neighbor/all", Same, ""},
			{"POST", "/config/neighbor", Better, "IPv6 too; kept over restarts, recreated when it vanishes; refusals give the reason, with 400, 404 or 409"},
			{"DELETE", "/config/neighbor/{ip_address}/dev/{if_name}", Better, missingSucceeds},
		}},
		{"Routes", []Operation{
			{"GET", "/config/route/all", Better, "also interface and metric; counters are 0, as the kernel has none"},
			{"POST", "/config/route", Better, "IPv6 too; kept over restarts, recreated when it vanishes; a repetition with another gateway changes it; protocol is a name, GET returns the kernel's number"},
			{"DELETE", "/config/route/destinationIPNet/{ip_address}/{mask}", Better, missingSucceeds},
		}},
		{"Addresses", []Operation{
			{"GET", "/config/ipv4address/all", Better, "IPv6 addresses too"},
			{"POST", "/config/ipv4address", Better, "IPv6 too; kept over restarts, recreated when it vanishes; 409 if the interface has it"},
			{"DELETE", "/config/ipv4address/{ip_address}/{mask}/dev/{if_name}", Better, missingSucceeds + "; one that carries connections of the machine itself, such as the request's, needs force=true"},
		}},
	}
}

func clustering() []Section[Operation] {
	return []Section[Operation]{
		{"Roles", []Operation{
			{"GET", "/config/cistate/all", Same, ""},
			{"GET", "/status/cluster", Ours, ""},
			{"GET", "/config/clusternode/all", Ours, ""},
			{"POST", "/config/clusternode", Ours, ""},
			{"DELETE", "/config/clusternode/address/{address}", Ours, ""},
			{"POST", "/config/node/drain", Ours, "takes this node out of service for maintenance"},
			{"POST", "/config/node/resume", Ours, ""},
			{"POST", "/config/k8smeta", Unsupported, noK8sMeta},
			{"POST", "/config/cistate", Better, "the role survives a restart of the daemon; NOT_DEFINED removes it; --role-hook (with --compat /opt/loxilb/ka_hook.sh) may run for 10 s"},
		}},
		{"BFD", []Operation{
			{"GET", "/config/bfd/all", Better, "also the role, why, the last error, and counters"},
			{"POST", "/config/bfd", Better, "IPv6; also priority, preempt and multihop; several instances with one peer; no existing loxilb can be the peer"},
			{"DELETE", "/config/bfd/remoteIP/{remote_ip}", Better, missingSucceeds},
		}},
		{"BGP", []Operation{
			{"GET", "/config/bgp/neigh/all", Better, "also options, prefixes sent and received, flaps and the last error"},
			{"POST", "/config/bgp/neigh", Better, "also password, times, source, passive, BFD, and neighbors without an address; needs --bgp"},
			{"DELETE", "/config/bgp/neigh/{ip_address}", Better, "a neighbor with another remoteAs stays, and a header Warning says so; " + missingSucceeds},
			{"POST", "/config/bgp/global", Better, "also graceful restart; an empty routerId is an address of the node; needs --bgp"},
			{"GET", "/config/bgp/global/all", Ours, ""},
			{"DELETE", "/config/bgp/global", Ours, ""},
			{"POST", "/config/bgp/policy/definedsets/{defineset_type}", Better, "the same content again is refused with 409; needs --bgp"},
			{"GET", "/config/bgp/policy/definedsets/{defineset_type}/{type_name}", Same, ""},
			{"DELETE", "/config/bgp/policy/definedsets/{defineset_type}/{type_name}", Better, missingSucceeds},
			{"POST", "/config/bgp/policy/definedsets", Ours, "the type is in the body"},
			{"GET", "/config/bgp/policy/definedsets/all", Ours, ""},
			{"GET", "/config/bgp/policy/definitions/all", Same, ""},
			{"POST", "/config/bgp/policy/definitions", Better, "a policy that exists is changed; its sets may be created later; needs --bgp"},
			{"DELETE", "/config/bgp/policy/definitions/{policy_name}", Better, missingSucceeds},
			{"POST", "/config/bgp/policy/apply", Better, "ipAddress global is all neighbors; needs --bgp"},
			{"DELETE", "/config/bgp/policy/apply", Better, "without policies, all of them; " + missingSucceeds},
			{"GET", "/config/bgp/policy/apply/all", Ours, ""},
			{"DELETE", "/config/bgp/policy/apply/{ip_address}/{policy_type}", Ours, ""},
		}},
	}
}

func daemon() []Section[Operation] {
	return []Section[Operation]{
		{"Status", []Operation{
			{"GET", "/status/process", Better, "command is the name without arguments, which may have secrets"},
			{"GET", "/status/device", Same, ""},
			{"GET", "/status/filesystem", Better, "remote file systems are listed without sizes, as they might hang"},
			{"GET", "/status/objects", Ours, "status of each object, with the error"},
			{"GET", "/status/rates", Ours, "connections, packets, bytes, repeated SYNs, failed handshakes and drops a second"},
			{"GET", "/status/rates/services", Ours, "rates by service and endpoint; the server sorts, filters and pages"},
			{"GET", "/status/rates/history", Ours, "the last hour, of all services or one"},
			{"GET", "/status/rates/events", Ours, "streams the rates every second"},
			{"GET", "/verify", Ours, "compares desired state and kernel"},
			{"POST", "/verify", Ours, "the same, and repairs differences"},
			{"GET", "/doctor", Ours, "problems of the machine and its network"},
			{"POST", "/doctor", Ours, "applies a finding's remedy"},
			{"GET", "/status/connections", Ours, "connections, one entry each, in pages, with a total"},
			{"GET", "/status/clients", Ours, "the clients with the most connections or traffic"},
			{"GET", "/status/node", Ours, "name, build, uptime and roles of the node"},
			{"GET", "/status/services", Ours, "service overview: searched, sorted, in pages"},
			{"GET", "/status/service", Ours, "one service, with the evidence of each endpoint"},
			{"GET", "/status/drops", Ours, "packets dropped, by reason, with what to do about it"},
			{"GET", "/events", Ours, "streams events"},
			{"GET", "/explain", Ours, "explains how a packet would be handled, and by which services a client reaches an endpoint"},
			{"GET", "/status/trace", Ours, "streams packets before and after translation"},
		}},
		{"Parameters", []Operation{
			{"GET", "/config/params", Better, "unknown levels are refused"},
			{"POST", "/config/params", Better, "unknown levels are refused"},
		}},
		{"Web pages of other origins", []Operation{
			{"GET", "/config/cors/all", Same, ""},
			{"POST", "/config/cors", Differs, "initially no origin; invalid origins are refused; a request is applied as a whole or not at all"},
			{"DELETE", "/config/cors/{cors_url}", Same, ""},
		}},
		{"The whole configuration", []Operation{
			{"POST", "/config/apply", Ours, "objects of any kinds in one transaction; dry run, prune, confirmation"},
			{"GET", "/config/objects", Ours, "the whole configuration, as apply takes it"},
			{"POST", "/config/confirm", Ours, ""},
			{"GET", "/config/revisions", Ours, "the last 50 changes: who made them, and when"},
			{"POST", "/config/rollback", Ours, "all objects as they were at a revision"},
			{"GET", "/config/export", Better, "components are lists of what POST takes, not internal structures"},
			{"POST", "/config/import", Better, "all or nothing, instead of deleting the configuration first; answers 200 and the changes; files with internal structures of the existing loxilb are refused by name"},
		}},
		{"Version", []Operation{
			{"GET", "/version", Better, "also commit, Go version, object ABI and network namespace"},
			{"GET", "/meta", Same, ""},
		}},
		{"Logs", []Operation{
			{"GET", "/logs", Differs, "the last megabyte, from memory; level is the line's level, not a word in it; cursor is the end of the previous page"},
			{"GET", "/log-archives", Differs, "the oldest three quarters of the last megabyte, in three files"},
			{"GET", "/log-archives/{filename}", Differs, "the oldest three quarters of the last megabyte, in three files"},
		}},
		{"Node graphs", []Operation{
			{"GET", "/nodegraph/all", Better, "endpoints are shared by services; the first 1,000 services"},
			{"GET", "/nodegraph/{service}", Better, "also takes a service's key"},
		}},
		{"Metrics", []Operation{
			{"GET", "/metrics", Differs, "with --compat the existing names, old and canonical; packets count, not sweeps, so short connections are included; the label service is the service's key, name its name; some are missing ([Metrics](#metrics))"},
			{"GET", "/config/metrics", Better, "enabled initially; affects GET /metrics only, as values are read on request"},
			{"POST", "/config/metrics", Better, "enabled initially; affects GET /metrics only, as values are read on request"},
			{"DELETE", "/config/metrics", Better, "enabled initially; affects GET /metrics only, as values are read on request"},
			{"GET", "/metrics/flowcount", Better, "counted by packets"},
			{"GET", "/metrics/hostcount", Same, ""},
			{"GET", "/metrics/lbrulecount", Same, ""},
			{"GET", "/metrics/newflowcount", Differs, "connections opened since the services were created, counted by packets instead of a sweep every 10 s"},
			{"GET", "/metrics/requestcount", Better, "includes short connections"},
			{"GET", "/metrics/errorcount", Differs, "packets without an endpoint, or without room"},
			{"GET", "/metrics/processedtraffic", Better, "includes short connections"},
			{"GET", "/metrics/lbprocessedtraffic", Differs, "of current connections, in at most 10,000 groups"},
			{"GET", "/metrics/epdisttraffic", Same, ""},
			{"GET", "/metrics/servicedisttraffic", Same, ""},
			{"GET", "/metrics/fwdrops", Better, "also counts services' lists of sources as rules"},
			{"GET", "/metrics/reqcountperclient", Differs, "of current connections, for at most 10,000 clients"},
		}},
	}
}

func access() []Section[Operation] {
	return []Section[Operation]{
		{"Users", []Operation{
			{"POST", "/auth/login", Better, "without a database; repeated failures must wait (429)"},
			{"POST", "/auth/logout", Same, ""},
			{"GET", "/auth/whoami", Ours, "the user of this request, and its permissions"},
			{"GET", "/auth/users", Better, "returns no password, not even hashed"},
			{"POST", "/auth/users", Differs, "only admins create users, the first one is created by root over the UNIX socket; passwords have 8 to 128 bytes; returns the user with its id"},
			{"PUT", "/auth/users/{id}", Better, "absent properties stay; the role can be changed; users may change their own password"},
			{"DELETE", "/auth/users/{id}", Better, "ends the tokens of the user"},
			{"GET", "/audit", Ours, "changes and refused requests, with their users"},
		}},
		{"Logging in elsewhere", []Operation{
			{"POST", "/auth/token/upgrade", Unsupported, noLicense},
			{"GET", "/oauth/{provider}", Unsupported, noOAuth},
			{"GET", "/oauth/{provider}/callback", Unsupported, noOAuth},
			{"GET", "/oauth/{provider}/token", Unsupported, noOAuth},
		}},
	}
}
