/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * abi.h - every struct and enum that user space sees: the one source of truth.
 *
 * bpf2go makes the Go types from it. Fixed-width members, explicit padding, no
 * bitfields, no anonymous unions; members in network byte order are __be16 or
 * __be32, all others are in the machine's order. A size that changes is an ABI
 * change: pinned maps of another layout are refused at start.
 */
#ifndef LOXILB_ABI_H
#define LOXILB_ABI_H

#include <linux/types.h>

#define SLOT_SEGMENTS 1024
#define SLOTS_PER_SEGMENT 65536
#define MAX_SERVICES 65536
#define MAX_ENDPOINTS 262144
#define MAX_LINKS 16384
#define MAX_REASONS 64 /* room for new ones in maps that are pinned */

/* Why a packet was dropped. The name in lower case, without DROP_ and with '-'
 * for '_', is the metric label, the text in logs and the row in
 * docs/drop-reasons.md, which is made from these comments. */
enum drop_reason {
	DROP_NONE, /* not dropped */
	DROP_NO_ENDPOINT, /* the service has no endpoint that takes new connections */
	DROP_NO_CONNECTION, /* a TCP segment other than SYN for a service, of no connection in the table */
	DROP_CONNTRACK_FULL, /* the connection table is full: new connections are refused, established ones go on */
	DROP_TUPLE_IN_USE, /* every endpoint tried already has a connection with this client address and port */
	DROP_CONNECTION_RACE, /* a new connection met itself on another CPU, or its service being replaced; the sender repeats */
	DROP_TTL_EXPIRED, /* TTL or hop limit would reach zero */
	DROP_MARTIAN_SOURCE, /* the source is loopback, multicast, unspecified or the VIP itself */
	DROP_MALFORMED, /* a TCP or UDP header that contradicts the packet's length */
	DROP_FRAGMENT, /* a fragment of a packet to a VIP */
	DROP_ROUTING_HEADER, /* an IPv6 routing header of type 0, or with segments left */
	DROP_UDP_ZERO_CHECKSUM, /* IPv6 UDP without a checksum (RFC 8200 section 8.1) */
	DROP_NO_ROUTE, /* no route to the endpoint or the client, or it is this machine itself */
	DROP_ROUTE_UNREACHABLE, /* the route is of type unreachable, prohibit or blackhole */
	DROP_FORWARDING_OFF, /* net.ipv4.conf.lo.forwarding or its IPv6 twin is 0 */
	DROP_ROUTE_ENCAP, /* the route has a lightweight tunnel, which the data path does not build */
	DROP_NOT_LINEAR, /* headers could not be read or made writable: out of memory */
	DROP_REASONS
};
_Static_assert(DROP_REASONS <= MAX_REASONS, "ABI");

/* What can be said of a packet that was handed to the kernel although it
 * looked like ours. Counted beside the drops. */
enum pass_reason {
	PASS_PLAIN, /* not ours; not counted */
	PASS_EXTENSION_CHAIN, /* more IPv6 extension headers than the parser follows */
	PASS_REASONS
};

/* Both families: IPv4 as ::ffff:a.b.c.d (RFC 4291 section 2.5.5.2). */
struct ip_addr {
	__be32 word[4];
};
_Static_assert(sizeof(struct ip_addr) == 16, "ABI");

/* A packet's addresses and ports, as it arrives. */
struct connection_key {
	struct ip_addr saddr;
	struct ip_addr daddr;
	__be16 sport;
	__be16 dport;
	__u8 protocol; /* IANA */
	__u8 pad[3];
};
_Static_assert(sizeof(struct connection_key) == 40, "ABI");

/* What both directions of a connection have seen. Bits are only ever added, by
 * an atomic or on both entries, so that two CPUs never lose one another's. */
