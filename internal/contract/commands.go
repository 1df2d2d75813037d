package contract

import "slices"

// Commands returns the commands of loxicmd.
func Commands() []Section[Command] {
	return slices.Concat(general(), balancingCommands(), filteringCommands(), networkCommands(), clusteringCommands(), daemonCommands())
}

func general() []Section[Command] {
	return []Section[Command]{
		{"loxicmd", []Command{
			{Path: "", Flags: "timeout,t protocol output,o apiserver,s port,p token", State: Better, Note: "--port takes 1 to 65535; --server, --context, --socket, --cacert, --insecure, -o yaml; exit status 1 if the server refuses, with its error on standard error"},
			{Path: "version"},
			{Path: "options", State: Ours},
			{Path: "completion bash"},
			{Path: "completion zsh"},
			{Path: "completion fish"},
			{Path: "completion powershell"},
		}},
		{"Contexts", []Command{
			{Path: "config get-contexts", State: Ours},
			{Path: "config use-context", State: Ours},
			{Path: "config set-context", State: Ours},
			{Path: "config delete-context", State: Ours},
			{Path: "config view", State: Ours},
		}},
		{"Descriptions", []Command{
			{Path: "describe endpoint", State: Ours},
			{Path: "describe drain", State: Ours},
			{Path: "describe firewall", State: Ours},
			{Path: "describe policy", State: Ours},
			{Path: "describe mirror", State: Ours},
			{Path: "describe session", State: Ours},
			{Path: "describe sessionulcl", State: Ours},
			{Path: "describe port", State: Ours},
			{Path: "describe ip", State: Ours},
			{Path: "describe route", State: Ours},
			{Path: "describe neighbor", State: Ours},
			{Path: "describe vlan", State: Ours},
			{Path: "describe vxlan", State: Ours},
			{Path: "describe fdb", State: Ours},
			{Path: "describe hastate", State: Ours},
			{Path: "describe user", State: Ours},
			{Path: "describe revisions", State: Ours},
			{Path: "describe process", State: Ours},
			{Path: "describe filesystem", State: Ours},
		}},
		{"Files", []Command{
			{Path: "apply", Flags: "ip,i per-intf ipv4route,r config-path,c lb,l session ulcl firewall bfd file,f", State: Differs, Note: "all files or nothing; several documents, folders, standard input; errors have line and column; keeps every property of services; no shell reads lines of --ip and --per-intf, and their objects are kept; --prune, --confirm"},
			{Path: "save", Flags: "all,a ip,i lb,l session ulcl firewall endpoint bfd config-path,c", State: Differs, Note: "services keep all fields; files are replaced atomically, and the folder is created; probeInterval is exact, next to probeDuration; --ip writes ipconfig/ with IPv6, without mtu, mode, real, info and members, and reports routes that apply would refuse; --session and --ulcl are refused; -f writes everything as YAML"},
			{Path: "import", State: Ours},
			{Path: "export", State: Ours},
			{Path: "create", Flags: "", State: Better, Note: "-f takes a file, as apply does"},
			{Path: "delete", Flags: "file,f", State: Better, Note: "all files or nothing, several documents"},
			{Path: "plan", State: Ours},
			{Path: "confirm", State: Ours},
			{Path: "rollback", State: Ours},
			{Path: "get revisions", State: Ours},
			{Path: "get drops", State: Ours},
		}},
	}
}

