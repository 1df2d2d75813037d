package logs

const (
	meaningKey = "meaning"
	hintKey    = "hint"
)

// message is a constant message of a warning or an error.
type message struct {
	text    string
	meaning string // its consequence; "": the text has it
	hint    string // the remedy, in a line; "": none
}

// messageOf returns the description of a message.
func messageOf(text string) message {
	for _, area := range areas() {
		for _, m := range area.messages {
			if m.text == text {
				return m
			}
		}
	}
	return message{text: text}
}

// area is a group of messages.
type area struct {
	name     string
	messages []message
}

// areas returns all messages at levels warning and error. TestMessages compares them with the
// source.
func areas() []area {
	return []area{
		{"Endpoints and services", services()},
		{"Connections and packets", packets()},
		{"The network of this machine", network()},
		{"BGP", routing()},
		{"Other nodes of the cluster", clusterNodes()},
		{"The start, upgrades and the data path", dataPath()},
		{"The stored state", state()},
		{"The API and its files", api()},
		{"The log itself", []message{
			{leftOut, "A message was logged more than 100 times in a minute; the rest was suppressed.", "see loxicmd get status and loxicmd get events for the current state"},
			{"the level of the log was changed", "", ""},
		}},
	}
}

// ifItGoesOn is the hint for failed reads of the kernel's state: the daemon reads again, so a
// single failure needs no action.
const ifItGoesOn = "if it persists, see dmesg and restart loxilb: connections stay"

func services() []message {
	return []message{
		{"endpoint is down", "evidence is the last observation of its probes, agent or handshakes.", "see loxicmd get endpoint; repair the endpoint, it recovers automatically"},
		{"more endpoints have become up or down", "", "loxicmd get endpoint lists them all"},
		{"service sends clients to endpoints that are down", "All its endpoints are reported down, and receive new clients: no further failure counts yet, or the service has --all-down=panic.", "loxicmd describe lb shows why each endpoint is down; repair one, or add one"},
		{"service serves no clients", "All its endpoints are down or drained (endpoints counts them): new clients are refused.", "loxicmd describe lb shows why each endpoint is out; repair or undrain one, or add one"},
		{"more services stopped serving clients, or serve them again", "", "loxicmd get lb shows the state of each"},
		{"backups get new connections: too few endpoints before them are up", "The service now uses its next level of backups.", "loxicmd get endpoint shows which are down"},
		{"probes are delayed: too few file descriptors", "Endpoints that go down or come up are noticed later.", "raise LimitNOFILE of the unit, or probe less often (--period)"},
		{"probe file cannot be used", "A CA, certificate or key of an https probe is missing or invalid.", "fix the file below --probe-files; it is read again"},
		{"object cannot be applied; trying again", "error is the reason, next_try the time of the next attempt, if it does not wait for another object.", "loxicmd get status --failed; fix what error names, or delete the object"},
		{"more objects cannot be applied", "", "loxicmd get status --failed lists them"},
		{"services of an earlier start are still in the data path; trying again", "Deleted services could not be removed, and still balance.", ifItGoesOn},
		{"VIP cannot be removed; trying again", "", "if it stays: ip address del VIP dev INTERFACE"},
		{"counters cannot be read", "", ifItGoesOn},
		{"loads of endpoints are compared inexactly until the next sweep", "Connections that were open when the service changed to select lc do not count.", ifItGoesOn},
		{"XDP may not balance GTP-U packets of earlier connections by tunnel", "Tunnels of base stations that were busy when the service became n3 share an endpoint, until they are silent.", ifItGoesOn},
		{"GTP-U packets of deleted services are still balanced by tunnel", "They have the source port of their tunnel, which receivers ignore.", ifItGoesOn},
		{"counters of handshakes cannot be read", "Handshakes do not affect the health of endpoints meanwhile.", ifItGoesOn},
		{"rates are unknown: counters cannot be read", "", ifItGoesOn},
		{"role hook is not run: the name of the instance may have letters, digits, '.', '_' and '-', not first", "The hook gets the instance's name as an argument, so special characters are refused.", "rename the instance"},
		{"role hook is not run", "The file of --role-hook is missing, or users other than root can change it.", "make it owned by root, executable, and not writable by others"},
		{"role hook killed: it took too long", "", "move long work into a separate service"},
		{"role hook failed", "", "run it by hand with the arguments of docs/operations.md"},
	}
}

