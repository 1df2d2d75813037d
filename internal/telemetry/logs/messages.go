package logs

const hintKey = "hint"

// message is one that warns, or tells of an error.
type message struct {
	text  string
	means string
	hint  string // what to do, in a line; empty: nothing
}

// hintOf is what to do about a message, or empty.
func hintOf(text string) string {
	for _, area := range areas() {
		for _, m := range area.messages {
			if m.text == text {
				return m.hint
			}
		}
	}
	return ""
}

// area is messages that belong together.
type area struct {
	name     string
	messages []message
}

// areas are all messages at levels warning and error: TestMessages compares with the source, and docs/log-messages.md is made of them.
func areas() []area {
	return []area{
		{"Endpoints and services", services()},
		{"Connections and packets", packets()},
		{"The network of this machine", network()},
		{"The start, upgrades and the data path", dataPath()},
		{"The stored state", state()},
		{"The API and its files", api()},
		{"The log itself", []message{
			{leftOut, "A message came more than 100 times in a minute; so many of its lines were left out.", "loxicmd get status and loxicmd get events have the present state of everything"},
			{"the level of the log was changed", "Somebody has changed it by the API (`loxicmd set log-level`).", ""},
		}},
	}
}

// Of what cannot be read of the kernel once: it is read again, and only what goes on is anybody's concern.
const ifItGoesOn = "if it goes on, see dmesg, and restart loxilb: connections stay"

func services() []message {
	return []message{
		{"endpoint is down", "Its probes, its agent or its handshakes say so; `evidence` is what was seen last.", "loxicmd get endpoint says why; mend the endpoint, it comes back by itself"},
		{"more endpoints have become up or down", "So many changed at once that the rest is counted.", "loxicmd get endpoint lists them all"},
		{"service serves no clients", "All endpoints of the service are down or drained, as `endpoints` counts them: new clients are refused.", "loxicmd describe lb shows why each endpoint is out; repair or undrain one, or add one"},
		{"more services have stopped serving clients, or serve again", "The state of many services changed at once: the rest is counted.", "loxicmd get lb shows the state of each"},
		{"backups get new connections: too little of those before them is up", "The service has gone to its next level of priority.", "loxicmd get endpoint says which are down"},
		{"probes are late, as there are no descriptors for all; raise the limit of open files (LimitNOFILE), or probe less often", "More probes are due than the process may have sockets.", "raise LimitNOFILE of the unit, or probe less often (--period)"},
		{"a file of a probe cannot be used", "A CA, certificate or key of an https probe is missing, or is none.", "mend the file below --probe-files; it is read again"},
		{"object is not in the data path as it should be; trying again", "What the kernel has differs from what was asked for; `error` says why, `next_try` when it is tried again.", "loxicmd get status --failed; mend what error names, or delete the object"},
		{"more objects are not in the data path as they should be", "The rest of them, counted.", "loxicmd get status --failed lists them"},
		{"services of an earlier start are still in the data path; trying again", "Services that nobody wants any more could not be taken out, and still balance.", ifItGoesOn},
		{"VIP is not given up; trying again", "An address of a service that is gone is still on an interface.", "ip address del VIP dev INTERFACE, if it stays"},
		{"counters cannot be read", "The numbers of a service or an endpoint lack something.", ifItGoesOn},
		{"counters of handshakes cannot be read", "Endpoints are not judged by their handshakes meanwhile.", ifItGoesOn},
		{"rates are not known, as counters cannot be read", "Rates are missing until counters can be read.", ifItGoesOn},
		{"role hook is not run: the name of the instance may have letters, digits, '.', '_' and '-', not first", "A program is called by names that cannot be mistaken for anything else.", "give the instance another name"},
		{"role hook is not run", "The file of --role-hook is missing, or others than root can change it.", "make it root's, not writable by others, and executable"},
		{"role hook was ended: it took too long", "It, and all that it has started, was killed.", "have it do what takes long in the background of another service"},
		{"role hook failed", "It has ended with an error.", "run it by hand with the arguments of docs/operations.md"},
	}
}