func balancingCommands() []Section[Command] {
	return []Section[Command]{
		{"Services", []Command{
			{Path: "create lb", Flags: "tcp udp sctp icmp mode select endpoints secips sources mark bgp monitor inatimeout name attachEP detachEP security host ppv2en egress", State: Better, Note: "several ports and protocols in one command, all or nothing; unknown words are refused; the server refuses --security and --host; --bgp withdraws VIPs that no endpoint serves; requires --force if a service would intercept your ssh session, the API, or other connections of the machine itself"},
			{Path: "get loadbalancer", Aliases: "lb lbs loadbalancers", Flags: "servName", Columns: "Ext IP,Port,Proto,Name,Mark,Sel,Mode,# of Endpoints,Timeout,Monitor", Wide: "Ext IP,Sec IPs,Sources,Host,Port,Proto,Name,Mark,Sel,Mode,Endpoint,EPort,Weight,State,Counters", State: Better, Note: "wide has a status; the server selects, sorts and pages; -o name, jsonpath and custom-columns; -w, for all kinds"},
			{Path: "delete lb", Flags: "tcp udp sctp icmp bgp mark name host", State: Better, Note: "several ports and VIPs, all or nothing; --all"},
			{Path: "describe lb", State: Ours},
			{Path: "stats", State: Ours, Note: "as ipvsadm -Ln --stats"},
			{Path: "rate", State: Ours, Note: "as ipvsadm -Ln --rate"},
			{Path: "top", State: Ours, Note: "the same each second, full screen"},
		}},
		{"Endpoints", []Command{
			{Path: "create endpoint", Aliases: "ep Endpoint endpoints", Flags: "name desc probetype probereq proberesp probeport period retries", State: Differs, Note: "--period is 2 s and --retries 3 by default, not 60 s and 2: a dead endpoint is out after seconds"},
			{Path: "get endpoint", Aliases: "ep endpoints", Columns: "Host,Name,ptype,port,duration,retries,minDelay,avgDelay,maxDelay,State", State: Better, Note: "also since when, and why; wide has the previous states"},
			{Path: "delete endpoint", Aliases: "ep Endpoint endpoints", Flags: "name probetype probeport"},
			{Path: "set endpoint", State: Ours},
			{Path: "drain endpoint", State: Ours},
			{Path: "undrain endpoint", State: Ours},
			{Path: "node drain", State: Ours},
			{Path: "node resume", State: Ours},
			{Path: "get node", State: Ours},
			{Path: "get drain", State: Ours},
		}},
		{"Connections", []Command{
			{Path: "get conntrack", Aliases: "ct cts conntracks", Flags: "servName", Columns: "Service Name,destIP,srcIP,dport,sport,proto,ident,state,act,packets,bytes", State: Better, Note: "the server filters and pages; prints while reading; -w follows"},
			{Path: "kill ct", State: Ours},
		}},
	}
}

func filteringCommands() []Section[Command] {
	const (
		firewall = "fw firewalls Firewall"
		policy   = "pol policys pols polices"
		mirror   = "mirr mirrors"
		ulcl     = "ulcl ulcls sessionulcls"
	)
	return []Section[Command]{
		{"Firewall rules", []Command{
			{Path: "create firewall", Aliases: firewall, Flags: "firewallRule allow drop trap redirect snat record setmark egress", State: Differs, Note: "--record writes files for tcpdump instead of copying to llb0; values may contain colons (IPv6); protocols by name, maxProtocol; more than one action is refused"},
			{Path: "get firewall", Aliases: firewall, Columns: "Source IP,destination IP,min SPort,max SPort,min DPort,max DPort,protocol,port Name,preference,Option", Wide: "Source IP,destination IP,min SPort,max SPort,min DPort,max DPort,protocol,port Name,preference,Option,Counters"},
			{Path: "delete firewall", Aliases: firewall, Flags: "firewallRule all", State: Better, Note: "--all"},
		}},
		{"Policers", []Command{
			{Path: "create policy", Aliases: policy, Flags: "rate target block-size color pol-type", State: Better, Note: "units (10kbit, 5000pps), services, clients and firewall rules, --direction"},
			{Path: "get policy", Aliases: policy, Columns: "Ident,peakInfoRate,committedInfoRate", Wide: "Ident,peakInfoRate,committedInfoRate,excessBlkSize,committedBlkSize,policyType,ColorAware,polObjName,attachment", State: Better, Note: "-o wide has counters of each color"},
			{Path: "delete policy", Aliases: policy},
		}},
		{"Mirrors", []Command{
			{Path: "create mirror", Aliases: mirror, Flags: "mirrorInfo targetObject", State: Better, Note: "ERSPAN, VXLAN, services, clients and firewall rules too; sample; attachment may be spelled correctly; IPv6 addresses"},
			{Path: "get mirror", Aliases: mirror, State: Better, Note: "-o wide has counters"},
			{Path: "delete mirror", Aliases: mirror},
		}},
		{"Sessions of mobile networks", []Command{
			{Path: "create session", Aliases: "sessions", Flags: "accessNetworkTunnel coreNetworkTunnel"},
			{Path: "get session", Aliases: "sessions"},
			{Path: "delete session", Aliases: "sessions"},
			{Path: "create sessionulcl", Aliases: ulcl, Flags: "ulclArgs", State: Better, Note: "IPv6 addresses too"},
			{Path: "get sessionulcl", Aliases: ulcl},
			{Path: "delete sessionulcl", Aliases: ulcl, Flags: "ulclArgs", State: Better, Note: "several addresses"},
		}},
	}
}