func clusterNodes() []message {
	return []message{
		{"refused a node", "error is the reason: it is incompatible, or has another key.", "see error; use the same --cluster-key and --hash-seed on all nodes, and a different --cluster-node on each"},
		{"VIPs are not announced: serving nodes refuse this one", "reason is why. Connections would break at this starting node.", "correct the flag that reason names, and restart this node; if the other nodes are wrong, stop them: this one then announces after 10 s"},
		{"the table has no room for the connections of a node of the cluster", "The table could not grow at once; it grows as they arrive. error is the reason.", "see error; is there memory left, and is --ct-max the same on all nodes?"},
		{"cannot connect to a node of the cluster", "", "loxicmd get cluster; see error"},
		{"connection to a node of the cluster is lost", "The node gets all connections again once it is back.", "loxicmd get cluster; see error"},
		{"the name of a node of the cluster cannot be resolved", "Addresses found before stay in use.", "fix the name or the resolver, or write addresses; names are looked up every 10 s"},
		{"the key or certificates of the cluster cannot be used: the previous ones stay in use", "A file of --cluster-key, or of --cluster-ca, --cluster-cert and --cluster-cert-key, has changed; error is the problem.", "correct the file: it is read every second"},
		{"a node of the cluster is too slow: it gets all connections again", "More than 8 MiB waited for it, and were dropped.", "loxicmd get cluster shows its lag; look at its CPU and the network between the nodes"},
		{"a node of the cluster has other services", "Connections of these services would not continue through it, or through this node; what names a service and the difference.", "loxicmd get cluster; apply the same services to all nodes, or use --store"},
		{"a node of the cluster no longer sends connections", "", "see error; use builds that are at most one version apart"},
		{"a change of another node exceeds this node's limits", "An object of the shared store does not fit into this node; error is the limit.", "see error; loxicmd get status --failed shows what is not applied"},
		{"the name of this node's shared store cannot be read: its objects are compared again", "The file shared.json of the state directory is damaged.", "if the node then does not join, loxicmd get status names the objects that differ"},
		{"announcing without the connections of some nodes", "They did not send all connections within 10 s; theirs may break if routers send them here.", "loxicmd get cluster; the nodes keep trying"},
		{"nodes of the cluster cannot connect", "", "see error; restart loxilb: connections stay"},
		{"nodes of the cluster cannot connect for now", "They try again.", "see error; has the process too many open files?"},
		{"there may be no room for connections of other nodes", "Those that do not fit are refused.", "is there memory left?"},
		{"another node of the shared store has this node's name", "Lists show one of them.", "give each its own name: --cluster-node"},
		{"connections are not exchanged with other nodes", "", "see error and dmesg"},
		{"new connections are not sent to other nodes at once", "The ring of the packet path could not be read; scans of the table send them later.", ifItGoesOn},
		{"connections of other nodes are not refreshed", "The connection table could not be scanned; copies at other nodes may expire.", ifItGoesOn},
		{"connections of other nodes cannot be inserted", "", ifItGoesOn},
		{"segments of unknown connections are refused although a copy may arrive", "The packet path could not be notified that nodes have changed.", ifItGoesOn},
	}
}

func routing() []message {
	return []message{
		{"file of gobgpd", "A part of the file in /etc/gobgp has no counterpart; note names it.", ""},
		{"file of gobgpd cannot be read", "", "see error; or configure BGP with loxicmd set bgp"},
		{"file of gobgpd: an object is refused", "The others are stored; key names it.", "see error; create it with loxicmd"},
		{"BGP speaker does not start; trying again", "error is the reason, such as a port in use.", "fix what error names"},
		{"BGP speaker cannot be changed; trying again", "", "loxicmd get status --failed; fix what error names"},
		{"BGP speaker does not stop", "Sessions may stay until the process ends.", "restart loxilb: connections stay"},
		{"BGP neighbor cannot be added; trying again", "error is the reason, such as no router on the link.", "fix what error names"},
		{"BGP neighbor cannot be changed", "", "delete the neighbor and create it again"},
		{"BGP session ended", "The neighbor has lost the routes of this node, unless graceful restart keeps them; reason is why.", "check the neighbor and the link to it; the session begins again automatically"},
		{"route of a BGP neighbor cannot be added to the kernel or removed", "The kernel refused it, for instance because the next hop is not reachable.", "add a route to the next hop, or have the neighbor set itself as the next hop"},
		{"routes that an earlier process learned cannot be read", "Packets may follow routes that no neighbor announces any longer.", "remove them: ip route del PREFIX proto bgp"},
		{"routes of BGP neighbors cannot be compared with the kernel", "Routes that the kernel has dropped may be missing there.", ifItGoesOn},
		{"changes of the kernel's routes cannot be followed; trying again", "The same.", ifItGoesOn},
		{"link changes cannot be followed; trying again", "A session whose link goes down ends only after its hold time.", ifItGoesOn},
	}
}