func packets() []message {
	return []message{
		{"packets dropped", "So many packets in the last second for this reason; docs/drop-reasons.md has all of them.", "docs/drop-reasons.md"},
		{"connections are under pressure", "Half-open connections have their share of the table, or source ports are short: clients that are not known are challenged or refused.", "loxicmd get status; is it a flood of SYNs? if clients are true, raise --ct-max, or add addresses (--snat) if source ports are short"},
		{"the connection table cannot grow", "The kernel gives no memory for more rows.", "new connections are refused once it is full; is there memory left?"},
		{"sweep failed", "Connections that are over keep their rows for now; packets of theirs are refused as they should.", ifItGoesOn},
		{"the packet path cannot be told when the next sweep comes", "Packets free expired connections themselves, as without a daemon.", ifItGoesOn},
		{"connections that are watched cannot be judged", "Endpoints that accept connections and never answer are not found for now.", ifItGoesOn},
		{"pressure cannot be told", "How full the table is could not be read; the sweep goes at its usual pace.", ifItGoesOn},
		{"connections cannot be counted", "The number of connections is missing in an answer.", ifItGoesOn},
		{"connections of endpoints can't be ended; trying again", "Connections of an endpoint that is down, or was drained, go on for now.", ifItGoesOn},
		{"the ends of idle connections are not told", "Connections that were silent for their timeout end without RSTs.", ifItGoesOn},
		{"ends of idle connections cannot be counted", "The counter of such connections lacks some.", ifItGoesOn},
		{"connections that firewall rules drop do not end", "Connections that are there go on although a new rule drops them.", ifItGoesOn},
		{"a connection may get a port that a socket of this machine has, too", "Ports of this machine's sockets could not be read, in modes that translate sources.", ifItGoesOn},
		{"sockets of this machine cannot be counted", "Connections of this machine's own sockets may count although they are closed.", ifItGoesOn},
		{"drops cannot be read", "Counters of drops are missing.", ifItGoesOn},
		{"lifetimes of connections cannot be read", "Histograms of how long connections lived, and of what they carried, are missing.", ifItGoesOn},
		{"sizes of maps cannot be read", "Metrics of how full the tables are, and what they take, are missing.", ifItGoesOn},
		{"source ports cannot be counted", "The number of source ports in use is missing in an answer.", ifItGoesOn},
		{"challenges cannot be read", "Counters of challenged clients are missing.", ifItGoesOn},
		{"a policer's counters cannot be read", "Its colors are missing in an answer.", ifItGoesOn},
		{"maps of a dry run cannot be closed", "Something of what `loxicmd explain` asked the data path stays in memory until the daemon ends.", ifItGoesOn},
		{"a mirror's counters cannot be read", "Its copies are missing in an answer.", ifItGoesOn},
		{"what XDP has forwarded cannot be read", "Counters of XDP are missing.", ifItGoesOn},
		{"packets without a row for their next hop cannot be counted", "A counter is missing in an answer.", ifItGoesOn},
		{"connections could not be watched any longer", "A stream of connections (`loxicmd get ct -w`) has ended early.", "begin it again"},
		{"packets could not be traced any longer", "`loxicmd trace` has ended early.", "begin it again"},
		{"connections could not be read to the end", "A list of connections lacks some.", "ask again"},
		{"what firewall rules record is not written; trying again", "The file of --record could not be written.", "is the disk full? see error"},
		{"packets of firewall rules were not recorded", "There were more than 100 a second of a rule and CPU, or no room.", "record fewer packets, by narrower rules"},
		{"connections are not logged; trying again", "--flow-log or --ipfix cannot have events from the kernel.", ifItGoesOn},
		{"connections are not logged", "The file or the collector takes nothing; `lost` is how many events were lost.", "mend the file's disk, or the way to the collector; it goes on by itself"},
		{"OpenTelemetry has no answer that is one", "The collector of --otlp-endpoint takes no metrics, or no events; `what` says which.", "see that the collector of --otlp-endpoint runs, and takes OTLP over HTTP there"},
		{"the log of connections was not closed well", "The last lines of it may be missing.", "is the disk full? see error"},
	}
}

func network() []message {
	return []message{
		{"problem", "Something in the network keeps packets from where they should go; `what` says what, `hint` what mends it.", "as the line's own hint says"},
		{"not working; it is tried again", "A part that follows or changes the network fails; `what` says which.", "see error; it goes on by itself once that is mended"},
		{"network is read again as a whole", "The kernel has told of more changes than there was room for; nothing is lost.", ""},
		{"changes of the kernel's objects are followed anew", "The same, of interfaces and addresses that loxilb has made.", ""},
		{"an interface does not follow endpoints on this machine", "Answers of endpoints on this machine are not taken at it.", "see error; the interface is tried again when it changes"},
		{"interfaces that are no longer chosen are still attached; trying again", "The programs stay at interfaces that --whitelist or --blacklist leave out now.", ifItGoesOn},
	}
}