func networkCommands() []Section[Command] {
	return []Section[Command]{
		{"Ports", []Command{
			{Path: "get port", Columns: "index,portname,MAC,link/state,L3Info,L2Info", Wide: "index,portname,MAC,link/state,mtu,isActive/bpf,Port type,Statistics,L3Info,L2Info,Sync", State: Better, Note: "the counters are the kernel's"},
		}},
		{"VLANs", []Command{
			{Path: "create vlan", State: Better, Note: "kept over restarts"},
			{Path: "get vlan", Columns: "Device Name,Vlan ID,Member", Wide: "Device Name,Vlan ID,Member,Statistics", State: Better, Note: "the members' counters"},
			{Path: "delete vlan", State: Better, Note: "requires --force if it carries your ssh session, or other connections of the machine itself"},
			{Path: "create vlanmember", Aliases: "vlanMember vlan-member vlan_member", Flags: "tagged", State: Better, Note: "kept over restarts; requires --force if it carries your ssh session, or other connections of the machine itself"},
			{Path: "delete vlanmember", Flags: "tagged"},
		}},
		{"VXLAN tunnels", []Command{
			{Path: "create vxlan", State: Better, Note: "kept over restarts"},
			{Path: "get vxlan", Columns: "Device Name,Vxlan ID,endpoint interface,Peer IP"},
			{Path: "delete vxlan", State: Better, Note: "requires --force if it carries your ssh session, or other connections of the machine itself"},
			{Path: "create vxlanpeer", Aliases: "vxlanPeer vxlan-peer vxlan_peer", State: Better, Note: "kept over restarts"},
			{Path: "delete vxlanpeer"},
		}},
		{"Forwarding entries", []Command{
			{Path: "create fdb", State: Better, Note: "kept over restarts"},
			{Path: "get fdb", Columns: "Device Name,MAC Address"},
			{Path: "delete fdb"},
		}},
		{"Neighbours", []Command{
			{Path: "create neighbor", Aliases: "nei neigh", Flags: "macAddress", State: Better, Note: "IPv6 too; kept over restarts"},
			{Path: "get neighbor", Aliases: "nei neigh", Columns: "IP Address,Device Name,Mac Address"},
			{Path: "delete neighbor"},
		}},
		{"Routes", []Command{
			{Path: "create route", Flags: "proto", State: Better, Note: "IPv6 too; kept over restarts; a repetition with another gateway changes it"},
			{Path: "get route", Columns: "destinationIPNet,gateway,flag", Wide: "destinationIPNet,gateway,flag,HardwareMark,packets,bytes", State: Better, Note: "wide has interface and metric"},
			{Path: "delete route", State: Better, Note: "requires --force if it carries your ssh session, or other connections of the machine itself"},
		}},
		{"Addresses", []Command{
			{Path: "create ip", Aliases: "ipv4address ipv4 ipaddress", State: Better, Note: "IPv6 too; kept over restarts"},
			{Path: "get ip", Aliases: "ipv4address ipv4", Columns: "Device Name,IP Address", Wide: "Device Name,IP Address,Sync", State: Better, Note: "IPv6 addresses too"},
			{Path: "delete ip", State: Better, Note: "requires --force if it carries your ssh session, or other connections of the machine itself"},
		}},
	}
}