func packets() []message {
	return []message{
		{"packets in GTP-U tunnels are not handled at an interface", "", ifItGoesOn},
		{"packets dropped", "Packets dropped in the last second, by reason.", "loxicmd get drops explains each reason"},
		{"connections are under pressure", "Half-open connections or source ports are short, or more than half of the table is in use: unknown clients may be challenged or refused.", "see loxicmd get status; if it is not a SYN flood, raise --ct-max, or add addresses (--snat) if source ports are short"},
		{"the connection table cannot grow", "", "check free memory: new connections are refused once the table is full"},
		{"sweep failed", "Ended connections keep their rows for now; their packets are still refused.", ifItGoesOn},
		{"without this daemon, only new connections will free expired ones", "The kernel's timer cannot be started. While the daemon runs, nothing changes.", ifItGoesOn},
		{"the packet path cannot be notified of the next sweep", "", ifItGoesOn},
		{"connections that are watched cannot be judged", "Endpoints that accept connections but never answer are not detected for now.", ifItGoesOn},
		{"pressure cannot be determined", "The fill level of the table could not be read; the sweep runs at its usual pace.", ifItGoesOn},
		{"connections cannot be counted", "", ifItGoesOn},
		{"data connections of FTP cannot be counted", "", ifItGoesOn},
		{"connections of endpoints cannot be ended; trying again", "Connections of an endpoint that is down or drained continue for now.", ifItGoesOn},
		{"idle connections end without RSTs", "", ifItGoesOn},
		{"ends of idle connections cannot be counted", "", ifItGoesOn},
		{"connections that firewall rules drop do not end", "Existing connections continue although a new rule drops them.", ifItGoesOn},
		{"a connection may get the port of a socket of this machine", "Ports of this machine's sockets could not be read, in modes that translate sources.", ifItGoesOn},
		{"sockets of this machine cannot be counted", "Closed connections of local sockets might still be counted.", ifItGoesOn},
		{"drops cannot be read", "", ifItGoesOn},
		{"lifetimes of connections cannot be read", "", ifItGoesOn},
		{"sizes of maps cannot be read", "", ifItGoesOn},
		{"source ports cannot be counted", "", ifItGoesOn},
		{"challenges cannot be read", "", ifItGoesOn},
		{"a policer's counters cannot be read", "", ifItGoesOn},
		{"maps of a dry run cannot be closed", "Memory of loxicmd explain is not freed until the daemon ends.", ifItGoesOn},
		{"a mirror's counters cannot be read", "", ifItGoesOn},
		{"the counters of XDP cannot be read", "", ifItGoesOn},
		{"packets without a row for their next hop cannot be counted", "", ifItGoesOn},
		{"packets of mobile users cannot be counted", "", ifItGoesOn},
		{"watching connections failed", "", "start it again"},
		{"tracing packets failed", "", "start it again"},
		{"connections could not be read to the end", "", "try again"},
		{"packets that firewall rules record cannot be written; trying again", "", "see error; check free disk space"},
		{"packets of firewall rules were not recorded", "A rule matched more than 100 packets per second and CPU, or the buffer was full.", "record fewer packets with narrower rules"},
		{"connections are not logged; trying again", "--flow-log or --ipfix cannot receive events from the kernel.", ifItGoesOn},
		{"connections are not logged", "The file or the collector does not accept events; lost counts lost events.", "fix the file's disk or the network to the collector; logging resumes automatically"},
		{"OpenTelemetry collector gives no valid answer", "what is the refused kind of data: metrics or events.", "check that the collector of --otlp-endpoint runs and accepts OTLP over HTTP"},
		{"the connection log could not be closed", "", "see error; check free disk space"},
	}
}