func dataPath() []message {
	return []message{
		{"nothing is balanced: the data path was taken away from this daemon", "Its pins are gone: by loxilb --detach, or by hand.", "restart loxilb"},
		{"pins of network namespaces that are gone were not all removed", "Some memory of the kernel stays taken.", "remove what error names below /sys/fs/bpf/loxilb"},
		{"a pinned link cannot be adopted and is made anew", "Packets of that interface go to the kernel for a moment.", ""},
		{"what an earlier process has left for probes stays", "Programs for probes of an earlier process are still attached.", ifItGoesOn},
		{"the connection table keeps its size, since it holds connections; `loxilb --detach` gives it up", "--ct-max differs from the size of the table that is there.", "loxilb --detach and a start give it the new size, and end all connections"},
		{"connections end, counters begin at 0, and no client is known, as --end-connections asks", "The maps of an earlier version could not be taken over.", "take --end-connections out of the unit again"},
		{"the stored services do not all fit into the data path", "There are more of them than the tables take; the rest is not served.", "delete services, or endpoints; docs/operations.md has the limits"},
		{"the programs of this version take the place of others without a trial", "Packets could not be tried in a network namespace of their own.", ""},
		{"programs that were replaced", "The programs of the version before could not be kept, or given up.", ifItGoesOn},
		{"the programs of the version before are back", "Drops jumped when this version's programs took over.", "loxilb_drops_total{reason} says why; report it, and start the version before"},
		{"the service manager's watchdog is not served", "WATCHDOG_USEC in the environment is no number, so nothing tells systemd that the daemon is alive.", "take it out of what starts loxilb; WatchdogSec= in a unit sets it right"},
		{"the service manager is not told how this daemon is", "NOTIFY_SOCKET names a socket that does not take messages.", "see systemctl status loxilb; a container needs the socket of its manager, or no NOTIFY_SOCKET"},
		{"flag without effect", "It is one of the existing loxilb's that changes nothing here.", "leave it out"},
		{"the API is open, as --compat has it", "Whoever reaches the API may change everything.", "--api-users, --manualtoken or --tls close it; docs/replace-loxilb.md"},
		{"the CPU profile is not whole", "--cpuprofile could not be written.", "is the disk full? see error"},
	}
}

func state() []message {
	return []message{
		{"state directory cannot be written: the state is as last stored, and changes are refused until it can", "Everything goes on as it is.", "make room, or mend the permissions, of dir"},
		{"unfinished last line of the state journal dropped: its commit was never confirmed", "The machine, or loxilb, went down in the middle of a change that nobody was told had succeeded.", ""},
		{"state file damaged: set aside, and what could be read is kept", "A file below --state-dir is not as it was written.", "compare loxicmd get all with what should be there; the file is kept beside (aside)"},
		{"state record kept without being understood: it is not served until a loxilb runs that knows it", "A newer version has written it.", "run the newer loxilb that wrote it, or put or delete the object to replace it"},
		{"new state journal failed, the old one goes on", "Nothing is lost; the journal grows.", "make room in dir"},
		{"state snapshot failed, the journals keep everything", "Nothing is lost; a start takes longer.", "make room in dir"},
		{"edit panicked", "A fault of loxilb: the change was refused, all else goes on.", "report it with the line's stack"},
		{"commit failed", "A change was not stored, and was refused.", "is the disk full? see error"},
		{"earlier revisions cannot be read, so there is no going back to them", "The file of revisions is damaged.", "keep configurations in files of your own (loxicmd save)"},
		{"a change that waited for confirmation stays: whether it was confirmed cannot be read", "It is not undone.", "loxicmd get revisions, and loxicmd rollback if it is not wanted"},
		{"revisions were made without being remembered, so there is no going back before them", "An earlier version has run meanwhile.", ""},
		{"revision not written: going back to it will not be possible after a restart", "The change itself is stored.", "make room in --state-dir"},
		{"automatic rollback failed, and is tried again", "The time of apply --confirm is over.", "see error; loxicmd rollback does it by hand"},
		{"automatic rollback: a change was not confirmed in time", "The time of apply --confirm is over; the configuration is as before.", "apply it again and run loxicmd confirm, if it was right"},
		{"a change that the kernel refused could not be undone", "The object is stored, but not there.", "loxicmd get status --failed; delete the object"},
		{"the time of the state could not be noted: boot files will look older if this start fails", "Boot files may be passed over at the next start.", "make room, or mend the permissions, of dir"},
	}
}

func api() []message {
	const mendBootFile = "mend the line, and load it again: loxicmd apply"
	return []message{
		{"nobody can log in", "The file of users cannot be read.", "mend the file that error names; root reaches the API by its socket"},
		{"new certificate not used, the old one stays", "--tls-certificate or --tls-key have changed, and do not fit.", "mend both files; they are read again"},
		{"a request could not be written to the audit log", "The line has what was to be written.", "make room in --state-dir"},
		{"a property that is not known is passed over, as --compat has it", "A client sends something that has no meaning here.", "docs/compatibility.md says what is used instead"},
		{"boot file cannot be read", "A file of the existing loxilb's configuration could not be opened.", "see error"},
		{"boot file", "Something in it is taken otherwise than it says; `note` says how.", "see note"},
		{"boot file: an object is refused", "The others are served; `error` says why.", mendBootFile},
		{"boot file: what is in it cannot be stored now, and counts again at the next start", "The state could not be written.", "make room in --state-dir, and restart loxilb"},
		{"which boot files were read could not be noted: they may count again, or not, at the next start", "The state directory could not be written.", "make room in --state-dir"},
	}
}