enum connection_flag {
	CONN_REPLY_DIRECTION = 0x01, /* of packets from the endpoint */
	CONN_REPLIED = 0x02, /* the endpoint answered (TCP: SYN+ACK) */
	CONN_ASSURED = 0x04, /* TCP: the handshake is complete */
	CONN_FIN_CLIENT = 0x08,
	CONN_FIN_ENDPOINT = 0x10,
	CONN_FIN_CLIENT_ACKED = 0x20,
	CONN_FIN_ENDPOINT_ACKED = 0x40,
	CONN_RESET = 0x80,
};

enum hop_kind {
	HOP_REDIRECT, /* to the interface, with the cached MAC addresses */
	HOP_PEER, /* straight into the other end of a veth, in its namespace */
	HOP_LAYER3, /* to an interface without link-layer header */
};

/* One direction of a connection. Its size is chosen so that an entry of the
 * hash table (48 bytes of its own, 40 of key, 8 of the allocator) fills three
 * cache lines exactly. */
struct connection {
	/* the tuple that packets leave with; reversed, it is the key of the
	 * other direction's entry */
	struct ip_addr saddr;
	struct ip_addr daddr;
	__be16 sport;
	__be16 dport;
	__u16 address_sum; /* ones' complement: new minus old addresses */
	__u16 tuple_sum; /* the same, of addresses and ports */
	__u32 ifindex; /* next hop: valid iff hop_epoch is the current one */
	__u8 dmac[6];
	__u8 smac[6];
	__u32 hop_epoch;
	__u32 seen; /* jiffies (low 32 bits) of the last packet */
	__u64 packets;
	__u64 bytes; /* of IP packets */
	__u32 seq_end; /* TCP: highest sequence number sent, plus one */
	__u32 ack; /* TCP: last acknowledgement sent */
	__u32 endpoint; /* index into endpoints */
	__u8 flags; /* enum connection_flag; changed by atomics on this word */
	__u8 hop; /* enum hop_kind */
	__u16 pad;
};
_Static_assert(sizeof(struct connection) == 96, "ABI");
_Static_assert(__builtin_offsetof(struct connection, flags) % 4 == 0, "ABI");

/* What a packet must be addressed to. */
struct service_key {
	struct ip_addr vip;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};
_Static_assert(sizeof(struct service_key) == 20, "ABI");

/* A service: replaced whole, so an update is atomic. Its slots are
 * slot_count endpoint indices from slot_offset on in segment slot_segment. */
struct service {
	__u32 id; /* index into service_states and idle_timeouts */
	__u32 slot_count; /* 0: no endpoint takes new connections */
	__u16 slot_segment;
	__u16 slot_offset;
};
_Static_assert(sizeof(struct service) == 12, "ABI");

/* What the data path itself keeps of a service. */
struct service_state {
	__u64 next; /* round robin: how many connections were opened */
	__u64 no_endpoint; /* packets refused for want of an endpoint */
	__u64 refused; /* packets refused because the table was full */
};

enum endpoint_flag {
	ENDPOINT_IN_USE = 1, /* the index is taken */
	ENDPOINT_END_TCP = 2, /* the sweep ends its TCP connections */
	ENDPOINT_END_UDP = 4, /* the sweep ends its UDP connections */
};

struct endpoint {
	struct ip_addr addr;
	__be16 port;
	__u16 flags; /* enum endpoint_flag */
	__u32 service; /* index into service_states */
};
_Static_assert(sizeof(struct endpoint) == 24, "ABI");

struct endpoint_state {
	__u64 connections; /* opened, ever */
	__u64 active; /* in the table */
};

/* Per CPU. "in" is from the client to the endpoint. */
struct endpoint_traffic {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
};

enum link_flag {
	LINK_PEER = 1, /* a veth whose other end is in another namespace */
	LINK_LAYER3 = 2, /* no link-layer header: tun, wireguard */
};

/* What a sweep is asked and what it answers. */
struct sweep_report {
	__u64 visited; /* entries looked at */
	__u64 ended; /* connections removed: expired, or of an endpoint that is gone */
};

#endif