func network() []message {
	return []message{
		{"this node is no longer MASTER", "Its daemon did not run for longer than the lease of its role; another node may own the VIPs.", "if no node is MASTER: loxicmd set hastate MASTER"},
		{"problem", "what stops packets.", "see the hint in the line"},
		{"not working; trying again", "what names a component that follows or changes the network.", "see error; it resumes automatically after the fix"},
		{"reading the whole network state again", "The kernel sent more changes than the buffer holds; nothing is lost.", ""},
		{"following changes of kernel objects again", "The same, of interfaces and addresses that loxilb has made.", ""},
		{"cannot change the egress program of an interface", "Answers of endpoints on this machine are not handled on it.", "see error; the interface is tried again when it changes"},
		{"tunnels of egress gateways could not be removed", "", "see error; restart loxilb, or: ip rule del, ip link del"},
		{"interfaces that are no longer chosen are still attached; trying again", "Programs remain on interfaces that --whitelist or --blacklist now exclude.", ifItGoesOn},
	}
}

func dataPath() []message {
	return []message{
		{"nothing is balanced: the data path was detached", "Its pins were removed, by loxilb --detach or manually.", "restart loxilb"},
		{"VIPs cannot be released", "The data path was detached, and VIPs are still on lo.", "loxilb --detach --force"},
		{"BGP sessions cannot be ended", "The data path was detached, and routers may still send packets here.", "stop loxilb"},
		{"pins of network namespaces that are gone were not all removed", "", "remove what error names below /sys/fs/bpf/loxilb"},
		{"a pinned link cannot be adopted and is created again", "Packets of that interface go to the kernel for a moment.", ""},
		{"probe programs of an earlier process remain", "", ifItGoesOn},
		{"the connection table keeps its size, since it holds connections; `loxilb --detach` discards it", "--ct-max differs from the size of the existing table.", "to apply the new size, run loxilb --detach and start again; this ends all connections"},
		{"pinned maps removed, as --end-connections asks: connections end, counters restart at 0, and clients may get other endpoints", "The maps of an earlier version could not be taken over.", "remove --end-connections from the unit again"},
		{"not all stored services fit into the data path", "The tables are too small; the remaining services are not served.", "delete services, or endpoints; docs/operations.md has the limits"},
		{"the programs of this version replace the former ones without a trial", "Packets could not be tried in a separate network namespace.", ""},
		{"replaced programs", "", ifItGoesOn},
		{"restored the programs of the previous version", "Drops jumped when this version's programs took over.", "see loxilb_drops_total{reason}; report it, and start the previous version"},
		{"the service manager's watchdog is not served", "WATCHDOG_USEC in the environment is not a number, so systemd gets no keep-alives.", "remove it from the environment; set WatchdogSec= in the unit instead"},
		{"the service manager cannot be notified", "NOTIFY_SOCKET names a socket that does not accept messages.", "see systemctl status loxilb; a container needs the socket of its manager, or no NOTIFY_SOCKET"},
		{"flag without effect", "", "remove it"},
		{"the API is open because of --compat", "Anyone who can reach the API can change everything.", "close it with --api-users, --manualtoken or --tls; docs/replace-loxilb.md"},
		{"packets are not decapsulated; trying again", "An interface of loxilb agent is missing: packets of services in mode dsr with a tunnel are lost.", "create the interface again, or restart the agent with another --interface"},
		{"the CPU profile is incomplete", "", "see error; check free disk space"},
	}
}

