/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stages.h - which stage of the packet path may call which.
 *
 * Each folder is a stage. A stage may include the headers of the stages above it in
 * this list, and abi.h, maps.h, config.h and shared.h; never those below it. TestStages
 * compares the list with the includes. The programs (*.bpf.c) may include every stage.
 *
 *	packet     access to the packet, checksums, addresses
 *	protocol   TCP, UDP, SCTP and ICMP, a file each, and the switches by which stages ask them
 *	parse      reads Ethernet and IP headers, and lets the protocol read its own
 *	decap      reads and removes the outer header of an arriving packet
 *	gtp        the headers of GTP-U
 *	probe      gives answers to the daemon's probes of VIPs back to it
 *	table      the connection table: buckets, rows, growth, states of entries
 *	lease      drops requests for VIPs that another node or interface answers
 *	path       the kernel's routes and local addresses, and a cache of them
 *	observe    counters, mirrors, records, traces, connection events, copies for other nodes
 *	filter     recognizes packets that concern no service and no connection
 *	service    finds the service and chooses the endpoint
 *	quic       reads connection IDs of QUIC, and finds their endpoint
 *	limit      connection limits, policers, known clients, pressure
 *	conntrack  finds, expires and ends connections
 *	tcp        the state machine of TCP, handshakes, MSS
 *	sctp       the state machine of SCTP
 *	proxy      the header of the PROXY protocol, and the numbers that it shifts
 *	helper     connections that a service's protocol opens besides: TFTP, FTP
 *	translate  addresses, ports, IP versions, ICMP errors, tunnels
 *	rules      the tree of firewall rules, and that of IPsec policies
 *	route      next hops, their cache, MTU
 *	forward    sends a packet out, or answers its sender
 *	firewall   judges packets by firewall rules
 *	protect    challenges clients while half-open connections are many
 *	open       opens a connection, step by step
 *	sweep      frees rows, follows endpoints that are removed
 *	cluster    inserts copies of other nodes' connections, and lists own ones for them
 *	host       connections of sockets of this machine to VIPs
 */