func clusteringCommands() []Section[Command] {
	return []Section[Command]{
		{"Roles", []Command{
			{Path: "get hastate", Aliases: "ha HAstate", Columns: "Instance,HAState"},
			{Path: "set hastate", State: Ours},
			{Path: "get cluster", State: Ours},
			{Path: "create clusternode", State: Ours},
			{Path: "get clusternode", State: Ours},
			{Path: "describe clusternode", State: Ours},
			{Path: "delete clusternode", State: Ours},
		}},
		{"BFD", []Command{
			{Path: "create bfd", Aliases: "bfd-session", Flags: "instance sourceIP interval retryCount", State: Better, Note: "IPv6, --priority, --preempt, --multihop"},
			{Path: "get bfd", Columns: "Instance,RemoteIP,State", Wide: "Instance,RemoteIP,SourceIP,Port,Interval,Retry Count,State", State: Better, Note: "-o wide also shows the role and why this node has it"},
			{Path: "set bfd", Flags: "instance interval retryCount", State: Better, Note: "--priority, --preempt"},
			{Path: "delete bfd", Flags: "instance"},
			{Path: "describe bfd", State: Ours},
		}},
		{"BGP", []Command{
			{Path: "create bgpneighbor", Aliases: "bgpnei bgpneigh", Flags: "remotePort setMultiHtop", State: Better, Note: "ports above 255; also times, BFD, a password and others"},
			{Path: "get bgpneighbor", Aliases: "bgpnei bgpneigh", Columns: "Peer,AS,UP/Down,State", State: Better, Note: "-o wide also shows prefixes, flaps and the last error"},
			{Path: "delete bgpneighbor", State: Better, Note: "the AS may be omitted"},
			{Path: "describe bgpneighbor", State: Ours},
			{Path: "set bgp", State: Ours},
			{Path: "get bgp", State: Ours},
			{Path: "describe bgp", State: Ours},
			{Path: "delete bgp", State: Ours},
			{Path: "create bgpset", State: Ours},
			{Path: "get bgpset", State: Ours},
			{Path: "describe bgpset", State: Ours},
			{Path: "delete bgpset", State: Ours},
			{Path: "get bgppolicy", State: Ours},
			{Path: "describe bgppolicy", State: Ours},
			{Path: "delete bgppolicy", State: Ours},
			{Path: "create bgpapply", State: Ours},
			{Path: "get bgpapply", State: Ours},
			{Path: "describe bgpapply", State: Ours},
			{Path: "delete bgpapply", State: Ours},
		}},
	}
}

func daemonCommands() []Section[Command] {
	return []Section[Command]{
		{"The machine", []Command{
			{Path: "get process", Aliases: "Process processes", Columns: "pid,user,priority,nice,virtMemory,residentSize,sharedMemory,status,CPUUsage,MemoryUsage,time,command", State: Better, Note: "shows the time, which was missing"},
			{Path: "get device", Aliases: "devices", Columns: "hostName,machineID,bootID,OS,kernel,architecture,uptime", State: Better, Note: "did not work before"},
			{Path: "get filesystem", Aliases: "fs", Columns: "fileSystem,type,size,used,avail,usePercent,mountedOn", State: Better, Note: "did not work before"},
		}},
		{"The daemon", []Command{
			{Path: "get lbversion", Aliases: "llbversion LBversion LBVersion", Columns: "LoxiLB Version,LoxiLB Build Info", State: Better, Note: "wide has the network namespace and the object ABI"},
			{Path: "get status", State: Ours},
			{Path: "get events", State: Ours},
			{Path: "ready", State: Ours, Note: "exit code for health checks of containers"},
			{Path: "verify", State: Ours},
			{Path: "doctor", State: Ours},
			{Path: "explain", State: Ours, Note: "how a packet would be handled, and why"},
			{Path: "support-bundle", State: Ours},
			{Path: "trace", State: Ours},
			{Path: "get log-level", Aliases: "loglevel", Columns: "Param Name,Value"},
			{Path: "set log-level", Aliases: "loglevel"},
		}},
		{"Users", []Command{
			{Path: "set login", Flags: "provider", State: Better, Note: "the token's file is readable by its owner only; the provider is none, or manual"},
			{Path: "set logout", Flags: "provider", State: Same},
			{Path: "set refresh", Flags: "provider", State: Unsupported, Note: noOAuth},
			{Path: "create user", State: Ours},
			{Path: "get user", State: Ours},
			{Path: "set user", State: Ours},
			{Path: "delete user", State: Ours},
			{Path: "get audit", State: Ours},
		}},
	}
}