func state() []message {
	return []message{
		{"state directory cannot be written: the state is as last stored, and changes are refused until it can", "Forwarding continues unchanged.", "free space on dir, or fix its permissions"},
		{"unfinished last line of the state journal dropped: its commit was never confirmed", "The machine or loxilb stopped during a change that was not reported as successful.", ""},
		{"state file damaged: set aside, and what could be read is kept", "", "compare loxicmd get all with the intended configuration; the damaged file is kept (aside)"},
		{"state record of an unknown kind or format: it is kept, and has no effect until a loxilb that supports it runs", "", "run the newer loxilb that wrote it, or put or delete the object to replace it"},
		{"new state journal failed, the old one stays in use", "Nothing is lost; the journal grows.", "free space on dir"},
		{"state snapshot failed, the journals keep everything", "Nothing is lost; a start takes longer.", "free space on dir"},
		{"duplicate VIPs cannot be detected", "The socket that receives frames of other hosts could not be opened; all else works.", "see error, and restart loxilb"},
		{"role cannot be stored; trying again", "Routes, VIPs and peers still follow the former role.", "free space on the state directory, or fix its permissions"},
		{"the session of --ka cannot be stored", "This node neither speaks BFD with its peer nor changes roles.", "see error; fix --ka or the state directory, and restart loxilb"},
		{"a MASTER that was killed might stay MASTER at its next start", "The file of leases cannot be opened, so the next start cannot tell how long it was away.", "free space on the state directory, or fix its permissions"},
		{"lease of VIPs cannot be set", "The kernel of this node stops answering for VIPs of the instance.", "see error; restart loxilb"},
		{"lease of a VIP cannot be set", "If the daemon dies, the kernel answers for the VIP although another node owns it.", "see error; restart loxilb"},
		{"leases of VIPs cannot be removed", "The kernel does not answer for VIPs of instances that are no longer elected.", "see error; restart loxilb"},
		{"leases of an earlier process cannot be removed", "The kernel may not answer for VIPs that are no longer of elected instances.", "see error; restart loxilb"},
		{"the service manager does not report whether it restarts this daemon", "The node hands its VIPs over, as if it stopped.", "check that systemctl list-jobs works for this process"},
		{"the node is drained, and this cannot be stored; trying again", "Its VIPs stay announced, with the lowest preference.", "free space on the state directory, or fix its permissions"},
		{"no other node took over while this one drained", "The node gave up the role MASTER, and its VIPs may have no owner.", "make another node MASTER, or run loxicmd node resume; keepalived needs a track_script that queries /readyz"},
		{"edit panicked", "", "report it with the line's stack"},
		{"commit failed", "", "see error; check free disk space"},
		{"earlier revisions cannot be read: rollback to them is not possible", "", "keep your own copies of the configuration (loxicmd save)"},
		{"an unconfirmed change will not be rolled back: the file of revisions is damaged", "loxilb cannot tell if the change was confirmed, and keeps it.", "see loxicmd get revisions; undo it with loxicmd rollback"},
		{"revisions are missing: rollback before them is not possible", "An earlier version ran in the meantime, or the last revisions were not written.", ""},
		{"revision not written: rollback to it will not be possible after a restart", "The change itself is stored.", "free space in --state-dir"},
		{"automatic rollback failed, and is tried again", "", "see error; roll back manually with loxicmd rollback"},
		{"automatic rollback: a change was not confirmed in time", "The time of apply --confirm is over; the previous configuration is restored.", "to keep the change, apply it again and run loxicmd confirm"},
		{"a change that the kernel refused could not be undone", "The object is stored, but not applied.", "loxicmd get status --failed; delete the object"},
		{"the time of the state could not be noted: boot files will look older if this start fails", "Boot files might be skipped at the next start.", "free space on dir, or fix its permissions"},
	}
}

func api() []message {
	const mendBootFile = "fix the line and load it again: loxicmd apply"
	return []message{
		{"nobody can log in", "", "fix the file that error names; root can use the API through its socket"},
		{"new certificate not used, the old one stays", "--tls-certificate or --tls-key changed, and do not match.", "fix both files; they are read again"},
		{"a request could not be written to the audit log", "The log line contains the audit record.", "free space in --state-dir"},
		{"unknown property ignored because of --compat", "A client sent a property that has no effect here.", "see docs/compatibility.md for the replacement"},
		{"boot file cannot be read", "", "see error"},
		{"boot file", "An entry is interpreted differently than written; note explains how.", "see note"},
		{"boot file: an object is refused", "The others are served; error is the reason.", mendBootFile},
		{"boot file: its objects cannot be stored now; they are read again at the next start", "The state could not be written.", "make room in --state-dir, and restart loxilb"},
		{"cannot record that the boot files were read: the next start may read them again, or skip them", "", "free space in --state-dir"},
	}
}
